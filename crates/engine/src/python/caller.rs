//! Workers that call models themselves: who they are, and the connections on which they do.
//!
//! This crate lets them in and says when they end; what they say on such a connection is the server's
//! affair (`protocol/handles.md`).

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

/// A worker that calls models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its own model.
    pub model: String,
    /// The version of that.
    pub version: String,
    /// Its number.
    pub worker: u32,
}

/// A connection on which a worker calls models.
#[derive(Debug)]
pub struct CallConnection {
    /// The bare connection, after the hello.
    pub stream: UnixStream,
    /// What was read behind the hello.
    pub ahead: Bytes,
    /// Whose it is.
    pub caller: Arc<Caller>,
    /// When its calls end.
    pub ended: CallerEnded,
}

/// Tells when a worker has ended, whoever else holds its connection.
#[derive(Clone, Debug)]
pub struct CallerEnded(pub(super) watch::Receiver<()>);

impl CallerEnded {
    /// Resolves when the worker has ended.
    pub async fn wait(&mut self) {
        // Nothing is ever sent: an error is the end.
        while self.0.changed().await.is_ok() {}
    }
}
