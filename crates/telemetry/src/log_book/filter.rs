//! Which lines of the log a reader wants.

use tracing::Level;

use super::kept_line::KeptLine;

/// What a line must be like.
#[derive(Clone, Debug)]
pub struct LineFilter {
    /// It, or worse.
    level: Level,
    model: Option<String>,
    /// Text that is in the line, as JSON writes it, in small letters.
    contains: String,
}

impl Default for LineFilter {
    fn default() -> Self {
        Self { level: Level::TRACE, model: None, contains: String::new() }
    }
}

impl LineFilter {
    /// Lines of this level and above; of one model, and with this text in them, where that is given.
    pub fn new(level: Level, model: Option<String>, contains: Option<&str>) -> Self {
        let quoted = serde_json::to_string(contains.unwrap_or_default()).unwrap_or_default();
        let contains = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
        Self { level, model, contains: contains.to_lowercase() }
    }

    pub(super) fn fits(&self, line: &KeptLine) -> bool {
        line.level <= self.level
            && self.model.as_deref().is_none_or(|model| line.model() == Some(model))
            && (self.contains.is_empty() || line.json().to_lowercase().contains(&self.contains))
    }
}
