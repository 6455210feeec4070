//! Whose words clients read where the two differ.

/// Whose messages and health rules the server follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// TorchServe's, word for word; what they leave out is told beside them.
    #[default]
    TorchServe,
    /// Our own, which say what happened.
    Jitney,
}
