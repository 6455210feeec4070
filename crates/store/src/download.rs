//! What the store asks of a downloader.
//!
//! The store has no HTTP client: the command line hands in a [`Downloader`] that has. Limits, timeouts,
//! progress, retries and the files are handled in `fetch`, so that they hold for every kind of source
//! and can be tested without a network.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

/// An answer that takes a while.
pub type DownloadFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is asked of the other side.
#[derive(Clone, Copy, Debug, Default)]
pub struct DownloadRequest<'a> {
    /// The file. It has passed the allow-list; whatever it redirects to must pass it too.
    pub url: &'a str,
    /// Sign the request with the server's own AWS credentials, although it is an `https://` url
    /// (TorchServe's `s3_sse_kms`).
    pub signed: bool,
    /// What is here already.
    pub resume: Option<ResumeFrom<'a>>,
}

/// The beginning of a file that is here already.
#[derive(Clone, Copy, Debug)]
pub struct ResumeFrom<'a> {
    /// Its length.
    pub bytes: u64,
    /// What the other side called the file: the rest is wanted only if it is called so still.
    pub tag: &'a str,
}

/// Why nothing comes, or nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadError {
    /// A sentence for the log.
    pub why: String,
    /// Whether it makes sense to ask again.
    pub transient: bool,
}

impl DownloadError {
    /// Asking again would give the same.
    pub fn permanent(why: impl ToString) -> Self {
        Self { why: why.to_string(), transient: false }
    }

    /// A connection that broke, or a machine that is busy.
    pub fn transient(why: impl ToString) -> Self {
        Self { why: why.to_string(), transient: true }
    }
}

/// Reaches other machines.
pub trait Downloader: Send + Sync {
    /// Begins to download, or goes on where an earlier download broke off.
    fn open<'a>(
        &'a self,
        ask: DownloadRequest<'a>,
    ) -> DownloadFuture<'a, Result<Box<dyn Download>, DownloadError>>;

    /// Lists what is below a folder of a bucket; more files than so many are an error.
    fn list<'a>(
        &'a self,
        _url: &'a str,
        _files_max: u64,
    ) -> DownloadFuture<'a, Result<Vec<RemoteFile>, DownloadError>> {
        Box::pin(async { Err(DownloadError::permanent("folders cannot be listed there")) })
    }
}

/// A file below a folder of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its path below the folder, as the other side has it.
    pub path: String,
    /// Where it is fetched from.
    pub url: String,
    /// Its size.
    pub bytes: u64,
}

/// A file on its way.
pub trait Download: Send {
    /// The size of the whole file, if the server tells it.
    fn bytes_total(&self) -> Option<u64>;

    /// Where in the file the first piece begins: zero, unless the other side agreed to resume.
    fn begins_at(&self) -> u64 {
        0
    }

    /// What identifies this content of the file, if the server tells it.
    fn tag(&self) -> Option<&str> {
        None
    }

    /// The next piece; nothing once it is complete.
    fn next(&mut self) -> DownloadFuture<'_, Result<Option<Bytes>, DownloadError>>;
}
