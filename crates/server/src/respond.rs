//! How HTTP answers are written: JSON in TorchServe's form, and the headers of every answer.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, EXPIRES, PRAGMA, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::ext::ReasonPhrase;
use jitney_net::ResponseBody;
use jitney_net::compression::Coding;
use jitney_net::request_id::X_REQUEST_ID;
use serde::Serialize;

use crate::errors::{ErrorCode, Problem};

/// An answer; its body is known, unless the model is still making it.
pub(crate) type HttpResponse = Response<ResponseBody>;

/// Marks an answer whose clients say that they take compressed ones and do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncompressed;

/// Marks an answer that says itself how it may be kept, such as a file of the dashboard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnCaching;

/// What an endpoint returns.
pub(crate) type HttpResult = Result<HttpResponse, Problem>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const NO_STORE: HeaderValue =
    HeaderValue::from_static("no-cache; no-store, must-revalidate, private");
const LONG_AGO: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 UTC");

/// A body without a type of its own.
pub(crate) fn plain(status: StatusCode, body: Bytes) -> HttpResponse {
    let mut reply = Response::new(ResponseBody::whole(body));
    *reply.status_mut() = status;
    reply
}

/// A value as two-space JSON with a final newline.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> HttpResponse {
    let mut text = pretty(value);
    text.push('\n');
    let mut reply = plain(status, Bytes::from(text));
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply
}

/// The text of such an answer without the newline, which TorchServe leaves out over gRPC.
pub(crate) fn pretty<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer cannot be written as JSON");
        "{}".to_owned()
    })
}

/// Says which methods a path takes, unless the answer says so itself.
pub(crate) fn allow(reply: &mut HttpResponse, methods: &str) {
    if let Ok(methods) = HeaderValue::from_str(methods) {
        reply.headers_mut().entry(ALLOW).or_insert(methods);
    }
}

