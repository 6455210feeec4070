//! The types that a setting can have, each with its unit: how a value is read from text and from JSON,
//! what is expected where it cannot be read, and how it is shown.

use std::fmt::Display;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::cpu_list::CpuList;
use crate::time_unit::TimeUnit;

/// The word for what the machine decides.
pub const AUTO: &str = "auto";
/// The word for GPUs that are given to workers in turn, however much of their memory is held.
pub(crate) const OFF: &str = "off";
/// The word for workers that are kept to no processors.
pub(crate) const NONE: &str = "none";

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// A whole number within bounds.
    Whole {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A time; a bare number is in this unit.
    Time(TimeUnit),
    /// A size in bytes, such as `64MiB`.
    Size,
    /// A size in bytes, or `auto`.
    AutoSize,
    /// A share or a size of the memory of every GPU, `auto`, or `off`.
    DeviceMemory,
    /// Processors such as `0-3,8`, `auto`, or `none`.
    Cpus,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Several texts, separated by commas or in a list.
    Texts,
    /// A path of the file system.
    Path,
    /// A part of a whole, from 0.01 to 1.
    Fraction,
    /// A share, from 0 to 1.
    Share,
    /// A list of whole numbers, each at least this.
    Numbers {
        /// The smallest number.
        min: u32,
    },
    /// Names with weights, such as `gold:4,trial:1`.
    Weights,
    /// A number from 0 on, such as 0.5.
    Amount,
    /// Names with numbers, such as `accelerator:1,licence:0.5`.
    Amounts,
    /// A mapping that its owner reads; kept as the text of a JSON object.
    Mapping,
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// A number, or a size in bytes.
    Number(u64),
    /// A time.
    Time(Duration),
    /// A part of a whole, or an amount.
    Fraction(f64),
    /// A flag.
    Flag(bool),
    /// A word, a text or a path.
    Text(String),
    /// Several numbers.
    Numbers(Vec<u32>),
    /// Weights by name, in the order in which they were given.
    Weights(Vec<(String, u32)>),
    /// Amounts by name, in the order in which they were given.
    Amounts(Vec<(String, f64)>),
}

impl SettingKind {
    /// A whole number from `min` on, of 32 bits.
    pub const fn from(min: u64) -> Self {
        Self::Whole { min, max: u32::MAX as u64 }
    }

    /// Reads a text, as a flag, a variable or a parameter brings it.
    ///
    /// # Errors
    /// What the value must be.
    pub fn parse(self, text: &str) -> Result<SettingValue, String> {
        self.parsed(text.trim()).ok_or_else(|| self.expected())
    }

