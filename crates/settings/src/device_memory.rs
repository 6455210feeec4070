//! How much of the memory of every GPU models may hold: `auto`, a share, a size, or `off`.

use crate::kind::OFF;
use crate::{AUTO, FromValue, SettingValue};

/// What `auto` means: the rest is for what libraries take beside the tensors of models.
const AUTO_SHARE: f64 = 0.9;

/// Memory of every GPU that may be held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceMemory {
    /// Nobody looks at it.
    Off,
    /// A part of what each has.
    Share(f64),
    /// So many bytes of each.
    Bytes(u64),
}

impl DeviceMemory {
    /// The bytes that may be held of a GPU with so many; none where nobody looks.
    #[must_use]
    pub fn of(self, total: u64) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Share(share) => Some((total as f64 * share) as u64),
            Self::Bytes(bytes) => Some(bytes.min(total)),
        }
    }
}

impl FromValue for DeviceMemory {
    fn from_value(value: &SettingValue) -> Option<Self> {
        match value {
            SettingValue::Text(word) if word == AUTO => Some(Self::Share(AUTO_SHARE)),
            SettingValue::Text(word) if word == OFF => Some(Self::Off),
            SettingValue::Fraction(share) => Some(Self::Share(*share)),
            SettingValue::Number(bytes) => Some(Self::Bytes(*bytes)),
            SettingValue::Time(_)
            | SettingValue::Flag(_)
            | SettingValue::Text(_)
            | SettingValue::Numbers(_)
            | SettingValue::Weights(_)
            | SettingValue::Amounts(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SettingKind;

    fn parse(text: &str) -> Option<SettingValue> {
        SettingKind::DeviceMemory.parse(text).ok()
    }

    #[test]
    fn words_shares_and_sizes_are_read() {
        for (text, of_ten) in
            [("auto", Some(9)), ("off", None), ("0.5", Some(5)), ("1", Some(10)), ("4", Some(4))]
        {
            let value = parse(text).expect(text);
            assert_eq!(DeviceMemory::from_value(&value).expect(text).of(10), of_ten, "{text}");
        }
        let size = parse("40GiB").and_then(|value| DeviceMemory::from_value(&value));
        assert_eq!(size, Some(DeviceMemory::Bytes(40 << 30)));
        for wrong in ["0", "-1", "1.5", "much", ""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
