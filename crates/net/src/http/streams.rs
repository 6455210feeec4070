//! The same requests as over HTTP/1.1, as streams of HTTP/2: many at a time on one connection. The first bytes
//! of a connection tell which of the two it is.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper::body::{Body, Incoming};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::head::is_bare;
use super::http1::HEAD_BYTES_MAX;
use super::http2::{self, ConnectionAge, Http2Limits, PREFACE};
use super::service::{HeadError, HttpClient, HttpService};
use crate::connection::{ListenerSignal, Peer};
use crate::incoming_body::RequestBody;
use crate::outgoing_body::{OpenStream, ResponseBody};

/// So much of it is not the beginning of anything else.
const PREFACE_MIN: usize = "PRI ".len();
/// Where it cannot be HTTP/1 any more.
const PREFACE_START: usize = "PRI * HTTP/2.0".len();

/// Requests of a connection at a time.
const STREAMS_MAX: u32 = 128;
/// Headers of a request, as many as over HTTP/1.1.
const HEADERS_MAX: usize = 100;

/// Whether a connection that begins so speaks HTTP/2.
pub(super) fn begins(ahead: &[u8]) -> bool {
    let known = ahead.len().min(PREFACE_START);
    known >= PREFACE_MIN && PREFACE.starts_with(&ahead[..known])
}

/// Serves a connection, of which `ahead` was read before, until it ends or its listener does.
pub(super) async fn serve<A: HttpService, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    ahead: Bytes,
    service: &Arc<A>,
    peer: &Arc<Peer>,
    signals: &mut watch::Receiver<ListenerSignal>,
) {
    let answer = |request: Request<Incoming>| {
        let (service, open) = (Arc::clone(service), OpenStream::new(peer));
        // hyper moves it several times before it runs.
        Box::pin(async move { Ok::<_, Infallible>(answer(&*service, open, request).await) })
    };
    let head_bytes = u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX);
    let limits = Http2Limits { streams: STREAMS_MAX, head_bytes, age: ConnectionAge::default() };
    http2::serve(stream, ahead, peer, limits, signals, answer).await;
}

/// Answers a request, whatever becomes of it. This future is dropped when the client gives the request up.
async fn answer<A: HttpService>(
    service: &A,
    open: OpenStream,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let (peer, rules) = (&open.0, service.rules());
    let (mut parts, body) = request.into_parts();
    let body = read_head(&mut parts).and_then(|()| {
        let waits = !body.is_end_stream();
        let head = waits.then(|| peer.hold_head(&parts.headers)).transpose();
        let head = head.map_err(|_| HeadError::NoRoom)?.flatten();
        let body = RequestBody::of_stream(body, rules.patience, head);
        Ok(rules.coded(&mut parts.headers, body))
    });
    // Only HTTP/1 upgrades.
    let upgrade = &OnceLock::new();
    let answered = service.answer(&HttpClient { peer, upgrade }, &parts, body).await;
    if answered.last {
        peer.open.ask_to_close();
    }
    let mut reply = answered.stamped(rules);
    // Only the stream ends.
    reply.headers_mut().remove(CONNECTION);
    drop_body(&parts.method, &mut reply);
    reply.body_mut().keep_open(open);
    reply
}

/// Drops the body where none may follow, which hyper only does over HTTP/1.
fn drop_body(method: &Method, reply: &mut Response<ResponseBody>) {
    let head = method == Method::HEAD;
    if !head && !is_bare(reply.status()) {
        return;
    }
    let body = std::mem::replace(reply.body_mut(), ResponseBody::whole(Bytes::new()));
    if let (true, Some(length)) = (head, body.size_hint().exact()) {
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Writes the head as HTTP/1.1 has it: the authority as `Host`, the target as a path, cookies as one header.
///
/// # Errors
/// There are too many headers.
fn read_head(parts: &mut Parts) -> Result<(), HeadError> {
    let Parts { uri, headers, .. } = parts;
    let authority = uri.authority().and_then(|it| HeaderValue::from_str(it.as_str()).ok());
    if let Some(authority) = authority
        && headers.get(HOST) != Some(&authority)
    {
        // Where there was another one, two are too many.
        headers.append(HOST, authority);
    }
    let path = uri.path_and_query().cloned();
    *uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    join_cookies(headers);
    if headers.len() > HEADERS_MAX {
        return Err(HeadError::TooManyHeaders(HEADERS_MAX));
    }
    Ok(())
}

/// HTTP/2 may send each cookie by itself.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        for end in 0..PREFACE.len() {
            assert_eq!(begins(&PREFACE[..end]), end >= PREFACE_MIN, "{end}");
        }
        assert!(begins(&[PREFACE, b"and frames"].concat()));
        for other in ["", "POST / HTTP/1.1\r\n", "PRI / HTTP/1.1\r\n", "PRIVATE", "GET "] {
            assert!(!begins(other.as_bytes()), "{other}");
        }
    }

    fn read(uri: &str, headers: &[(&'static str, &str)]) -> Result<Parts, HeadError> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        read_head(&mut parts).map(|()| parts)
    }

    #[test]
    fn a_head_reads_as_over_http_1() {
        let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")];
        let parts = read("https://example.com:8/a%20b?c=d", &cookies).unwrap();
        assert_eq!(parts.uri, "/a%20b?c=d");
        assert_eq!(parts.headers["host"], "example.com:8");
        let cookies: Vec<_> = parts.headers.get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn what_has_no_body_has_the_length_of_one() {
        let answered = |method: &Method, status| {
            let mut reply = Response::new(ResponseBody::whole(Bytes::from_static(b"abc")));
            *reply.status_mut() = status;
            drop_body(method, &mut reply);
            let length = reply.headers().get(CONTENT_LENGTH).cloned();
            (length, reply.body().here().len())
        };
        let length = Some(HeaderValue::from(3));
        assert_eq!(answered(&Method::HEAD, StatusCode::OK), (length, 0));
        assert_eq!(answered(&Method::GET, StatusCode::NO_CONTENT), (None, 0));
        assert_eq!(answered(&Method::GET, StatusCode::OK), (None, 3));
    }

    #[test]
    fn two_names_of_the_server_stay_two() {
        let hosts = |host| {
            let parts = read("http://one/", &[("host", host)]).unwrap();
            parts.headers.get_all(HOST).iter().count()
        };
        assert_eq!([hosts("one"), hosts("two")], [1, 2]);
    }

    #[test]
    fn there_may_be_as_many_headers_as_over_http_1() {
        let many = vec![("x-one", "1"); HEADERS_MAX];
        assert!(read("/", &many).is_ok());
        let error = read("http://one/", &many).unwrap_err();
        assert_eq!(error, HeadError::TooManyHeaders(HEADERS_MAX));
    }
}
