//! A file on its way from a web server or a bucket, and which of their errors are worth another try.

use std::pin::Pin;

use bytes::Bytes;
use jitney_engine::store::{Download, DownloadError, DownloadFuture};
use object_store::Error;
use reqwest::Response;
use tokio_stream::{Stream, StreamExt as _};

use super::client::error_chain;

/// A file on its way.
pub struct RemoteDownload {
    /// The size of the whole file, if the server tells it.
    pub bytes_total: Option<u64>,
    /// Where in the file the first piece begins.
    pub begins_at: u64,
    /// What identifies this content of the file.
    pub tag: Option<String>,
    /// Where the pieces come from.
    pub body: DownloadBody,
}

/// Where the pieces of a file come from.
pub enum DownloadBody {
    /// The response of a web server.
    Web(Response),
    /// An object of a bucket.
    Bucket(Pin<Box<dyn Stream<Item = object_store::Result<Bytes>> + Send>>),
}

impl Download for RemoteDownload {
    fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    fn begins_at(&self) -> u64 {
        self.begins_at
    }

    fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    fn next(&mut self) -> DownloadFuture<'_, Result<Option<Bytes>, DownloadError>> {
        Box::pin(async {
            match &mut self.body {
                DownloadBody::Web(response) => response.chunk().await.map_err(web_error),
                DownloadBody::Bucket(pieces) => {
                    pieces.next().await.transpose().map_err(bucket_error)
                }
            }
        })
    }
}

/// The error of a request to a web server, or of its response.
pub fn web_error(error: reqwest::Error) -> DownloadError {
    let transient = !(error.is_redirect() || error.is_builder());
    DownloadError { why: error_chain(&error.without_url()), transient }
}

/// The error of a bucket.
pub fn bucket_error(error: Error) -> DownloadError {
    let lasting = matches!(
        error,
        Error::NotFound { .. }
            | Error::InvalidPath { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
    );
    DownloadError { why: error_chain(&error), transient: !lasting }
}
