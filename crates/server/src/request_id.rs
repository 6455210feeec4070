//! The server's own name for a request: a random UUID (version 4), made without a system call. Where an id is
//! a secret, it comes from the system's own generator.

use http::HeaderValue;

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Where the digits of each byte are.
const DIGITS_AT: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// The text of a fresh UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestUuid([u8; 36]);

impl RequestUuid {
    /// Ids of requests are names, not secrets: a fast generator seeded by the system is enough. Who sees
    /// some of them can compute others, but nothing opens with one.
    pub(crate) fn fresh() -> Self {
        Self::of(fastrand::u128(..).to_be_bytes())
    }

    /// An id that nobody can compute from others.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn secret() -> Result<Self, getrandom::Error> {
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
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Its text.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the client sees it.
    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).unwrap_or(HeaderValue::from_static(""))
    }
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
        assert_eq!(first.header(), first.text());
        assert_ne!(first, second);
        assert!(shape.is_match(RequestUuid::secret().unwrap().text()));
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
