//! The head of an answer: the headers that every answer has, and how they are written where hyper does not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONNECTION, HeaderName};
use http::{HeaderValue, Response, StatusCode, response};
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use tokio::time::Instant;

use crate::numbers::push_number;
use crate::outgoing_body::ResponseBody;
use crate::request_id::{X_REQUEST_ID, XRequestId};

/// Marks an answer that says itself how it may be kept, such as a file of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct OwnCaching;

/// Ends the connection with this answer, and tells the client so.
pub fn close(reply: &mut Response<ResponseBody>) {
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Whether an answer with this status has no body, whatever it would be.
pub(super) fn is_bare(status: StatusCode) -> bool {
    [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

type Header = (HeaderName, HeaderValue);

/// The headers that go with every answer.
#[derive(Clone, Debug)]
pub struct DefaultHeaders {
    /// Those that replace an endpoint's, beside the request's id.
    always: Vec<Header>,
    /// The same as they are written.
    text: Vec<u8>,
    /// Those of answers that do not have them.
    missing: Vec<Header>,
}

impl DefaultHeaders {
    /// The headers that replace an endpoint's, unless it says itself how its answer may be kept, and those
    /// that answers get where they do not have them.
    pub fn new(always: Vec<Header>, missing: Vec<Header>) -> Self {
        let mut text = Vec::new();
        for (name, value) in &always {
            push_header(&mut text, name, value.as_bytes());
        }
        Self { always, text, missing }
    }

    /// Adds them to an answer, with the id of its request.
    pub(super) fn stamp(&self, reply: &mut Response<ResponseBody>, id: HeaderValue) {
        let own = reply.extensions().get::<OwnCaching>().is_some();
        let headers = reply.headers_mut();
        headers.insert(X_REQUEST_ID, id);
        if !own {
            headers.extend(self.always.iter().cloned());
        }
        for (name, value) in &self.missing {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }

    /// Whether an endpoint's header of this name is replaced.
    fn replaces(&self, name: &HeaderName) -> bool {
        *name == X_REQUEST_ID || self.always.iter().any(|(replaced, _)| replaced == name)
    }

    /// Appends their lines. Those that replace an endpoint's are left out where it has `own` ones.
    fn push(&self, text: &mut Vec<u8>, own: bool, has: impl Fn(&HeaderName) -> bool) {
        if !own {
            text.extend_from_slice(&self.text);
        }
        for (name, value) in self.missing.iter().filter(|(name, _)| !has(name)) {
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

/// How a client knows where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Its length is known.
    Length(u64),
    /// It comes in chunks.
    Chunked,
    /// There is none.
    None,
}

impl Framing {
    pub(super) fn of(status: StatusCode, body: &ResponseBody) -> Self {
        match body.size_hint().exact() {
            _ if is_bare(status) || status.is_informational() => Self::None,
            Some(length) => Self::Length(length),
            None => Self::Chunked,
        }
    }
}

/// The head of an answer.
pub(super) struct AnswerHead<'a> {
    pub(super) head: &'a response::Parts,
    pub(super) id: &'a XRequestId,
    pub(super) defaults: &'a DefaultHeaders,
    pub(super) framing: Framing,
}

impl AnswerHead<'_> {
    /// Appends it, with the headers of every answer in place of those that the endpoint set.
    pub(super) fn push(&self, text: &mut Vec<u8>, date: &str) {
        let response::Parts { status, headers, extensions, .. } = self.head;
        text.extend_from_slice(b"HTTP/1.1 ");
        text.extend_from_slice(status.as_str().as_bytes());
        text.push(b' ');
        let own = extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        let usual = || status.canonical_reason().unwrap_or_default().as_bytes();
        text.extend_from_slice(own.unwrap_or_else(usual));
        text.extend_from_slice(b"\r\n");
        let own = extensions.get::<OwnCaching>().is_some();
        for (name, value) in headers {
            if own || !self.defaults.replaces(name) {
                push_header(text, name, value.as_bytes());
            }
        }
        push_header(text, &X_REQUEST_ID, self.id.bytes());
        self.defaults
            .push(text, own, |name: &HeaderName| headers.keys().any(|known| known == name));
        match self.framing {
            Framing::Length(length) => {
                text.extend_from_slice(b"Content-Length: ");
                push_number(text, length);
                text.extend_from_slice(b"\r\n");
            }
            Framing::Chunked => text.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framing::None => {}
        }
        text.extend_from_slice(b"Date: ");
        text.extend_from_slice(date.as_bytes());
        text.extend_from_slice(b"\r\n\r\n");
    }
}

/// The text of the `Date` header, made once a second.
#[derive(Debug, Default)]
pub(super) struct DateText {
    text: String,
    until: Option<Instant>,
}

impl DateText {
    pub(super) fn at(&mut self, now: Instant) -> &str {
        if self.until.is_none_or(|until| now >= until) {
            let date = SystemTime::now();
            self.text = httpdate::fmt_http_date(date);
            let past = date.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
            self.until = Some(now + Duration::from_secs(1) - Duration::from_nanos(past.into()));
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::header::{CACHE_CONTROL, CONTENT_TYPE, PRAGMA};

    use super::*;

    fn reply(status: u16) -> Response<ResponseBody> {
        let mut reply = Response::new(ResponseBody::whole(Bytes::from_static(b"abc")));
        *reply.status_mut() = StatusCode::from_u16(status).unwrap();
        reply
    }

    fn text_of(reply: Response<ResponseBody>) -> String {
        let text = HeaderValue::from_static;
        let always = vec![(PRAGMA, text("no-cache")), (CACHE_CONTROL, text("no-store"))];
        let defaults = DefaultHeaders::new(always, vec![(CONTENT_TYPE, text("image/png"))]);
        let (head, body) = reply.into_parts();
        let framing = Framing::of(head.status, &body);
        let mut text = Vec::new();
        let id = &XRequestId::fresh();
        let answer = AnswerHead { head: &head, id, defaults: &defaults, framing };
        answer.push(&mut text, "now");
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_answer_has_the_headers_that_hyper_would_write() {
        let mut own = reply(200);
        own.headers_mut().append("x-own-name", HeaderValue::from_static("1"));
        own.headers_mut().insert(PRAGMA, HeaderValue::from_static("mine"));
        let text = text_of(own);
        let (start, rest) = text.split_once("X-Request-Id: ").unwrap();
        assert_eq!(start, "HTTP/1.1 200 OK\r\nX-Own-Name: 1\r\n");
        let expected = "\r\nPragma: no-cache\r\nCache-Control: no-store\r\nContent-Type: image/png\r\n\
            Content-Length: 3\r\nDate: now\r\n\r\n";
        assert_eq!(&rest[36..], expected);
        let mut typed = reply(200);
        *typed.body_mut() = ResponseBody::whole(Bytes::new());
        typed.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let text = text_of(typed);
        assert!(text.contains("Content-Type: text/plain\r\n") && !text.contains("image"), "{text}");
        assert!(text.contains("Content-Length: 0\r\n"), "{text}");
    }

    #[test]
    fn an_answer_may_say_itself_how_it_is_kept() {
        let mut own = reply(200);
        own.headers_mut().insert(PRAGMA, HeaderValue::from_static("mine"));
        own.extensions_mut().insert(OwnCaching);
        let text = text_of(own);
        assert!(text.contains("Pragma: mine\r\n") && !text.contains("no-store"), "{text}");
    }

    #[test]
    fn a_status_has_its_phrase_and_some_have_no_body() {
        let start = |reply| {
            let text = text_of(reply);
            (text.lines().next().unwrap().to_owned(), text.contains("Content-Length"))
        };
        assert_eq!(start(reply(404)), ("HTTP/1.1 404 Not Found".to_owned(), true));
        assert_eq!(start(reply(799)), ("HTTP/1.1 799 ".to_owned(), true));
        assert_eq!(start(reply(204)), ("HTTP/1.1 204 No Content".to_owned(), false));
        let mut phrased = reply(200);
        phrased.extensions_mut().insert(ReasonPhrase::from_static(b"Fine"));
        assert_eq!(start(phrased), ("HTTP/1.1 200 Fine".to_owned(), true));
    }

    #[test]
    fn the_date_is_made_anew_with_the_second() {
        let (mut date, now) = (DateText::default(), Instant::now());
        let first = date.at(now).to_owned();
        assert!(first.ends_with(" GMT"), "{first}");
        let until = date.until.unwrap();
        assert!(until > now && until <= now + Duration::from_secs(1));
        date.text.clear();
        assert_eq!(date.at(now), "");
        assert_ne!(date.at(until), "");
    }
}
