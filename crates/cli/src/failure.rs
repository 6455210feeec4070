//! Why a command ends early: one sentence, an optional hint, and the exit code.

use std::path::Path;
use std::{fmt, io};

/// The exit code of a start that failed, as TorchServe's.
pub const FAILED: u8 = 1;
/// The exit code of a wrong `jitney torchserve` command line, as argparse's.
pub const USAGE_TORCHSERVE: u8 = 2;
/// The exit code of any other wrong command line or configuration (`EX_USAGE`), always before a
/// port is bound.
pub const USAGE: u8 = 64;
/// The exit code of a command whose server cannot be reached (`EX_UNAVAILABLE`).
pub const UNREACHABLE: u8 = 69;
/// The exit code of a command whose token the server does not take (`EX_NOPERM`).
pub const NO_PERMISSION: u8 = 77;

/// Why a command ended early.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the process.
    pub code: u8,
    /// What went wrong, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// The command cannot be carried out.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), hint: None }
    }

    /// The command line or the configuration is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), hint: None }
    }

    /// The server cannot be reached.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self { code: UNREACHABLE, message: message.into(), hint: None }
    }

    /// The server wants a token, or another one.
    pub fn no_permission(message: impl Into<String>) -> Self {
        Self { code: NO_PERMISSION, message: message.into(), hint: None }
    }

    /// A file that cannot be read or written; `action` is the verb.
    pub fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::failed(format!("cannot {action} {}: {error}", path.display()))
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

/// The failure of a step: it says what cannot be done, and why.
pub fn cannot<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}
