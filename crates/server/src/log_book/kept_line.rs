//! A line of the log as it is kept, and what is found among such lines.

use std::sync::Arc;

use tracing::Level;

/// A line as it is kept.
#[derive(Debug)]
pub(crate) struct KeptLine {
    pub(crate) level: Level,
    /// The model that it is about.
    pub(crate) model: Option<String>,
    /// The object on one line.
    pub(crate) json: String,
}

/// What was found among the lines that are kept.
pub(crate) struct FoundLines {
    /// The oldest first.
    pub(crate) lines: Vec<Arc<KeptLine>>,
    /// Lines that were too long to be kept.
    pub(crate) dropped: u64,
}
