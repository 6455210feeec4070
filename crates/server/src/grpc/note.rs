//! How a call ended: the last frame tells, so the log_entry travels inside the answer's body.
//!
//! It adds the receipt to the trailers on their way out and writes the access log's line when the
//! body is done, or when it is dropped because the client went away.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Uri, Version};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;
use tonic::{Code, Status, body::Body};

use super::caller::Caller;
use crate::access::AccessRecord;
use crate::connection::Peer;
use crate::listener::ServerState;
use crate::respond::X_REQUEST_ID;
use crate::rest::inference::SERVER_TIMING;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How tonic begins its rejection of a message beyond the limit, as it stands in the header.
const TOO_LARGE: &[u8] = b"Error,%20decoded%20message%20length%20too%20large";

/// A receipt on its way to the trailers; services leave it among the answer's extensions.
#[derive(Clone)]
pub(super) struct TimingTrailer(pub(super) HeaderValue);

/// Writes one line when dropped.
pub(super) struct CallLog {
    state: Arc<ServerState>,
    peer: Arc<Peer>,
    path: Option<PathAndQuery>,
    started: Instant,
    /// What the client was told; cancelled unless it was told something.
    code: i32,
}

impl CallLog {
    pub(super) fn new(
        state: &Arc<ServerState>,
        peer: &Arc<Peer>,
        uri: &Uri,
        started: Instant,
    ) -> Self {
        let (state, peer) = (Arc::clone(state), Arc::clone(peer));
        Self {
            state,
            peer,
            path: uri.path_and_query().cloned(),
            started,
            code: Code::Cancelled as i32,
        }
    }

    /// Sends the log_entry along with the answer.
    pub(super) fn attach(
        mut self,
        response: Response<Body>,
        caller: Caller,
    ) -> Response<LoggedBody> {
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(X_REQUEST_ID, caller.id.header());
        self.read(&parts.headers);
        if self.code == Code::OutOfRange as i32 && is_too_large(&parts.headers) {
            self.code = Code::ResourceExhausted as i32;
            parts.headers.insert(GRPC_STATUS, HeaderValue::from(self.code));
        }
        let timing =
            parts.extensions.remove::<TimingTrailer>().map(|TimingTrailer(receipt)| receipt);
        Response::from_parts(parts, LoggedBody { body, log_entry: self, timing })
    }

    /// Failures without a message have their code among the headers, all else among the trailers.
    fn read(&mut self, headers: &HeaderMap) {
        let code = headers.get(GRPC_STATUS).and_then(|code| code.to_str().ok()?.parse().ok());
        self.code = code.unwrap_or(self.code);
    }
}

/// Whether the call was refused for its size. gRPC's own servers say RESOURCE_EXHAUSTED then, and clients know that.
fn is_too_large(headers: &HeaderMap) -> bool {
    headers.get(GRPC_MESSAGE).is_some_and(|words| words.as_bytes().starts_with(TOO_LARGE))
}

impl Drop for CallLog {
    fn drop(&mut self) {
        let Some(log) = &self.state.config.access_log else { return };
        let Ok(method) = Method::from_bytes(b"gRPC") else { return };
        let path = self.path.as_ref().map_or("", PathAndQuery::path);
        log.write(&AccessRecord {
            address: &self.peer.address,
            method: &method,
            uri: &path.trim_start_matches('/'),
            version: Version::HTTP_2,
            status: self.code as u16,
            took: self.started.elapsed(),
        });
    }
}

/// An answer's body with its log_entry.
pub(crate) struct LoggedBody {
    body: Body,
    log_entry: CallLog,
    timing: Option<HeaderValue>,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            self.log_entry.read(trailers);
            if let Some(receipt) = self.timing.take() {
                trailers.insert(SERVER_TIMING, receipt);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
