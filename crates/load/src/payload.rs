//! A request, rendered once and sent many times.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

use crate::dial::LoadProtocol;
use crate::load_url::LoadUrl;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("jitney-bench/", env!("CARGO_PKG_VERSION")));

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct PayloadDraft {
    /// The method.
    pub method: String,
    /// Further headers, `name: value`; they win over those that are made.
    pub headers: Vec<String>,
    /// The type of the body, if it has one.
    pub content_type: Option<String>,
    /// The body; the message without its frame for gRPC.
    pub body: Bytes,
}

/// A request as it is sent.
#[derive(Clone, Debug)]
pub struct RequestPayload {
    /// Head and body for HTTP/1.1.
    pub(crate) bytes: Bytes,
    /// The head for HTTP/2.
    pub(crate) head: Request<()>,
    /// The body for HTTP/2, with its frame for gRPC.
    pub(crate) body: Bytes,
}

impl PayloadDraft {
    /// Renders it, for a path with its query.
    ///
    /// # Errors
    /// The method, the path or a header is malformed; the sentence says which.
    pub fn render(&self, url: &LoadUrl, path: &str) -> Result<RequestPayload, String> {
        let method = Method::from_bytes(self.method.as_bytes());
        let method = method.map_err(|_| format!("{:?} is not a method of HTTP", self.method))?;
        let scheme = if url.is_secure() { "https" } else { "http" };
        let uri = Uri::try_from(format!("{scheme}://{}{path}", url.authority()));
        let uri = uri.map_err(|error| format!("{path:?} is not a path: {error}"))?;
        let body = match url.protocol {
            LoadProtocol::Http1 | LoadProtocol::Http2 => self.body.clone(),
            LoadProtocol::Grpc => framed(&self.body),
        };
        let headers = self.headers(url, &method, body.len())?;
        let bytes = match url.protocol {
            LoadProtocol::Http1 => http1(&method, path, &headers, &body),
            LoadProtocol::Http2 | LoadProtocol::Grpc => Bytes::new(),
        };
        let mut head = Request::new(());
        *head.method_mut() = method;
        *head.uri_mut() = uri;
        *head.headers_mut() = headers;
        Ok(RequestPayload { bytes, head, body })
    }

    fn headers(&self, url: &LoadUrl, method: &Method, length: usize) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        if url.protocol == LoadProtocol::Http1 {
            headers.insert(HOST, header_value(&url.authority())?);
        }
        headers.insert(USER_AGENT, AGENT);
        if url.protocol == LoadProtocol::Grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        } else {
            headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
            if length > 0 || *method != Method::GET {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        if let Some(text) = &self.content_type {
            headers.insert(CONTENT_TYPE, header_value(text)?);
        }
        let mut own = HeaderMap::new();
        for text in &self.headers {
            let wrong = || format!("{text:?} is not a header; write it like 'name: value'");
            let (name, value) = text.split_once(':').ok_or_else(wrong)?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
            own.append(name, header_value(value.trim())?);
        }
        for name in own.keys() {
            headers.remove(name);
        }
        headers.extend(own);
        Ok(headers)
    }
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("{text:?} cannot be the value of a header"))
}

fn http1(method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512 + body.len());
    bytes.put_slice(format!("{method} {path} HTTP/1.1\r\n").as_bytes());
    for (name, value) in headers {
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_slice(b": ");
        bytes.put_slice(value.as_bytes());
        bytes.put_slice(b"\r\n");
    }
    bytes.put_slice(b"\r\n");
    bytes.put_slice(body);
    bytes.freeze()
}

/// A gRPC message with its frame: not compressed, and its length.
fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(scheme: &str, headers: &[&str]) -> Result<RequestPayload, String> {
        let mut url: LoadUrl =
            format!("{scheme}://host:1/predictions/m?x=1").parse().expect("a URL");
        if scheme == "https" {
            url.protocol = LoadProtocol::Http2;
        }
        let draft = PayloadDraft {
            method: "POST".to_owned(),
            headers: headers.iter().map(|&header| header.to_owned()).collect(),
            content_type: Some("application/json".to_owned()),
            body: Bytes::from_static(b"[1]"),
        };
        draft.render(&url, &url.path)
    }

    #[test]
    fn a_request_of_http1_is_rendered_whole() {
        let bytes = payload("http", &[]).expect("a request").bytes;
        let text = std::str::from_utf8(&bytes).expect("text");
        assert!(text.starts_with("POST /predictions/m?x=1 HTTP/1.1\r\n"), "{text}");
        for part in
            ["host: host:1\r\n", "content-length: 3\r\n", "content-type: application/json\r\n"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.ends_with("\r\n\r\n[1]"), "{text}");
    }

    #[test]
    fn given_headers_win_over_made_ones_and_may_repeat() {
        let given = ["Content-Type: text/plain", "x-a: 1", "X-A:2"];
        let head = payload("https", &given).expect("a request").head;
        let all = |name: &str| head.headers().get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(all("content-type"), ["text/plain"]);
        assert_eq!(all("x-a"), ["1", "2"]);
        assert!(all("host").is_empty(), "HTTP/2 has :authority");
        assert_eq!(head.uri(), "https://host:1/predictions/m?x=1");
        for wrong in ["x", "a b: 1", "x: \u{1}"] {
            assert!(payload("http", &[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_of_grpc_is_framed() {
        let payload = payload("grpc", &[]).expect("a request");
        assert_eq!(payload.body, [0, 0, 0, 0, 3, b'[', b'1', b']'].as_slice());
    }
}