    fn parsed(self, text: &str) -> Option<SettingValue> {
        match self {
            Self::Whole { min, max } => {
                let number = text.parse().ok().filter(|number| (min..=max).contains(number))?;
                Some(SettingValue::Number(number))
            }
            Self::Time(unit) => unit.parse(text).map(SettingValue::Time),
            Self::AutoSize if text == AUTO => Some(SettingValue::Text(AUTO.to_owned())),
            Self::Size | Self::AutoSize => size(text).map(SettingValue::Number),
            Self::DeviceMemory => device_memory(text),
            Self::Cpus => cpus(text),
            Self::Fraction => fraction(text.parse().ok()?, 0.01),
            Self::Amount => amount(text.parse().ok()?).map(SettingValue::Fraction),
            Self::Amounts => {
                pairs(text, |number| amount(number.parse().ok()?)).map(SettingValue::Amounts)
            }
            Self::Share => fraction(text.parse().ok()?, 0.0),
            Self::Flag => text.to_ascii_lowercase().parse().ok().map(SettingValue::Flag),
            Self::Choice(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text))?;
                Some(SettingValue::Text((*word).to_owned()))
            }
            Self::Text | Self::Texts | Self::Path => Some(SettingValue::Text(text.to_owned())),
            Self::Numbers { min } => {
                let parts = text.trim_matches(['[', ']']).split(',').map(str::trim);
                let numbers = parts.filter(|part| !part.is_empty()).map(|part| part.parse().ok());
                sound(numbers.collect(), min)
            }
            Self::Weights => pairs(text, |weight| weight.parse().ok().filter(|it| *it > 0))
                .map(SettingValue::Weights),
            Self::Mapping => self.converted(&serde_json::from_str(text).ok()?),
        }
    }

    /// Reads a value of a YAML or JSON document; times and sizes may be numbers or texts.
    ///
    /// # Errors
    /// What the value must be.
    pub fn from_json(self, value: &Value) -> Result<SettingValue, String> {
        self.converted(value).ok_or_else(|| self.expected())
    }

    fn converted(self, value: &Value) -> Option<SettingValue> {
        match (self, value) {
            (Self::Whole { min, max }, Value::Number(number)) => {
                let number = number.as_u64().filter(|number| (min..=max).contains(number))?;
                Some(SettingValue::Number(number))
            }
            (Self::Size | Self::AutoSize, Value::Number(number)) => {
                number.as_u64().map(SettingValue::Number)
            }
            (Self::DeviceMemory | Self::Cpus, Value::Number(number)) => {
                self.parsed(&number.to_string())
            }
            (Self::Cpus, Value::Array(_)) => self.parsed(&value.to_string()),
            (Self::Fraction, Value::Number(number)) => fraction(number.as_f64()?, 0.01),
            (Self::Amount, Value::Number(number)) => {
                amount(number.as_f64()?).map(SettingValue::Fraction)
            }
            (Self::Amounts, Value::Object(map)) => {
                entries(map, |number| amount(number.as_f64()?)).map(SettingValue::Amounts)
            }
            (Self::Share, Value::Number(number)) => fraction(number.as_f64()?, 0.0),
            (Self::Time(unit), Value::Number(number)) => {
                unit.of(number.as_f64()?).map(SettingValue::Time)
            }
            (Self::Flag, Value::Bool(flag)) => Some(SettingValue::Flag(*flag)),
            (Self::Numbers { min }, Value::Array(list)) => {
                let number = |one: &Value| u32::try_from(one.as_u64()?).ok();
                sound(list.iter().map(number).collect(), min)
            }
            (Self::Weights, Value::Object(map)) => {
                let weight = |it: &Value| u32::try_from(it.as_u64()?).ok().filter(|it| *it > 0);
                entries(map, weight).map(SettingValue::Weights)
            }
            (Self::Mapping, Value::Object(_)) => Some(SettingValue::Text(value.to_string())),
            (Self::Texts, Value::Array(list)) => {
                let texts: Option<Vec<_>> = list.iter().map(Value::as_str).collect();
                self.parsed(&texts?.join(","))
            }
            (
                Self::Time(_)
                | Self::Size
                | Self::AutoSize
                | Self::DeviceMemory
                | Self::Cpus
                | Self::Choice(_)
                | Self::Text
                | Self::Texts
                | Self::Path,
                Value::String(text),
            ) => self.parsed(text.trim()),
            // A word may look like a number: a version, a status.
            (Self::Choice(_), Value::Number(number)) => self.parsed(&number.to_string()),
            _ => None,
        }
    }

    /// What a value must be, after "must be".
    pub fn expected(self) -> String {
        match self {
            Self::Whole { min: 0, max } if max >= u32::MAX.into() => "a whole number".to_owned(),
            Self::Whole { min: 1, max } if max >= u32::MAX.into() => {
                "a whole number above zero".to_owned()
            }
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::Time(unit) => {
                format!("a time such as 10ms, 2s or 1m, or a number of {}", unit.word())
            }
            Self::Size => "a size such as 64MiB, or a number of bytes".to_owned(),
            Self::AutoSize => "a size such as 12GiB, a number of bytes, or auto".to_owned(),
            Self::DeviceMemory => {
                "auto, off, a share such as 0.9, or a size such as 40GiB".to_owned()
            }
            Self::Cpus => "auto, none, or processors such as 0-3,8".to_owned(),
            Self::Fraction => "a number from 0.01 to 1".to_owned(),
            Self::Share => "a number from 0 to 1".to_owned(),
            Self::Amount => "a number from 0 on such as 0.5".to_owned(),
            Self::Amounts => "names with numbers such as accelerator:1,licence:0.5".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Text => "a text".to_owned(),
            Self::Texts => "a text, or a list of texts".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Numbers { min: 0 } => "a list of whole numbers".to_owned(),
            Self::Numbers { .. } => {
                "a list of whole numbers above zero such as [1, 2, 4, 8]".to_owned()
            }
            Self::Weights => {
                "names with whole numbers above zero such as gold:4,trial:1".to_owned()
            }
            Self::Mapping => "a mapping".to_owned(),
        }
    }

    /// The value as it can be typed again.
    pub fn show(self, value: &SettingValue) -> String {
        match (self, value) {
            (Self::Time(unit), SettingValue::Time(time)) => unit.show(*time),
            (_, SettingValue::Time(time)) => TimeUnit::Seconds.show(*time),
            (_, SettingValue::Number(number)) => number.to_string(),
            (_, SettingValue::Fraction(part)) => part.to_string(),
            (_, SettingValue::Flag(flag)) => flag.to_string(),
            (_, SettingValue::Text(text)) => text.clone(),
            (_, SettingValue::Numbers(numbers)) => {
                numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
            }
            (_, SettingValue::Weights(weights)) => joined(weights),
            (_, SettingValue::Amounts(amounts)) => joined(amounts),
        }
    }

    /// The value for a JSON document; times as whole numbers of their unit.
    pub fn to_json(self, value: &SettingValue) -> Value {
        match (self, value) {
            (Self::Time(unit), SettingValue::Time(time)) => {
                let number = time.as_secs_f64() / unit.seconds();
                // Zero means none: a short time must not become none.
                json!(if time.is_zero() { 0 } else { (number.round() as u64).max(1) })
            }
            (_, SettingValue::Number(number)) => json!(number),
            (_, SettingValue::Fraction(part)) => json!(part),
            (_, SettingValue::Flag(flag)) => json!(flag),
            (_, SettingValue::Numbers(numbers)) => json!(numbers),
            (_, SettingValue::Weights(weights)) => {
                weights.iter().map(|(name, weight)| (name.clone(), json!(weight))).collect()
            }
            (_, SettingValue::Amounts(amounts)) => {
                amounts.iter().map(|(name, number)| (name.clone(), json!(number))).collect()
            }
            (Self::Mapping, SettingValue::Text(text)) => {
                serde_json::from_str(text).unwrap_or_default()
            }
            (_, SettingValue::Text(_) | SettingValue::Time(_)) => json!(self.show(value)),
        }
    }

    /// What stands for a value in help and in the reference page.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Whole { .. } => "N",
            Self::Time(_) => "TIME",
            Self::Size | Self::AutoSize => "SIZE",
            Self::DeviceMemory => "SHARE|SIZE",
            Self::Cpus => "CPUS",
            Self::Flag => "BOOL",
            Self::Choice(_) => "WORD",
            Self::Text => "TEXT",
            Self::Texts => "TEXT,...",
            Self::Path => "PATH",
            Self::Fraction | Self::Share => "SHARE",
            Self::Numbers { .. } => "N,N,...",
            Self::Weights | Self::Amounts => "NAME:N,...",
            Self::Amount => "N",
            Self::Mapping => "JSON",
        }
    }
}

