//! Reading a plain request.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use crate::incoming_body::LARGE;

/// Requests with more headers are not plain.
const HEADERS_MAX: usize = 48;
/// Longer numbers may be larger than a body can be.
const LENGTH_DIGITS_MAX: usize = 15;
/// What follows the path in the first line.
const VERSION: &str = " HTTP/1.1";

/// A request that is here as a whole.
pub(super) struct PlainRequest {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    /// Whether the client wants the connection to end with the answer.
    pub(super) closes: bool,
}

/// What bytes are the beginning of.
pub(super) enum ParsedRequest {
    /// A request, and how many bytes it has.
    Plain(PlainRequest, usize),
    /// One with a large body of this length, of which only the beginning is here.
    Large(PlainRequest, u64),
    /// Something that may become one.
    Incomplete,
    /// Anything else.
    Other,
}

impl PlainRequest {
    pub(super) fn parse(bytes: &Bytes) -> ParsedRequest {
        let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut []);
        let begin = match head.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(begin)) if bytes[..begin].ends_with(b"\r\n") => begin,
            Ok(httparse::Status::Complete(_)) => return ParsedRequest::Other,
            Ok(httparse::Status::Partial) => return ParsedRequest::Incomplete,
            Err(_) => return ParsedRequest::Other,
        };
        let Some((parts, length, closes)) = read_head(bytes, &head) else {
            return ParsedRequest::Other;
        };
        let here = (bytes.len() - begin) as u64;
        if here < length {
            if length <= LARGE {
                return ParsedRequest::Incomplete;
            }
            return ParsedRequest::Large(
                Self { parts, body: bytes.slice(begin..), closes },
                length,
            );
        }
        let end = begin + length as usize;
        let body = bytes.slice(begin..end);
        ParsedRequest::Plain(Self { parts, body, closes }, end)
    }
}

