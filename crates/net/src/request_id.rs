//! The names of requests. A client's own `x-request-id` is kept where the dialect does that; else a request
//! gets a random UUID (version 4), made without a system call. Where an id is a secret, it comes from the
//! system's own generator.

use http::{HeaderMap, HeaderName, HeaderValue};
use jitney_settings::Dialect;

/// The header that has a request's id.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a client that is kept.
const CLIENT_BYTES_MAX: usize = 128;

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Where the digits of each byte are.
const DIGITS_AT: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// The text of a fresh UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestUuid([u8; 36]);

impl RequestUuid {
    /// Ids of requests are names, not secrets: a fast generator seeded by the system is enough. Who sees
    /// some of them can compute others, but nothing opens with one.
    pub fn fresh() -> Self {
        Self::of(fastrand::u128(..).to_be_bytes())
    }

    /// An id that nobody can compute from others.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn secret() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map(|()| Self::of(bytes))
    }

    fn of(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = [b'-'; 36];
        for (part, byte) in DIGITS_AT.into_iter().zip(bytes) {
            text[part] = HEX[usize::from(byte >> 4)];
            text[part + 1] = HEX[usize::from(byte & 15)];
        }
        Self(text)
    }

    /// As the model sees it.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The id of a request, as its answer has it in `x-request-id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XRequestId {
    /// Made here.
    Fresh(RequestUuid),
    /// The client's own.
    Client(HeaderValue),
}

impl XRequestId {
    /// One that is made here.
    pub fn fresh() -> Self {
        Self::Fresh(RequestUuid::fresh())
    }

    /// The client's own id where the dialect keeps it and it is one; else a fresh one.
    pub fn of(dialect: Dialect, headers: &HeaderMap) -> Self {
        let own = match dialect {
            Dialect::TorchServe => None,
            Dialect::Jitney => headers.get(&X_REQUEST_ID),
        };
        match own.filter(|own| is_id(own.as_bytes())) {
            None => Self::fresh(),
            Some(own) => Self::Client(own.clone()),
        }
    }

    /// As the model sees it.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    /// Its text.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Fresh(id) => &id.0,
            Self::Client(id) => id.as_bytes(),
        }
    }

    /// As the client sees it.
    pub fn header(&self) -> HeaderValue {
        match self {
            Self::Fresh(id) => {
                HeaderValue::from_bytes(&id.0).unwrap_or(HeaderValue::from_static(""))
            }
            Self::Client(id) => id.clone(),
        }
    }
}

/// Whether a client's id is kept: up to 128 visible ASCII characters, so that it fits every log line.
fn is_id(text: &[u8]) -> bool {
    (1..=CLIENT_BYTES_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_version_4_uuid() {
        let shape = regex::Regex::new(
            "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        );
        let (shape, first, second) = (shape.unwrap(), RequestUuid::fresh(), RequestUuid::fresh());
        assert!(shape.is_match(first.text()), "{}", first.text());
        assert_eq!(XRequestId::Fresh(first).header(), first.text());
        assert_ne!(first, second);
        assert!(shape.is_match(RequestUuid::secret().unwrap().text()));
    }

    #[test]
    fn a_clients_id_is_kept_where_the_dialect_does_that_and_it_is_one() {
        let id_of = |dialect, value: &[u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            XRequestId::of(dialect, &HeaderMap::from_iter([(X_REQUEST_ID, value)]))
        };
        let longest = "x".repeat(128);
        for kept in ["a", "order-17/\"b\"", &longest] {
            let id = id_of(Dialect::Jitney, kept.as_bytes());
            assert_eq!((id.text(), id.header().as_bytes()), (kept, kept.as_bytes()));
            assert_ne!(id_of(Dialect::TorchServe, kept.as_bytes()).text(), kept);
        }
        let too_long = "x".repeat(129);
        for other in [&b""[..], b"a b", b"a\tb", b"gr\xfcn", too_long.as_bytes()] {
            assert_eq!(id_of(Dialect::Jitney, other).text().len(), 36, "{other:?}");
        }
        assert_eq!(XRequestId::of(Dialect::Jitney, &HeaderMap::new()).text().len(), 36);
    }

    #[test]
    fn a_secret_id_does_not_follow_from_the_ids_of_requests() {
        let ids = || {
            fastrand::seed(7);
            (RequestUuid::fresh(), RequestUuid::secret().unwrap())
        };
        let (first, second) = (ids(), ids());
        assert_eq!(first.0, second.0);
        assert_ne!(first.1, second.1);
    }
}