/// The part, if it is one.
fn fraction(part: f64, min: f64) -> Option<SettingValue> {
    (min..=1.0).contains(&part).then_some(SettingValue::Fraction(part))
}

/// A word, a share up to 1, or a size above it.
fn device_memory(text: &str) -> Option<SettingValue> {
    match text.parse::<f64>() {
        _ if text == AUTO || text == OFF => Some(SettingValue::Text(text.to_owned())),
        Ok(number) if number <= 1.0 => fraction(number, 0.01),
        _ => size(text).map(SettingValue::Number),
    }
}

/// A word, or at least one processor.
fn cpus(text: &str) -> Option<SettingValue> {
    if [AUTO, NONE].contains(&text) {
        return Some(SettingValue::Text(text.to_owned()));
    }
    let list = CpuList::parse(text.trim_matches(['[', ']']))?;
    (!list.numbers().is_empty()).then(|| SettingValue::Text(list.to_string()))
}

/// The number, if it can be an amount.
fn amount(number: f64) -> Option<f64> {
    (0.0..=1e6).contains(&number).then_some(number)
}

/// The list, if each number is large enough.
fn sound(numbers: Option<Vec<u32>>, min: u32) -> Option<SettingValue> {
    numbers.filter(|all| all.iter().all(|one| *one >= min)).map(SettingValue::Numbers)
}

/// Names with numbers, as a text lists them.
fn pairs<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<(String, T)>> {
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let pair = |part: &str| {
        let (name, number) = part.rsplit_once(':')?;
        Some((name.trim().to_owned(), read(number.trim())?)).filter(|(name, _)| !name.is_empty())
    };
    parts.map(pair).collect()
}

