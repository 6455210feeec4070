//! What a study came to.

/// The text, and whether the load can be served.
#[derive(Debug)]
pub struct StudyReport {
    /// The text to print.
    pub text: String,
    /// Whether it is possible.
    pub possible: bool,
}
