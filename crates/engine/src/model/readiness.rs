//! Whether a model version can serve, in a word.

use std::fmt;
use std::sync::Arc;

use crate::outcome::LoadFailure;
use crate::pool::LoadProgress;

/// Whether a model version can serve now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A worker has loaded it and is warm.
    Ready,
    /// It has no workers, and none are wanted.
    Unstaffed,
    /// It has no workers; the first request loads it.
    Known,
    /// The same, and its last workers are ending.
    Leaving,
    /// No worker has loaded it yet, or since the last one exited.
    Loading {
        /// Workers that are wanted.
        wanted: u32,
        /// How far one of them is, if it says so.
        progress: Option<LoadProgress>,
    },
    /// No worker could load it.
    Failed(Arc<LoadFailure>),
}

impl Readiness {
    /// Whether it can serve.
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }

    /// Whether it is as its operator wants it: it can serve, or is not meant to.
    pub fn is_as_wanted(&self) -> bool {
        matches!(self, Self::Ready | Self::Unstaffed | Self::Known | Self::Leaving)
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => out.write_str("ready"),
            Self::Unstaffed => out.write_str("0 workers, as asked for"),
            Self::Known => out.write_str("known; the first request loads it"),
            Self::Leaving => out.write_str("leaving; the next request loads it"),
            Self::Loading { wanted, progress: None } => {
                write!(out, "loading (0 of {wanted} workers ready)")
            }
            Self::Loading { wanted, progress: Some(step) } => {
                write!(out, "loading (0 of {wanted} workers ready; {step})")
            }
            Self::Failed(failure) => write!(out, "{failure}"),
        }
    }
}
