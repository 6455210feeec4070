//! Writing the head of an answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::HeaderName;
use http::{StatusCode, response};
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use jitney_net::ResponseBody;
use jitney_net::push_number;
use jitney_net::request_id::{X_REQUEST_ID, XRequestId};
use tokio::time::Instant;

use crate::respond::{DefaultHeaders, OwnCaching, push_header};

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
        let bare = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        match body.size_hint().exact() {
            _ if bare || status.is_informational() => Self::None,
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
    use http::HeaderValue;
    use http::header::{CONTENT_TYPE, PRAGMA};

    use super::*;
    use crate::config::Cors;
    use crate::respond::{self, HttpResponse};

    fn text_of(reply: HttpResponse, content_type: bool) -> String {
        let defaults = DefaultHeaders::new(&Cors::default(), content_type);
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
        let mut reply = respond::plain(StatusCode::OK, Bytes::from_static(b"abc"));
        reply.headers_mut().append("x-own-name", HeaderValue::from_static("1"));
        reply.headers_mut().insert(PRAGMA, HeaderValue::from_static("mine"));
        let text = text_of(reply, true);
        let (start, rest) = text.split_once("X-Request-Id: ").unwrap();
        assert_eq!(start, "HTTP/1.1 200 OK\r\nX-Own-Name: 1\r\n");
        let expected = "\r\nPragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\n\
            Expires: Thu, 01 Jan 1970 00:00:00 UTC\r\nX-Content-Type-Options: nosniff\r\n\
            Content-Type: application/octet-stream\r\nContent-Length: 3\r\nDate: now\r\n\r\n";
        assert_eq!(&rest[36..], expected);
        let mut typed = respond::plain(StatusCode::OK, Bytes::new());
        typed.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let text = text_of(typed, true);
        assert!(text.contains("Content-Type: text/plain\r\n") && !text.contains("octet"), "{text}");
        assert!(text.contains("Content-Length: 0\r\n"), "{text}");
    }

    #[test]
    fn a_status_has_its_phrase_and_some_have_no_body() {
        let start = |code, phrase| {
            let mut reply = respond::plain(StatusCode::OK, Bytes::from_static(b"abc"));
            respond::set_status(&mut reply, code, phrase);
            let text = text_of(reply, false);
            (text.lines().next().unwrap().to_owned(), text.contains("Content-Length"))
        };
        assert_eq!(start(404, ""), ("HTTP/1.1 404 Not Found".to_owned(), true));
        assert_eq!(start(200, "Fine"), ("HTTP/1.1 200 Fine".to_owned(), true));
        assert_eq!(start(799, ""), ("HTTP/1.1 799 ".to_owned(), true));
        assert_eq!(start(204, ""), ("HTTP/1.1 204 No Content".to_owned(), false));
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
