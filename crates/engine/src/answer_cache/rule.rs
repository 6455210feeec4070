//! What a model's cache may hold, and which requests are alike, as operators write it:
//! `{entries: 1000, bytes: 64MiB, ttl: 60s, headers: [accept-language]}`.

use std::str::FromStr;
use std::time::Duration;

use jitney_settings::{SettingKind, SettingValue, TimeUnit};
use serde::Deserialize;
use serde_json::Value;

/// The rule of one model's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// Answers that it keeps at most; 0 for no cache.
    pub entries: usize,
    /// Their bytes at most.
    pub bytes: u64,
    /// How long an answer is kept.
    pub ttl: Duration,
    /// Headers that the answer depends on, in lower case.
    pub headers: Vec<String>,
    /// Whether clients of different keys and tenants get each other's answers.
    pub shared: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default = "entries")]
    entries: u32,
    bytes: Option<Value>,
    ttl: Option<Value>,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    shared: bool,
}

/// Where the operator does not say: chosen so that a thousand small answers fit, and none is older than a minute.
const ENTRIES: u32 = 1000;
const BYTES: u64 = 64 << 20;
const TTL: Duration = Duration::from_secs(60);

fn entries() -> u32 {
    ENTRIES
}

impl FromStr for CacheRule {
    type Err = String;

    /// Reads the JSON document.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("cache: {why}");
        let read: RuleText = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        let value = |kind: SettingKind, name: &str, given: Value| {
            kind.from_json(&given).map_err(|what| wrong(&format!("{name} must be {what}")))
        };
        let bytes = read.bytes.map(|it| value(SettingKind::Size, "bytes", it)).transpose()?;
        let seconds = SettingKind::Time(TimeUnit::Seconds);
        let ttl = read.ttl.map(|it| value(seconds, "ttl", it)).transpose()?;
        let ttl = match ttl {
            Some(SettingValue::Time(ttl)) if !ttl.is_zero() => ttl,
            Some(_) => return Err(wrong(&"ttl must be above zero; entries: 0 turns it off")),
            None => TTL,
        };
        let headers = read.headers.iter().map(|name| name.to_ascii_lowercase()).collect();
        Ok(Self {
            entries: read.entries as usize,
            bytes: if let Some(SettingValue::Number(bytes)) = bytes { bytes } else { BYTES },
            ttl,
            headers,
            shared: read.shared,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_or_explained() {
        let rule: CacheRule = "{}".parse().unwrap();
        assert_eq!((rule.entries, rule.bytes, rule.ttl.as_secs()), (1000, 64 << 20, 60));
        let text =
            r#"{"entries": 5, "bytes": "1MiB", "ttl": "2m", "headers": ["X-A"], "shared": true}"#;
        let rule: CacheRule = text.parse().unwrap();
        assert_eq!((rule.entries, rule.bytes, rule.ttl.as_secs()), (5, 1 << 20, 120));
        assert_eq!((rule.headers, rule.shared), (vec!["x-a".to_owned()], true));
        for (text, expected) in [
            (r#"{"entries": -1}"#, "invalid value"),
            (r#"{"bytes": "much"}"#, "bytes must be a size such as 64MiB"),
            (r#"{"ttl": "soon"}"#, "ttl must be a time such as"),
            (r#"{"ttl": 0}"#, "ttl must be above zero"),
            (r#"{"size": 3}"#, "unknown field `size`"),
        ] {
            let why = text.parse::<CacheRule>().unwrap_err();
            assert!(why.starts_with("cache: ") && why.contains(expected), "{text}: {why}");
        }
    }
}
