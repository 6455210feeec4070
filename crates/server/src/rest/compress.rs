//! Compresses answers where their clients ask for it and it pays.
//!
//! Only answers that are here as a whole. Those that come in pieces stay as they are: each piece is small and
//! wanted at once, and compressing it by itself saves little and delays it.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, VARY};
use jitney_net::ResponseBody;
use jitney_net::compression::{self, Coding};

use crate::respond::{HttpResponse, Uncompressed};
use crate::state::ServerState;

/// Shorter answers fit into one packet of a network as they are.
const COMPRESSED_MIN: usize = 1400;

/// Whether an answer is worth a look: nearly none is.
#[inline]
pub(super) fn is_candidate(state: &ServerState, reply: &HttpResponse) -> bool {
    reply.body().all().is_some_and(|body| body.len() >= COMPRESSED_MIN)
        && state.config.compress_answers
}

/// What a content type says about its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentKind {
    /// They get much shorter.
    Text,
    /// They may.
    Bytes,
    /// They are compressed already.
    Packed,
}

impl ContentKind {
    fn of(headers: &HeaderMap) -> Self {
        let Some(text) = headers.get(CONTENT_TYPE) else { return Self::Bytes };
        let text = text.to_str().unwrap_or("").to_ascii_lowercase();
        let mime = text.split(';').next().unwrap_or("").trim();
        let (kind, subtype) = mime.split_once('/').unwrap_or(("", mime));
        let suffix = subtype.rsplit('+').next().unwrap_or("");
        let texts = ["json", "xml", "javascript", "yaml", "x-yaml", "x-ndjson", "jsonl"];
        match (kind, subtype) {
            ("text", _) => Self::Text,
            _ if texts.contains(&suffix) => Self::Text,
            ("application", "octet-stream") | ("", _) => Self::Bytes,
            _ => Self::Packed,
        }
    }
}

/// Compresses a long answer to a client that asked with these headers.
pub(super) async fn compress(reply: &mut HttpResponse, asked: &HeaderMap) {
    let Some(body) = reply.body().all().cloned() else { return };
    if reply.extensions().get::<Uncompressed>().is_some() {
        return;
    }
    let headers = reply.headers_mut();
    let kind = ContentKind::of(headers);
    let done = headers.contains_key(CONTENT_ENCODING) || headers.contains_key(CONTENT_RANGE);
    if kind == ContentKind::Packed || done {
        return;
    }
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let Some(coding) = Coding::accepted(asked) else { return };
    if kind == ContentKind::Bytes && !compression::pays(&body) {
        return;
    }
    if let Some(shorter) = compression::compress(coding, &body).await {
        *reply.body_mut() = ResponseBody::whole(shorter);
        let name = HeaderValue::from_static(coding.name());
        reply.headers_mut().insert(CONTENT_ENCODING, name);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;
    use http::header::ACCEPT_ENCODING;

    use super::*;
    use crate::respond;

    #[test]
    fn types_that_are_packed_are_left_alone() {
        let kind = |mime: &'static str| {
            ContentKind::of(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(mime))]))
        };
        for mime in ["application/json; charset=utf-8", "Text/HTML", "image/svg+xml", "a/b+json"] {
            assert_eq!(kind(mime), ContentKind::Text, "{mime}");
        }
        for mime in ["image/jpeg", "application/zip", "video/mp4", "application/gzip", "font/woff2"]
        {
            assert_eq!(kind(mime), ContentKind::Packed, "{mime}");
        }
        assert_eq!(kind("application/octet-stream"), ContentKind::Bytes);
        assert_eq!(ContentKind::of(&HeaderMap::new()), ContentKind::Bytes);
    }

    async fn answered(body: &[u8], headers: &[(http::HeaderName, &'static str)]) -> HttpResponse {
        let mut reply = respond::plain(StatusCode::OK, Bytes::copy_from_slice(body));
        for (name, value) in headers {
            reply.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let asked = (ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        compress(&mut reply, &HeaderMap::from_iter([asked])).await;
        reply
    }

    #[tokio::test]
    async fn a_handlers_own_coding_is_left_alone() {
        let body = vec![b'a'; 10_000];
        let reply = answered(&body, &[]).await;
        assert_eq!(reply.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(reply.headers()[VARY], "Accept-Encoding");
        assert!(reply.body().here().len() < 1000);
        for own in [(CONTENT_ENCODING, "br"), (CONTENT_TYPE, "image/jpeg")] {
            let reply = answered(&body, std::slice::from_ref(&own)).await;
            assert_eq!(reply.body().here(), &body);
            assert!(!reply.headers().contains_key(VARY));
        }
    }
}
