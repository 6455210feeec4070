//! Who answers, as the carriers see it: what they ask, and what holds for every request and every answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::head::DefaultHeaders;
use crate::compression::Coding;
use crate::connection::Peer;
use crate::incoming_body::RequestBody;
use crate::outgoing_body::ResponseBody;
use crate::request_id::XRequestId;

/// Answers the requests of connections.
pub trait HttpService: Send + Sync + 'static {
    /// What becomes of a connection that stops to speak HTTP.
    type Upgrade: Send + Sync + 'static;

    /// Answers a request, whatever becomes of it. The body is an error where the head is not valid. The
    /// future is dropped when the client goes away.
    fn answer(
        &self,
        client: &HttpClient<'_, Self::Upgrade>,
        parts: &Parts,
        body: Result<RequestBody, HeadError>,
    ) -> impl Future<Output = Answered> + Send;

    /// What holds for every request and every answer.
    fn rules(&self) -> &HttpRules;

    /// What a client is told whose bytes are no HTTP, where HTTP has this status for them.
    fn malformed(status: u16) -> Response<ResponseBody>;
}

/// Who sent a request.
pub struct HttpClient<'a, U> {
    /// Its connection.
    pub peer: &'a Arc<Peer>,
    /// Set once, by the request that asks for an upgrade.
    pub upgrade: &'a OnceLock<U>,
}

/// What holds for every request and every answer.
#[derive(Clone, Debug)]
pub struct HttpRules {
    /// What answers have beside the headers of their own.
    pub headers: DefaultHeaders,
    /// Whether compressed bodies of requests are decompressed; else they are passed on as they came.
    pub decompress: bool,
    /// How long a body of one of several requests on a connection may stand still.
    pub patience: Duration,
}

impl HttpRules {
    /// The body with what the headers say of how it is compressed, which they then say no more.
    pub(super) fn coded(&self, headers: &mut HeaderMap, body: RequestBody) -> RequestBody {
        if self.decompress && headers.contains_key(CONTENT_ENCODING) {
            body.coded(Coding::take(headers))
        } else {
            body
        }
    }
}

/// Why a request is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It has more headers than this.
    #[error("The request has more than {0} headers.")]
    TooManyHeaders(usize),
    /// There is no memory for it.
    #[error("There is no memory for the head of the request.")]
    NoRoom,
    /// A proxy before this server may see other lines, and so another request.
    #[error("Invalid HTTP message: every line of its head must end with CR LF.")]
    BareLf,
    /// A proxy before this server may see another end of the body.
    #[error("Invalid HTTP message: its Transfer-Encoding must be chunked, once.")]
    Codings,
}

/// An answer, before a carrier writes it.
pub struct Answered {
    /// Without the headers of every answer.
    pub reply: Response<ResponseBody>,
    /// The request's id.
    pub id: XRequestId,
    /// When it was there.
    pub at: Instant,
    /// Whether the connection should end with it: another client waits for its place, or the server is
    /// about to end and lets its clients go to another one between two requests.
    pub last: bool,
}

impl Answered {
    /// The answer with the headers of every answer.
    pub(super) fn stamped(mut self, rules: &HttpRules) -> Response<ResponseBody> {
        rules.headers.stamp(&mut self.reply, self.id.header());
        self.reply
    }
}