/// The head, the length of the body, and whether the connection ends; nothing if the request is not plain.
fn read_head(bytes: &Bytes, head: &httparse::Request<'_, '_>) -> Option<(Parts, u64, bool)> {
    let method = Method::from_bytes(head.method?.as_bytes()).ok()?;
    let path = head.path.filter(|path| path.starts_with('/'))?;
    if head.version != Some(1) || [Method::HEAD, Method::CONNECT].contains(&method) {
        return None;
    }
    if !ends_with_cr(bytes, path.as_bytes(), VERSION.len()) {
        return None;
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.uri = Uri::from_maybe_shared(bytes.slice_ref(path.as_bytes())).ok()?;
    parts.method = method;
    parts.headers.reserve(head.headers.len());
    let (mut length, mut closes) = (None, false);
    for field in head.headers.iter() {
        if !ends_with_cr(bytes, field.value, 0) {
            return None;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        if !may_matter(field.name) {
            // Most headers only pass.
        } else if name == CONTENT_LENGTH {
            if length.replace(read_length(field.value)?).is_some() {
                return None;
            }
        } else if name == CONNECTION {
            closes = field.value.eq_ignore_ascii_case(b"close");
            if !closes && !field.value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if [CONTENT_ENCODING, TRANSFER_ENCODING, EXPECT, UPGRADE, TE, TRAILER]
            .contains(&name)
        {
            return None;
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        parts.headers.append(name, value);
    }
    Some((parts, length.unwrap_or(0), closes))
}

/// Whether CR comes so many bytes behind a part: a line that ends otherwise, with a bare LF or behind space, is not
/// plain.
fn ends_with_cr(bytes: &Bytes, part: &[u8], behind: usize) -> bool {
    let end = part.as_ptr_range().end.addr().wrapping_sub(bytes.as_ptr().addr());
    bytes.get(end.wrapping_add(behind)) == Some(&b'\r')
}

/// Whether a header's name begins like one of those that decide.
fn may_matter(name: &str) -> bool {
    matches!(name.as_bytes().first(), Some(b'c' | b'C' | b't' | b'T' | b'e' | b'E' | b'u' | b'U'))
}

/// The length of a body, in no more digits than a number has for certain.
fn read_length(text: &[u8]) -> Option<u64> {
    let digits = (1..=LENGTH_DIGITS_MAX).contains(&text.len());
    let digits = digits && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ParsedRequest {
        PlainRequest::parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_plain_request_is_read_and_the_rest_left() {
        let text = "PUT /a%20b?c=d HTTP/1.1\r\nHost: t\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 3\r\n\r\nabcGET";
        let ParsedRequest::Plain(request, used) = parse(text) else { panic!("not plain") };
        let PlainRequest { parts, body, closes } = request;
        assert_eq!((&body[..], &text[used..], closes), (&b"abc"[..], "GET", false));
        assert_eq!((parts.method, parts.uri.to_string()), (Method::PUT, "/a%20b?c=d".to_owned()));
        assert_eq!(parts.headers["host"], "t");
        assert_eq!(parts.headers.get_all("X-One").iter().count(), 2);
    }

    #[test]
    fn the_end_of_the_connection_is_the_clients_to_ask_for() {
        let closes = |value: &str| match parse(&format!(
            "GET / HTTP/1.1\r\nHost: t\r\nConnection: {value}\r\n\r\n"
        )) {
            ParsedRequest::Plain(request, _) => Some(request.closes),
            ParsedRequest::Large(..) | ParsedRequest::Incomplete | ParsedRequest::Other => None,
        };
        let seen = ["close", "Close", "keep-alive", "upgrade", "close, TE"].map(closes);
        assert_eq!(seen, [Some(true), Some(true), Some(false), None, None]);
    }

    #[test]
    fn what_has_not_come_may_still_be_plain() {
        let text = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..text.len() {
            assert!(matches!(parse(&text[..end]), ParsedRequest::Incomplete), "{end}");
        }
        assert!(matches!(parse(text), ParsedRequest::Plain(..)));
    }

    #[test]
    fn a_large_body_is_begun_with_what_is_here() {
        for length in ["16385", "123456789012345"] {
            let text = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\nab");
            let ParsedRequest::Large(request, said) = parse(&text) else { panic!("{length}") };
            assert_eq!((&request.body[..], said.to_string()), (&b"ab"[..], length.to_owned()));
            assert!(matches!(parse(&text[..text.len() - 3]), ParsedRequest::Incomplete));
        }
        let whole =
            format!("POST / HTTP/1.1\r\nContent-Length: 16385\r\n\r\n{}", "a".repeat(16386));
        assert!(matches!(parse(&whole), ParsedRequest::Plain(_, used) if used == whole.len() - 1));
    }

    #[test]
    fn everything_else_is_for_hyper() {
        for start in [
            "HEAD / HTTP/1.1",
            "GET / HTTP/1.0",
            "GET http://h/ HTTP/1.1",
            "GET /\u{7f} x",
            "nonsense\n",
        ] {
            assert!(
                matches!(parse(&format!("{start}\r\nHost: t\r\n\r\n")), ParsedRequest::Other),
                "{start}"
            );
        }
        for header in [
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Upgrade: jitney-handle/1",
            "Content-Length: 1234567890123456",
            "Content-Length: +1",
            "Content-Length: ",
            "Content-Length: 1\r\nContent-Length: 1",
            "Trailer: x",
            "te: trailers",
            "CONTENT-Encoding: gzip",
            "X Y: 1",
            "X: 1\nY: 2",
            "X: 1 ",
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: t\r\n{header}\r\n\r\n");
            assert!(matches!(parse(&text), ParsedRequest::Other), "{header}");
        }
        for text in ["GET / HTTP/1.1\nHost: t\r\n\r\n", "GET / HTTP/1.1\r\nHost: t\r\n\n"] {
            assert!(matches!(parse(text), ParsedRequest::Other), "{text}");
        }
        let empty = "GET / HTTP/1.1\r\nHost: t\r\nX:\r\nY: \r\n\r\n";
        assert!(matches!(parse(empty), ParsedRequest::Plain(..)));
    }
}
