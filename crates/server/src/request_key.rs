//! What a request is known by, where versions share the traffic of a model: a header, a cookie, its client's key, or
//! its id. All protocols choose a version by the hash of it, so that a client stays at its version whichever it uses.

use http::HeaderMap;
use http::header::COOKIE;
use jitney_engine::traffic_split::{Sticky, hash};
use jitney_net::request_id::XRequestId;

/// What a request brings that it can be known by.
#[derive(Clone, Copy)]
pub(crate) struct RequestKey<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// The name of its client's key.
    pub(crate) client: Option<&'a str>,
    pub(crate) id: &'a XRequestId,
}

impl RequestKey<'_> {
    /// The hash of what the shares go by; of the id where the request does not have that.
    pub(crate) fn hash(&self, sticky: &Sticky) -> u64 {
        hash(self.value(sticky).unwrap_or_else(|| self.id.bytes()))
    }

    fn value(&self, sticky: &Sticky) -> Option<&[u8]> {
        match sticky {
            Sticky::Request => None,
            Sticky::Header(name) => Some(self.headers.get(name.as_str())?.as_bytes()),
            Sticky::Cookie(name) => self.cookie(name.as_bytes()),
            Sticky::Key => self.client.map(str::as_bytes),
        }
    }

    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        let lines = self.headers.get_all(COOKIE).into_iter();
        let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_request_is_known_by_its_header_its_cookie_or_its_id() {
        let mut all = HeaderMap::new();
        for (name, value) in [("x-user", "ann"), ("cookie", "a=1; user=ben"), ("cookie", "z=c")] {
            all.append(name, HeaderValue::from_static(value));
        }
        let id = XRequestId::Client(HeaderValue::from_static("id-1"));
        let key = RequestKey { headers: &all, client: None, id: &id };
        for (sticky, expected) in [
            ("header:X-User", "ann"),
            ("header:x-other", "id-1"),
            ("cookie:user", "ben"),
            ("cookie:z", "c"),
            ("cookie:use", "id-1"),
            ("key", "id-1"),
            ("request", "id-1"),
        ] {
            let by = Sticky::try_from(sticky.to_owned()).unwrap();
            assert_eq!(key.hash(&by), hash(expected.as_bytes()), "{sticky}");
        }
    }
}