/// Names with numbers, as a document maps them.
fn entries<T>(
    map: &Map<String, Value>,
    read: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<(String, T)>> {
    map.iter().map(|(name, number)| Some((name.clone(), read(number)?))).collect()
}

fn joined<T: Display>(pairs: &[(String, T)]) -> String {
    pairs.iter().map(|(name, number)| format!("{name}:{number}")).collect::<Vec<_>>().join(",")
}

/// Bytes, with or without a unit.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: SettingKind = SettingKind::Time(TimeUnit::Millis);

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        for (text, millis) in [("10", 10), ("10ms", 10), ("2s", 2000), ("1m 30s", 90_000), ("0", 0)]
        {
            let time = SettingValue::Time(Duration::from_millis(millis));
            assert_eq!(MS.parse(text), Ok(time.clone()), "{text}");
            assert_eq!(MS.from_json(&json!(text)), Ok(time), "{text}");
        }
        assert_eq!(MS.from_json(&json!(2.5)), Ok(SettingValue::Time(Duration::from_micros(2500))));
        let whole = SettingKind::Time(TimeUnit::WholeSeconds);
        assert_eq!(whole.parse("1500ms"), Ok(SettingValue::Time(Duration::from_secs(2))));
        for text in ["soon", "-1", "1e300", "nan", "18345053d"] {
            assert!(MS.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in
            [("6553500", 6_553_500), ("64MiB", 64 << 20), ("1 kb", 1000), ("2G", 2 << 30)]
        {
            assert_eq!(SettingKind::Size.parse(text), Ok(SettingValue::Number(bytes)), "{text}");
        }
        for text in ["", "MiB", "10 parsecs", "99999999999GiB", "-1"] {
            assert!(SettingKind::Size.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn weights_are_read_from_one_word() {
        let weights = |pairs: &[(&str, u32)]| {
            let pairs = pairs.iter().map(|(name, weight)| ((*name).to_owned(), *weight));
            Ok(SettingValue::Weights(pairs.collect()))
        };
        let parse = |text| SettingKind::Weights.parse(text);
        assert_eq!(parse("gold:4, trial:1"), weights(&[("gold", 4), ("trial", 1)]));
        assert_eq!(parse("a:b:2"), weights(&[("a:b", 2)]));
        assert_eq!(parse(""), weights(&[]));
        for wrong in ["gold", "gold:much", "gold:-1", ":3", "gold=3"] {
            assert!(parse(wrong).is_err_and(|why| why.contains("gold:4")), "{wrong}");
        }
    }

    #[test]
    fn every_kind_says_what_it_expects() {
        let port = SettingKind::Whole { min: 0, max: 65535 };
        for (kind, value, expected) in [
            (port, json!(99999), "a whole number from 0 to 65535"),
            (port, json!("80"), "a whole number from 0 to 65535"),
            (SettingKind::from(0), json!("ten"), "a whole number"),
            (SettingKind::Flag, json!(1), "true or false"),
            (SettingKind::Texts, json!(["a", 1]), "a text, or a list of texts"),
            (SettingKind::Fraction, json!(1.5), "a number from 0.01 to 1"),
            (SettingKind::Share, json!(-0.1), "a number from 0 to 1"),
            (SettingKind::Fraction, json!(0), "a number from 0.01 to 1"),
            (SettingKind::Choice(&["a", "b"]), json!("c"), "one of a, b"),
            (
                SettingKind::Numbers { min: 1 },
                json!([0]),
                "a list of whole numbers above zero such as [1, 2, 4, 8]",
            ),
        ] {
            assert_eq!(kind.from_json(&value), Err(expected.to_owned()), "{value}");
        }
    }

    #[test]
    fn what_is_shown_can_be_typed_again() {
        for (kind, text) in [
            (MS, "2.5"),
            (SettingKind::Time(TimeUnit::WholeSeconds), "120"),
            (SettingKind::Time(TimeUnit::Minutes), "0.25"),
            (SettingKind::Weights, "gold:4,a:b:2"),
            (SettingKind::Amounts, "accelerator:1,licence:0.5"),
            (SettingKind::Amount, "2.5"),
            (SettingKind::Numbers { min: 1 }, "1,2,4"),
            (SettingKind::Flag, "true"),
            (SettingKind::Choice(&["adaptive"]), "adaptive"),
            (SettingKind::Size, "64"),
            (SettingKind::AutoSize, "64"),
            (SettingKind::AutoSize, "auto"),
            (SettingKind::DeviceMemory, "auto"),
            (SettingKind::DeviceMemory, "off"),
            (SettingKind::Cpus, "0-3,8"),
            (SettingKind::DeviceMemory, "0.9"),
            (SettingKind::DeviceMemory, "1073741824"),
            (SettingKind::Fraction, "0.25"),
            (SettingKind::Share, "0"),
        ] {
            assert_eq!(kind.parse(text).map(|value| kind.show(&value)), Ok(text.to_owned()));
        }
    }
}
