//! A key: eight random characters, with or without an expiry.

use std::io;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

/// The alphabet of base64 for URLs and file names.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A secret. It has no `Debug`, so that it cannot slip into a log.
#[derive(Clone)]
pub(super) struct AuthKey {
    text: [u8; 8],
    expires: Option<KeyExpiry>,
}

/// When a key ends.
#[derive(Clone, Copy)]
pub(super) struct KeyExpiry {
    /// By the time of day, as it is written down.
    pub(super) wall: SystemTime,
    /// By the clock that decides: setting the time of day back revives no key.
    pub(super) steady: Duration,
}

impl AuthKey {
    /// Six bytes of the system's own randomness (`getrandom`), as upstream's keys.
    pub(super) fn fresh(expires: Option<KeyExpiry>) -> io::Result<Self> {
        let mut bytes = [0; 6];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self { text: encode(bytes), expires })
    }

    /// Whether a token is this key, in a time that does not depend on where they differ.
    pub(super) fn is(&self, token: &[u8], now: Duration) -> bool {
        let alive = self.expires.is_none_or(|expires| now < expires.steady);
        bool::from(self.text.as_slice().ct_eq(token)) & alive
    }

    fn json(&self) -> Value {
        let mut json = json!({ "key": String::from_utf8_lossy(&self.text) });
        if let Some(expires) = self.expires {
            json["expiration time"] =
                humantime::format_rfc3339_micros(expires.wall).to_string().into();
        }
        json
    }
}

/// The three keys.
#[derive(Clone)]
pub(super) struct AuthKeys {
    pub(super) management: AuthKey,
    pub(super) inference: AuthKey,
    pub(super) api: AuthKey,
}

impl AuthKeys {
    pub(super) fn fresh(expires: KeyExpiry) -> io::Result<Self> {
        let (management, inference) =
            (AuthKey::fresh(Some(expires))?, AuthKey::fresh(Some(expires))?);
        Ok(Self { management, inference, api: AuthKey::fresh(None)? })
    }

    /// As TorchServe writes `key_file.json`.
    pub(super) fn text(&self) -> String {
        let Self { management, inference, api } = self;
        let keys = json!({
            "management": management.json(), "inference": inference.json(), "API": api.json(),
        });
        format!("{keys:#}")
    }
}

/// The token inside `Bearer <token>`; any other form has none.
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let rest = value.strip_prefix(b"Bearer")?;
    let token = rest.trim_ascii_start();
    let well_formed = token.len() < rest.len() && !token.is_empty();
    (well_formed && !token.iter().any(u8::is_ascii_whitespace)).then_some(token)
}

/// Base64 without padding: six bytes are exactly eight characters.
fn encode(bytes: [u8; 6]) -> [u8; 8] {
    let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    std::array::from_fn(|at| ALPHABET[(bits >> (42 - 6 * at)) as usize & 63])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_url_safe_base64() {
        for (bytes, expected) in [
            ([0; 6], "AAAAAAAA"),
            ([255; 6], "________"),
            ([0xfb, 0xef, 0xbe, 0, 0, 1], "----AAAB"),
            (*b"jitney", "aml0bmV5"),
        ] {
            assert_eq!(encode(bytes), expected.as_bytes());
        }
    }

    #[test]
    fn only_the_word_bearer_and_one_token_is_a_token() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("Bearer \t abc", Some("abc")),
            ("bearer abc", None),
            ("Bearerabc", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer a b", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), expected.map(str::as_bytes), "{value}");
        }
    }
}
