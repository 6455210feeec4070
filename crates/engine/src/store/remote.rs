//! What the store asks of whoever can reach other machines.
//!
//! The engine speaks no HTTP: the cli hands in a [`Remote`] that does. Limits, patience, progress
//! and what becomes of the bytes are the store's own business, in `fetch`, so that they hold for
//! every kind of source and can be tested without a network.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

/// An answer that takes a while.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reaches other machines.
pub trait Remote: Send + Sync {
    /// Begins to download; the error is a sentence for the log. The url has passed the allow-list;
    /// whatever it redirects to must pass it too.
    fn open<'a>(&'a self, url: &'a str) -> Later<'a, Result<Box<dyn Download>, String>>;
}

/// A file on its way.
pub trait Download: Send {
    /// Its size, if the other side said so.
    fn bytes_total(&self) -> Option<u64>;

    /// The next piece; nothing once it is complete.
    fn next(&mut self) -> Later<'_, Result<Option<Bytes>, String>>;
}