/// `{"status": text}`, as management answers.
pub(crate) fn status(status: StatusCode, text: &str) -> HttpResponse {
    json(status, &serde_json::json!({ "status": text }))
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: u16,
    r#type: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Where clients of KServe and Triton look.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    /// By what the log knows the request.
    #[serde(rename = "requestId", skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

impl<'a> ErrorBody<'a> {
    fn of(problem: &'a Problem) -> Self {
        let (kind, reason) = (problem.code.row().kind, problem.reason.as_deref());
        let message = &problem.message;
        let (error, request_id) = (None, None);
        Self { code: problem.status, r#type: kind, message, reason, error, request_id }
    }
}

/// A failure as `{code, type, message}`, with `reason` where that says more than the message, with `Retry-After` where that makes sense,
/// and with the id of the request where one is given.
pub(crate) fn problem(problem: &Problem, request_id: Option<&str>) -> HttpResponse {
    problem_as(problem, &ErrorBody { request_id, ..ErrorBody::of(problem) })
}

/// The same for clients of KServe and Triton, who find the message under `error`, too.
pub(crate) fn open_problem(problem: &Problem) -> HttpResponse {
    let error = Some(problem.for_triton());
    problem_as(problem, &ErrorBody { error, ..ErrorBody::of(problem) })
}

/// A failure in a body of its own.
pub(crate) fn problem_as<T: Serialize>(problem: &Problem, body: &T) -> HttpResponse {
    let mut reply = json(StatusCode::INTERNAL_SERVER_ERROR, body);
    set_status(&mut reply, problem.status, "");
    if let Some(wait) = problem.retry_after {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.code == ErrorCode::UnknownCoding {
        reply.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(Coding::KNOWN));
    }
    use ErrorCode::{HeadTooLarge, InvalidHead, NoRoom, TooLarge, TooSlow};
    if matches!(problem.code, TooLarge | InvalidHead | HeadTooLarge | TooSlow | NoRoom) {
        close(&mut reply);
    }
    reply
}

/// The same body in one line.
pub(crate) fn problem_text(problem: &Problem) -> String {
    serde_json::to_string(&ErrorBody::of(problem)).unwrap_or_default()
}

/// What a body seems to be that nobody gave a type: its first bytes decide, and of JSON its last too.
/// `whole` if no more of it follows.
pub(crate) fn guess_type(body: &[u8], whole: bool) -> HeaderValue {
    let start = &body[..body.len().min(512)];
    let cut = |error: std::str::Utf8Error| error.error_len().is_none() && start.len() >= 4;
    let controls = |byte: &u8| *byte < b' ' && !b"\t\n\r\x0c\x1b".contains(byte);
    if body.is_empty()
        || start.iter().any(controls)
        || std::str::from_utf8(start).is_err_and(|error| !cut(error))
    {
        return BYTES;
    }
    if whole && looks_like_json(body.trim_ascii()) { JSON } else { TEXT }
}

/// Lists and objects, as handlers return them. Text in brackets rarely goes on like one.
fn looks_like_json(text: &[u8]) -> bool {
    let (Some(first), Some(last)) = (text.first(), text.last()) else { return false };
    let next = text[1..].trim_ascii_start().first().unwrap_or(&b' ');
    match (first, last) {
        (b'{', b'}') => b"\"}".contains(next),
        (b'[', b']') => b"\"[]{-tfn".contains(next) || next.is_ascii_digit(),
        _ => false,
    }
}

/// Ends the connection with this answer, and tells the client so.
pub(crate) fn close(reply: &mut HttpResponse) {
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Sets status and reason phrase. A code without a usual phrase gets an empty one.
pub(crate) fn set_status(reply: &mut HttpResponse, code: u16, phrase: &str) {
    let Ok(status) = StatusCode::from_u16(code) else { return };
    *reply.status_mut() = status;
    if phrase.is_empty() && status.canonical_reason().is_some()
        || status.canonical_reason() == Some(phrase)
    {
        return;
    }
    if let Ok(phrase) = ReasonPhrase::try_from(phrase.as_bytes()) {
        reply.extensions_mut().insert(phrase);
    }
}

/// The headers that go with every answer that does not have them.
#[derive(Clone, Debug)]
pub(crate) struct DefaultHeaders {
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The lines of the headers that replace an endpoint's.
    stamps: Vec<u8>,
}

/// The headers that replace an endpoint's, beside the request's id.
fn stamps() -> [(HeaderName, HeaderValue); 4] {
    [
        (PRAGMA, NO_CACHE),
        (CACHE_CONTROL, NO_STORE),
        (EXPIRES, LONG_AGO),
        (X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
    ]
}

impl DefaultHeaders {
    /// The `Access-Control-Allow-*` headers, if any; values that are no header values are left out with a
    /// warning. And a content type, which TorchServe does not send unless the handler set one.
    pub(crate) fn new(config: &crate::config::Cors, content_type: bool) -> Self {
        use http::header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        };
        let wanted = [
            (ACCESS_CONTROL_ALLOW_ORIGIN, &config.origin),
            (ACCESS_CONTROL_ALLOW_METHODS, &config.methods),
            (ACCESS_CONTROL_ALLOW_HEADERS, &config.headers),
        ];
        let mut headers: Vec<_> =
            content_type.then_some((CONTENT_TYPE, BYTES)).into_iter().collect();
        for (name, value) in wanted {
            let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else { continue };
            match HeaderValue::from_str(value) {
                Ok(value) => headers.push((name, value)),
                Err(_) => tracing::warn!(%name, value, "not a header value, left out"),
            }
        }
        let mut lines = Vec::new();
        for (name, value) in stamps() {
            push_header(&mut lines, &name, value.as_bytes());
        }
        Self { headers, stamps: lines }
    }

    /// Whether an endpoint's header of this name is replaced.
    pub(crate) fn replaces(&self, name: &HeaderName) -> bool {
        [X_REQUEST_ID, PRAGMA, CACHE_CONTROL, EXPIRES, X_CONTENT_TYPE_OPTIONS].contains(name)
    }

    /// Appends the lines of these headers, of the defaults those that the answer does not have. Those that
    /// replace an endpoint's are left out where it has `own` ones.
    pub(crate) fn push(&self, text: &mut Vec<u8>, own: bool, has: impl Fn(&HeaderName) -> bool) {
        if !own {
            text.extend_from_slice(&self.stamps);
        }
        for (name, value) in self.headers.iter().filter(|(name, _)| !has(name)) {
            push_header(text, name, value.as_bytes());
        }
    }
}

/// Appends a header's line, with its name as `X-Request-Id`.
pub(crate) fn push_header(text: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    let start = text.len();
    text.extend_from_slice(name.as_str().as_bytes());
    let mut first = true;
    for byte in &mut text[start..] {
        if first {
            byte.make_ascii_uppercase();
        }
        first = *byte == b'-';
    }
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Adds the headers of every answer. They replace a handler's, as in TorchServe, except the defaults.
pub(crate) fn stamp(reply: &mut HttpResponse, id: HeaderValue, defaults: &DefaultHeaders) {
    let own = reply.extensions().get::<OwnCaching>().is_some();
    let headers = reply.headers_mut();
    headers.insert(X_REQUEST_ID, id);
    if !own {
        headers.extend(stamps());
    }
    for (name, value) in &defaults.headers {
        headers.entry(name).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_without_a_type_gets_the_one_it_looks_like() {
        let json = [&b"{}"[..], b"[\n  1\n]\n", b"{\n  \"a\": null\n}", b"[null, NaN]"];
        assert!(json.iter().all(|body| guess_type(body, true) == JSON));
        let text =
            [&b"[PAD] x [SEP]"[..], b"{x}", b"0.5", b"gr\xc3\xbcn", b"\"a\"", b"[1] and [2] x"];
        assert!(text.iter().all(|body| guess_type(body, true) == TEXT));
        assert_eq!(guess_type(b"[1", false), TEXT, "a stream is read as it comes");
        let cut = [&b"a".repeat(511)[..], "\u{fc}\u{fc}".as_bytes()].concat();
        assert_eq!(guess_type(&cut, true), TEXT, "a character across the border");
        let bytes = [&b""[..], b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"a\0b", b"\xc3"];
        assert!(bytes.iter().all(|body| guess_type(body, true) == BYTES));
    }
}
