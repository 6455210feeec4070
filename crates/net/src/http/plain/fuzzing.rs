//! What must hold for every plain request, whatever its bytes: hyper reads the same request from them.
//! `fuzz/` looks for bytes for which it does not; the tests try those of `fuzz/corpus` again.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jitney_memory::admission::Admission;
use tokio::io::AsyncWriteExt;

use super::request::{ParsedRequest, PlainRequest};
use crate::incoming_body::{LARGE, RequestBody};
use crate::outgoing_body::ResponseBody;

/// Room for the answer, which nobody reads.
const ANSWER: usize = 1024;
/// Larger bodies are not completed.
const COMPLETED: u64 = 8 * LARGE;
/// Longer requests are not looked at piece by piece.
const SHORT: usize = 512;

/// Reads the bytes as a plain request, and the same bytes with hyper. What is missing of a large body comes as zeros.
pub fn plain_requests(bytes: &[u8]) {
    let mut bytes = BytesMut::from(bytes);
    let (request, used) = match PlainRequest::parse(&bytes.clone().freeze()) {
        ParsedRequest::Plain(request, used) => {
            assert!(used <= bytes.len() && request.body.len() <= used);
            (request, used)
        }
        ParsedRequest::Large(mut request, length) if length <= COMPLETED => {
            let head = bytes.len() - request.body.len();
            bytes.resize(head + length as usize, 0);
            request.body = bytes.clone().freeze().slice(head..);
            (request, bytes.len())
        }
        ParsedRequest::Large(..) | ParsedRequest::Incomplete | ParsedRequest::Other => return,
    };
    let bytes = bytes.freeze();
    let large = request.body.len() as u64 > LARGE;
    for end in 0..used.min(SHORT) {
        let begun = PlainRequest::parse(&bytes.slice(..end));
        let fits = matches!(begun, ParsedRequest::Incomplete)
            || large && matches!(begun, ParsedRequest::Large(..));
        assert!(fits, "decided by {end} of {used} bytes");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (parts, body) = runtime
        .block_on(read_with_hyper(&bytes[..used]))
        .unwrap_or_else(|| panic!("hyper reads no request: {bytes:?}"));
    assert_eq!((&parts.method, &parts.uri), (&request.parts.method, &request.parts.uri));
    assert_eq!((&parts.headers, &body), (&request.parts.headers, &request.body));
}

/// The one request that hyper reads.
async fn read_with_hyper(bytes: &[u8]) -> Option<(Parts, Bytes)> {
    let seen = Arc::new(Mutex::new(None));
    let (mut client, server) = tokio::io::duplex(bytes.len() + ANSWER);
    client.write_all(bytes).await.expect("it has room");
    client.shutdown().await.expect("it ends");
    let service = service_fn(|request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let admission = Admission::new(Default::default());
            if let Ok(body) = RequestBody::new(body, false).read(u64::MAX, &admission, None).await {
                *seen.lock().expect("nobody panics") = Some((parts, body.into_whole()));
            }
            Ok::<_, Infallible>(Response::new(ResponseBody::whole(Bytes::new())))
        }
    });
    // The answer is read by nobody.
    let _ = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(server), service)
        .await;
    drop(client);
    seen.lock().expect("nobody panics").take()
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/plain_requests");
    let (mut plain, mut large) = (0, 0);
    for file in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        plain_requests(&bytes);
        let parsed = PlainRequest::parse(&Bytes::from(bytes));
        plain += usize::from(matches!(parsed, ParsedRequest::Plain(..)));
        large += usize::from(matches!(parsed, ParsedRequest::Large(..)));
    }
    assert!(plain >= 3 && large >= 1, "only {plain} are plain, and {large} large");
}
