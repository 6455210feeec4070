//! Why a request's body cannot be had. What a client is told of it, with which status, is not said here.

use std::time::Duration;

use jitney_memory::admission::CutReason;

use crate::compression::CodingError;

/// What became of a body instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is larger than it may be.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The most bytes.
        limit: u64,
    },
    /// Nothing of it came for so long.
    #[error("nothing came for {0:?}")]
    Stalled(Duration),
    /// Its memory was taken away, or there was none.
    #[error("cut: {0:?}")]
    Cut(CutReason),
    /// The connection ended before it.
    #[error("broken off")]
    Ended,
    /// It cannot be decompressed.
    #[error(transparent)]
    Coding(#[from] CodingError),
}
