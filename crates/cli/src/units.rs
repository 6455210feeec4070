//! Quantities as people write them: `10ms`, `2s`, `64MiB`, or a bare number in the key's own unit.
//! One type per quantity serves flags, environment and `jitney.yaml` alike.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

/// A time; a bare number means milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

/// A time; a bare number means seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

/// A size; a bare number means bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Millis {
    /// Whole milliseconds, as TorchServe's settings count.
    pub fn whole(self) -> u64 {
        self.0.as_millis() as u64
    }
}

impl Seconds {
    /// Whole seconds, a part of one counting as one: a timeout never becomes zero by rounding.
    pub fn whole(self) -> u64 {
        self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)
    }
}

fn duration(text: &str, unit: Duration) -> Result<Duration, String> {
    let text = text.trim();
    if let Ok(number) = text.parse::<u32>() {
        return Ok(unit * number);
    }
    humantime::parse_duration(text)
        .map_err(|_| format!("{text:?} is not a time; write it like 10ms, 2s or 1m"))
}

impl FromStr for Millis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(text, Duration::from_millis(1)).map(Self)
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(text, Duration::from_secs(1)).map(Self)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = factor(unit.trim());
        let size = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
        size.map(Self)
            .ok_or_else(|| format!("{text:?} is not a size; write it like 64MiB or 6553500"))
    }
}

fn factor(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kb" => Some(1_000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        _ => None,
    }
}

/// Reads a scalar that YAML may have typed as a number or as text.
pub fn scalar<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    struct Scalar;
    impl Visitor<'_> for Scalar {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number or a text")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_u64<E>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }
    let text = deserializer.deserialize_any(Scalar)?;
    text.parse().map_err(D::Error::custom)
}

macro_rules! from_scalar {
    ($($quantity:ty),*) => {$(
        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                scalar(deserializer)
            }
        }
    )*};
}
from_scalar!(Millis, Seconds, Size);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        for (text, expected) in
            [("10", 10), ("10ms", 10), ("2s", 2000), ("1m 30s", 90_000), ("0", 0)]
        {
            assert_eq!(text.parse::<Millis>().map(Millis::whole), Ok(expected), "{text}");
        }
        assert_eq!("90".parse::<Seconds>().map(Seconds::whole), Ok(90));
        assert_eq!("1500ms".parse::<Seconds>().map(Seconds::whole), Ok(2));
        assert!("soon".parse::<Millis>().is_err());
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, expected) in
            [("6553500", 6_553_500), ("64MiB", 64 << 20), ("1 kb", 1000), ("2G", 2 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size(expected)), "{text}");
        }
        for text in ["", "MiB", "10 parsecs", "99999999999GiB", "-1"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn yaml_numbers_and_texts_mean_the_same() {
        for text in ["10", "10ms", "'10'"] {
            assert_eq!(
                serde_saphyr::from_str::<Millis>(text).map(Millis::whole).ok(),
                Some(10),
                "{text}"
            );
        }
    }
}
