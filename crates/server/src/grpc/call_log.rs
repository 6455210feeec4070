//! Logs how a call ended. The status is in the last frame, so the log entry is part of the answer's body.
//!
//! The body adds the timing to the trailers on their way out, and writes the access log's line when it is
//! done, or when it is dropped because the client went away.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Uri, Version};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use jitney_net::AnswerPiece;
use jitney_net::connection::Peer;
use jitney_net::request_id::{X_REQUEST_ID, XRequestId};
use jitney_telemetry::trace::RequestTrace;
use jitney_telemetry::{AccessRecord, RecordNames};
use tokio::time::Instant;
use tonic::{Code, Status, body::Body};

use super::traced;
use crate::state::ServerState;
use crate::timing::SERVER_TIMING;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The start of tonic's error for a message beyond the limit, as the header holds it.
const TOO_LARGE: &[u8] = b"Error,%20decoded%20message%20length%20too%20large";

/// A timing on its way to the trailers; services leave it among the answer's extensions.
#[derive(Clone)]
pub(super) struct TimingTrailer(pub(super) HeaderValue);

/// Writes one line when dropped.
pub(super) struct CallLog {
    state: Arc<ServerState>,
    peer: Arc<Peer>,
    path: Option<PathAndQuery>,
    started: Instant,
    id: XRequestId,
    /// Ends with the answer.
    trace: Option<Arc<RequestTrace>>,
    /// The code that the client got; cancelled until it gets one.
    code: i32,
}

impl CallLog {
    pub(super) fn new(
        state: &Arc<ServerState>,
        peer: &Arc<Peer>,
        uri: &Uri,
        started: Instant,
        id: XRequestId,
    ) -> Self {
        let (state, peer) = (Arc::clone(state), Arc::clone(peer));
        peer.call_began();
        Self {
            state,
            peer,
            path: uri.path_and_query().cloned(),
            started,
            id,
            trace: None,
            code: Code::Cancelled as i32,
        }
    }

    /// Lets the trace of the call end with it.
    pub(super) fn traced(mut self, trace: Option<Arc<RequestTrace>>) -> Self {
        self.trace = trace;
        self
    }

    /// Makes this log a part of the answer.
    pub(super) fn attach(mut self, response: Response<CallBody>) -> Response<LoggedBody> {
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(X_REQUEST_ID, unindexed(self.id.header()));
        self.read(&parts.headers);
        if self.code == Code::OutOfRange as i32 && is_too_large(&parts.headers) {
            self.code = Code::ResourceExhausted as i32;
            parts.headers.insert(GRPC_STATUS, HeaderValue::from(self.code));
        }
        let timing = parts.extensions.remove::<TimingTrailer>().map(|TimingTrailer(timing)| timing);
        Response::from_parts(parts, LoggedBody { body, log: self, timing })
    }

    /// Failures without a message have their code among the headers, all else among the trailers.
    fn read(&mut self, headers: &HeaderMap) {
        self.code = code(headers).unwrap_or(self.code);
    }
}

/// The code among headers or trailers.
pub(super) fn code(headers: &HeaderMap) -> Option<i32> {
    headers.get(GRPC_STATUS).and_then(|code| code.to_str().ok()?.parse().ok())
}

/// Keeps a value that no other answer has out of the table of headers that both ends hold, where it would
/// only push out those that come again.
fn unindexed(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Whether the call was rejected for its size. gRPC's own servers answer RESOURCE_EXHAUSTED then.
fn is_too_large(headers: &HeaderMap) -> bool {
    headers.get(GRPC_MESSAGE).is_some_and(|text| text.as_bytes().starts_with(TOO_LARGE))
}

impl Drop for CallLog {
    fn drop(&mut self) {
        self.peer.call_ended();
        if let Some(trace) = self.trace.as_ref().filter(|_| self.code != Code::Cancelled as i32) {
            traced::end(trace, self.code);
        }
        let Some(log) = &self.state.parts.access_log else { return };
        let Ok(method) = Method::from_bytes(b"gRPC") else { return };
        let path = self.path.as_ref().map_or("", PathAndQuery::path);
        log.write(&AccessRecord {
            address: &self.peer.address,
            method: &method,
            uri: &path.trim_start_matches('/'),
            version: Version::HTTP_2,
            status: self.code as u16,
            took: self.started.elapsed(),
            names: RecordNames::of(self.state.config.dialect, &self.id, self.trace.as_ref()),
        });
    }
}

/// An answer's body.
pub(super) enum CallBody {
    /// As tonic made it.
    Tonic(Body),
    /// One message, after which all is well.
    Message(Bytes),
    /// Only the status is left.
    Status,
    /// Nothing is left.
    End,
}

impl CallBody {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, next) = match self {
            Self::Tonic(body) => return Pin::new(body).poll_frame(context),
            Self::Message(message) => (Frame::data(std::mem::take(message)), Self::Status),
            Self::Status => {
                let status = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
                (Frame::trailers(status), Self::End)
            }
            Self::End => return Poll::Ready(None),
        };
        *self = next;
        Poll::Ready(Some(Ok(frame)))
    }
}

/// An answer's body with its log.
pub(crate) struct LoggedBody {
    body: CallBody,
    log: CallLog,
    timing: Option<HeaderValue>,
}

impl HttpBody for LoggedBody {
    type Data = AnswerPiece;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerPiece>, Status>>> {
        let mut frame = ready!(self.body.poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            self.log.read(trailers);
            if let Some(timing) = self.timing.take() {
                trailers.insert(SERVER_TIMING, unindexed(timing));
            }
        }
        let piece = |bytes| AnswerPiece::new(bytes, &self.log.peer);
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            CallBody::Tonic(body) => body.is_end_stream(),
            CallBody::Message(_) | CallBody::Status => false,
            CallBody::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            CallBody::Tonic(body) => body.size_hint(),
            CallBody::Message(_) | CallBody::Status | CallBody::End => SizeHint::default(),
        }
    }
}
