//! A model as a path names it.

/// A model, and perhaps a version, that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRef<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The version; the default one when absent.
    pub version: Option<&'a str>,
}
