//! Why the program ends early: a sentence, perhaps a hint, and the exit code that scripts see.

use std::fmt;

/// The exit code of a start that failed, TorchServe's own.
pub const FAILED: u8 = 1;
/// The exit code of a wrong `jitney torchserve` command line, argparse's own.
pub const USAGE_TORCHSERVE: u8 = 2;
/// The exit code of any other wrong command line or configuration (`EX_USAGE`), always before a
/// port is bound.
pub const USAGE: u8 = 64;

/// An early end, as a value.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub code: u8,
    /// What went wrong, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// Something that was asked for cannot be done.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), hint: None }
    }

    /// What was asked for makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint if there is one.
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
