//! How HTTP answers are written: JSON in TorchServe's form, and the headers of every answer.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, CACHE_CONTROL, CONTENT_TYPE, EXPIRES, PRAGMA, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use hyper::ext::ReasonPhrase;
use jitney_net::ResponseBody;
use jitney_net::compression::Coding;
use jitney_net::http::{DefaultHeaders, close};
use serde::Serialize;

use crate::config::Cors;
use crate::errors::{ErrorCode, Problem};

/// An answer; its body is known, unless the model is still making it.
pub(crate) type HttpResponse = Response<ResponseBody>;

/// Marks an answer whose clients say that they take compressed ones and do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncompressed;

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError<'a>>,
    /// By what the log knows the request.
    #[serde(rename = "requestId", skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

/// A field of the request that does not fit.
#[derive(Serialize)]
struct FieldError<'a> {
    field: &'a str,
    message: &'a str,
}

impl<'a> ErrorBody<'a> {
    fn of(problem: &'a Problem) -> Self {
        let (kind, reason) = (problem.code.row().kind, problem.reason.as_deref());
        let message = &problem.message;
        let (error, request_id) = (None, None);
        let field = |(field, message): &'a (String, String)| FieldError { field, message };
        let errors = problem.fields.iter().map(field).collect();
        Self { code: problem.status, r#type: kind, message, reason, error, errors, request_id }
    }
}

/// A failure as `{code, type, message}`, with `reason` where that says more than the message, with `errors` where
/// fields of the request do not fit, with `Retry-After` where that makes sense, and with the id of the request where
/// one is given.
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
    if problem.code == ErrorCode::UnknownKey {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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

/// The headers of every answer: those that replace a handler's, as in TorchServe, and where the answer has
/// none the `Access-Control-Allow-*` headers, if any, and a content type, which TorchServe does not send unless
/// the handler set one. Values that are no header values are left out with a warning.
pub(crate) fn default_headers(cors: &Cors, content_type: bool) -> DefaultHeaders {
    let always = [
        (PRAGMA, NO_CACHE),
        (CACHE_CONTROL, NO_STORE),
        (EXPIRES, LONG_AGO),
        (X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
    ];
    let mut missing: Vec<_> = content_type.then_some((CONTENT_TYPE, BYTES)).into_iter().collect();
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_ORIGIN, &cors.origin),
        (ACCESS_CONTROL_ALLOW_METHODS, &cors.methods),
        (ACCESS_CONTROL_ALLOW_HEADERS, &cors.headers),
    ] {
        let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else { continue };
        match HeaderValue::from_str(value) {
            Ok(value) => missing.push((name, value)),
            Err(_) => tracing::warn!(%name, value, "not a header value, left out"),
        }
    }
    DefaultHeaders::new(always.into(), missing)
}

/// What a client is told whose bytes are no HTTP, where HTTP has this status for them.
pub(crate) fn malformed(status: u16) -> HttpResponse {
    let message = match status {
        414 => "The request's path is too long.",
        431 => "The request's head is too large.",
        _ => "Invalid HTTP message.",
    };
    let mut reply =
        problem(&Problem { status, ..Problem::new(ErrorCode::InvalidHead, message) }, None);
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_http_are_explained() {
        for (status, message) in [
            (400, "Invalid HTTP message."),
            (414, "The request's path is too long."),
            (431, "The request's head is too large."),
        ] {
            let reply = malformed(status);
            let expected = format!(
                "{{\n  \"code\": {status},\n  \"type\": \"BadRequestException\",\n  \"message\": \"{message}\"\n}}\n"
            );
            assert_eq!(reply.body().here(), &expected);
            let headers: Vec<_> =
                reply.headers().iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
            let expected = [
                "content-type: \"application/json\"",
                "connection: \"close\"",
                "x-content-type-options: \"nosniff\"",
            ];
            assert_eq!(headers, expected);
        }
    }

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
