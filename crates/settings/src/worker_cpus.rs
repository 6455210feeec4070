//! The processors that workers are kept to: `none`, `auto`, or a list such as `0-3,8`.

use crate::cpu_list::CpuList;
use crate::kind::NONE;
use crate::{AUTO, FromValue, SettingValue};

/// Which processors the workers of a model share out among themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerCpus {
    /// None: they run wherever the system lets them.
    Any,
    /// All that the server may use.
    Auto,
    /// These.
    Listed(CpuList),
}

impl FromValue for WorkerCpus {
    fn from_value(value: &SettingValue) -> Option<Self> {
        let SettingValue::Text(text) = value else { return None };
        match text.as_str() {
            NONE => Some(Self::Any),
            AUTO => Some(Self::Auto),
            list => CpuList::parse(list).map(Self::Listed),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::SettingKind;

    #[test]
    fn words_and_lists_are_read_and_shown_in_the_kernels_form() {
        let show = |text: &str| {
            SettingKind::Cpus.parse(text).map(|value| SettingKind::Cpus.show(&value)).ok()
        };
        for (text, shown) in [
            ("auto", "auto"),
            ("none", "none"),
            ("0-3,8", "0-3,8"),
            ("8, 3,2,1,0,3", "0-3,8"),
            ("7", "7"),
            ("0,1", "0-1"),
        ] {
            assert_eq!(show(text).as_deref(), Some(shown), "{text}");
        }
        for wrong in ["", "some", "3-1", "-1", "1024", "0-99999999999"] {
            assert_eq!(show(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn documents_give_words_numbers_and_lists() {
        let kind = SettingKind::Cpus;
        let read = |value| kind.from_json(&value).ok().map(|read| kind.show(&read));
        for (value, shown) in [
            (json!("0-3,8"), "0-3,8"),
            (json!(4), "4"),
            (json!([2, 0, 1]), "0-2"),
            (json!("auto"), "auto"),
        ] {
            assert_eq!(read(value).as_deref(), Some(shown));
        }
        assert_eq!(read(json!([])), None);
        assert_eq!(read(json!(true)), None);
    }
}
