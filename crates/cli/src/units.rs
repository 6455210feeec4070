//! Times as people write them on the command line: `10ms`, `2s`, or a bare number in the flag's unit.

use std::str::FromStr;
use std::time::Duration;

use jitney_settings::{SettingKind, SettingValue, TimeUnit};
use serde::de::{Deserialize, Deserializer, Error as _};

/// A time; a bare number means milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

/// A time; a bare number means seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

/// A time to the fraction; a bare number means seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

fn duration(text: &str, unit: TimeUnit) -> Result<Duration, String> {
    match SettingKind::Time(unit).parse(text) {
        Ok(SettingValue::Time(time)) => Ok(time),
        Ok(_) | Err(_) => Err(format!("{text:?} is not a time; write it like 10ms, 2s or 1m")),
    }
}

impl FromStr for Millis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(text, TimeUnit::Millis).map(Self)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.parse().map_err(D::Error::custom)
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(text, TimeUnit::WholeSeconds).map(Self)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(text, TimeUnit::Seconds).map(Self)
    }
}
