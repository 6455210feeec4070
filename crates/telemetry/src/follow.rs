//! Following the log or the overview: what one who follows gets, and why somebody cannot.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

/// What is told as long as somebody reads it.
pub type LiveStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// So many follow already.
    #[error("{limit} clients follow the {what} already, which is the limit. {instead}")]
    Full {
        /// The most that may.
        limit: usize,
        /// What they follow.
        what: &'static str,
        /// What to do about it, as a sentence.
        instead: &'static str,
    },
    /// Nothing more will be told.
    #[error("The server is shutting down.")]
    Ending,
}
