//! What the store asks of whoever can reach other machines.
//!
//! The engine speaks no HTTP: the cli hands in a [`Remote`] that does. Limits, patience, progress,
//! second tries and what becomes of the bytes are the store's own business, in `fetch`, so that they
//! hold for every kind of source and can be tested without a network.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

/// An answer that takes a while.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whether a url leads to another machine; all other urls and paths are looked up on this one.
pub fn is_remote(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| is_web(&scheme) || is_bucket(&scheme))
}

/// Plain files on a web server.
pub(super) fn is_web(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}

/// Objects in a bucket or container of a cloud.
pub(super) fn is_bucket(scheme: &str) -> bool {
    matches!(scheme, "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss")
}

/// What is asked of the other side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The file. It has passed the allow-list; whatever it redirects to must pass it too.
    pub url: &'a str,
    /// Sign the request with the server's own AWS credentials, although it is an `https://` url
    /// (TorchServe's `s3_sse_kms`).
    pub signed: bool,
    /// What is here already.
    pub resume: Option<Resume<'a>>,
}

/// The beginning of a file that is here already.
#[derive(Clone, Copy, Debug)]
pub struct Resume<'a> {
    /// Its length.
    pub bytes: u64,
    /// What the other side called the file: the rest is wanted only if it is called so still.
    pub tag: &'a str,
}

/// Why nothing comes, or nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A sentence for the log.
    pub why: String,
    /// Whether it makes sense to ask again.
    pub passing: bool,
}

impl Trouble {
    /// Asking again would give the same.
    pub fn lasting(why: impl ToString) -> Self {
        Self { why: why.to_string(), passing: false }
    }

    /// A connection that broke, or a machine that is busy.
    pub fn passing(why: impl ToString) -> Self {
        Self { why: why.to_string(), passing: true }
    }
}

/// Reaches other machines.
pub trait Remote: Send + Sync {
    /// Begins to download, or goes on where an earlier download broke off.
    fn open<'a>(&'a self, ask: Ask<'a>) -> Later<'a, Result<Box<dyn Download>, Trouble>>;
}

/// A file on its way.
pub trait Download: Send {
    /// The size of the whole file, if the other side said so.
    fn bytes_total(&self) -> Option<u64>;

    /// Where in the file the first piece begins: zero, unless the other side agreed to resume.
    fn begins_at(&self) -> u64 {
        0
    }

    /// What identifies this content of the file, if the other side said so.
    fn tag(&self) -> Option<&str> {
        None
    }

    /// The next piece; nothing once it is complete.
    fn next(&mut self) -> Later<'_, Result<Option<Bytes>, Trouble>>;
}
