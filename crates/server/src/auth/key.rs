//! A key: random characters, with or without an expiry.

use std::io;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

/// How hard keys are to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStrength {
    /// Eight characters, as TorchServe's keys.
    TorchServe,
    /// 192 bits.
    Strong,
}

impl KeyStrength {
    fn bytes(self) -> usize {
        match self {
            Self::TorchServe => 6,
            Self::Strong => 24,
        }
    }
}

/// The fewest characters of a key that somebody gives.
const GIVEN_MIN: usize = 16;

/// A secret. It has no `Debug`, so that it cannot slip into a log.
#[derive(Clone)]
pub(super) struct AuthKey {
    text: String,
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
    /// Bytes of the system's own randomness (`getrandom`), in base64.
    pub(super) fn fresh(strength: KeyStrength, expires: Option<KeyExpiry>) -> io::Result<Self> {
        let mut bytes = vec![0; strength.bytes()];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self { text: BASE64_URL_SAFE_NO_PAD.encode(bytes), expires })
    }

    /// Whether a token is this key, in a time that does not depend on where they differ.
    pub(super) fn is(&self, token: &[u8], now: Duration) -> bool {
        let alive = self.expires.is_none_or(|expires| now < expires.steady);
        bool::from(self.text.as_bytes().ct_eq(token)) & alive
    }

    fn json(&self) -> Value {
        let mut json = json!({ "key": self.text });
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
    pub(super) fn fresh(strength: KeyStrength, expires: KeyExpiry) -> io::Result<Self> {
        let fresh = |expires| AuthKey::fresh(strength, expires);
        let (management, inference) = (fresh(Some(expires))?, fresh(Some(expires))?);
        Ok(Self { management, inference, api: fresh(None)? })
    }

    /// Keys of an operator, in the form in which they are written down: they are valid for as long as he gives
    /// them. Without a key for renewals nobody renews.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn given(text: &str, strength: KeyStrength) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let key = |name: &str| match json[name]["key"].as_str() {
            None => Ok(None),
            Some(text)
                if text.len() < GIVEN_MIN || !text.bytes().all(|it| it.is_ascii_graphic()) =>
            {
                Err(format!(
                    "the key {name} must have at least {GIVEN_MIN} visible ASCII characters"
                ))
            }
            Some(text) => Ok(Some(AuthKey { text: text.to_owned(), expires: None })),
        };
        let missing = |name| format!("it has no {name:?}: {{\"key\": …}}");
        let (management, inference) = (key("management")?, key("inference")?);
        let random = || AuthKey::fresh(strength, None).map_err(|error| error.to_string());
        Ok(Self {
            management: management.ok_or_else(|| missing("management"))?,
            inference: inference.ok_or_else(|| missing("inference"))?,
            api: key("API")?.map_or_else(random, Ok)?,
        })
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
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let rest = value.strip_prefix(b"Bearer")?;
    let token = rest.trim_ascii_start();
    let well_formed = token.len() < rest.len() && !token.is_empty();
    (well_formed && !token.iter().any(u8::is_ascii_whitespace)).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_and_safe_in_urls() {
        for (strength, length) in [(KeyStrength::TorchServe, 8), (KeyStrength::Strong, 32)] {
            let fresh = || AuthKey::fresh(strength, None).unwrap().text;
            let (key, other) = (fresh(), fresh());
            assert_eq!(key.len(), length);
            assert_ne!(key, other);
            let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            assert!(key.bytes().all(safe), "{key}");
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
