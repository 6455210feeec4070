//! Where a value came from, for `jitney config` and for what must not be written down again.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// A variable of the environment.
    Variable(String),
    /// A file, and the line where that is known.
    File {
        /// As it was named.
        path: Arc<Path>,
        /// Counted from 1.
        line: Option<usize>,
    },
    /// The model's own settings.
    Archive(String),
    /// Nobody said anything.
    Default,
}

impl Origin {
    /// The kind of source, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Variable(_) => "environment",
            Self::File { .. } => "file",
            Self::Archive(_) => "archive",
            Self::Default => "default",
        }
    }

    /// Which flag, variable, line or archive.
    pub fn place(&self) -> String {
        match self {
            Self::Flag(name) | Self::Variable(name) | Self::Archive(name) => name.clone(),
            Self::File { path, line: Some(line) } => format!("{}:{line}", path.display()),
            Self::File { path, line: None } => path.display().to_string(),
            Self::Default => String::new(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        if place.is_empty() {
            f.write_str(self.kind())
        } else {
            write!(f, "{} {place}", self.kind())
        }
    }
}
