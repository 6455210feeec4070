//! Values of settings with the source of each: what one source sets, and what several sources come to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{Setting, SettingValue};

/// Where a value was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SettingSource {
    /// A flag of the command line.
    Flag(String),
    /// A variable of the environment.
    Variable(String),
    /// A file, and the line where that is known.
    File {
        /// As it was named.
        path: Arc<Path>,
        /// Counted from 1.
        line: Option<usize>,
    },
    /// The model's own settings: its `model-config.yaml` or its decorator.
    Archive(String),
    /// A parameter of the registration.
    Registration,
    /// A change of the live model.
    Live,
    /// A snapshot that the server was started from.
    Snapshot(String),
    /// The default.
    #[default]
    Default,
}

impl SettingSource {
    /// The kind of source, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Variable(_) => "environment",
            Self::File { .. } => "file",
            Self::Archive(_) => "archive",
            Self::Registration => "registration",
            Self::Live => "live update",
            Self::Snapshot(_) => "snapshot",
            Self::Default => "default",
        }
    }

    /// Which flag, variable, line or archive; empty for the other kinds.
    pub fn detail(&self) -> String {
        match self {
            Self::Flag(name)
            | Self::Variable(name)
            | Self::Archive(name)
            | Self::Snapshot(name) => name.clone(),
            Self::File { path, line: Some(line) } => format!("{}:{line}", path.display()),
            Self::File { path, line: None } => path.display().to_string(),
            Self::Registration | Self::Live | Self::Default => String::new(),
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = self.detail();
        if detail.is_empty() {
            f.write_str(self.kind())
        } else {
            write!(f, "{} {detail}", self.kind())
        }
    }
}

/// Values by setting, each with its source. A setting that no source sets is absent.
///
/// In a list by name: a server may know thousands of models, and a tree of them holds twice the memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Vec<GivenValue>);

/// What a source sets.
#[derive(Clone, Debug, PartialEq)]
struct GivenValue {
    name: &'static str,
    value: SettingValue,
    source: SettingSource,
}

impl Values {
    /// Sets a value, in place of the one there is.
    pub fn set(
        &mut self,
        setting: &Setting,
        value: impl Into<SettingValue>,
        source: SettingSource,
    ) {
        self.put(GivenValue { name: setting.name, value: value.into(), source });
    }

    fn put(&mut self, given: GivenValue) {
        match self.index(given.name) {
            Ok(at) => self.0[at] = given,
            Err(at) => self.0.insert(at, given),
        }
    }

    /// Where the value of this name is, or would be.
    fn index(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|given| given.name.cmp(name))
    }

    fn given(&self, setting: &Setting) -> Option<&GivenValue> {
        self.index(setting.name).ok().map(|at| &self.0[at])
    }

    /// The same with one more value.
    #[must_use]
    pub fn with(
        mut self,
        setting: &Setting,
        value: impl Into<SettingValue>,
        source: SettingSource,
    ) -> Self {
        self.set(setting, value, source);
        self
    }

    /// Takes a value away.
    pub fn remove(&mut self, setting: &Setting) {
        if let Ok(at) = self.index(setting.name) {
            self.0.remove(at);
        }
    }

    /// The value as it is.
    pub fn get(&self, setting: &Setting) -> Option<&SettingValue> {
        self.given(setting).map(|given| &given.value)
    }

    /// Whether there is a value.
    pub fn has(&self, setting: &Setting) -> bool {
        self.given(setting).is_some()
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The source of the value.
    pub fn source(&self, setting: &Setting) -> SettingSource {
        self.given(setting).map(|given| given.source.clone()).unwrap_or_default()
    }

    /// The value in the type that the program uses.
    pub fn read<T: FromValue>(&self, setting: &Setting) -> Option<T> {
        self.get(setting).and_then(T::from_value)
    }

    /// The value, else the declared default.
    ///
    /// # Panics
    /// If there is neither.
    pub fn value<T: FromValue>(&self, setting: &Setting) -> T {
        self.read(setting).unwrap_or_else(|| setting.default_value())
    }

    /// Writes the value, where there is one, into its field.
    pub fn apply<T: FromValue>(&self, setting: &Setting, field: &mut T) {
        if let Some(value) = self.read(setting) {
            *field = value;
        }
    }

    /// The value as text.
    pub fn show(&self, setting: &Setting) -> Option<String> {
        self.get(setting).map(|value| setting.kind.show(value))
    }

    /// These values, and those of `lower` where these have none.
    #[must_use]
    pub fn or(mut self, lower: &Self) -> Self {
        for given in &lower.0 {
            if let Err(at) = self.index(given.name) {
                self.0.insert(at, given.clone());
            }
        }
        self
    }

    /// These values, and the declared defaults of the settings that have none.
    #[must_use]
    pub fn or_defaults(self, settings: &[&'static Setting]) -> Self {
        self.or_texts(settings, |setting| setting.default)
    }

    /// The same with TorchServe's default where it is another one.
    #[must_use]
    pub fn or_torchserve_defaults(self, settings: &[&'static Setting]) -> Self {
        self.or_texts(settings, |setting| setting.torchserve_default.or(setting.default))
    }

    fn or_texts(
        mut self,
        settings: &[&'static Setting],
        text: impl Fn(&Setting) -> Option<&'static str>,
    ) -> Self {
        for setting in settings {
            let value = text(setting).filter(|_| !self.has(setting));
            if let Some(Ok(value)) = value.map(|text| setting.kind.parse(text)) {
                self.set(setting, value, SettingSource::Default);
            }
        }
        self.0.shrink_to_fit();
        self
    }

    /// Takes over the value of `other` for one setting, if it has one.
    pub fn prefer(&mut self, setting: &Setting, other: &Self) {
        if let Some(given) = other.given(setting) {
            self.put(given.clone());
        }
    }

    /// Only the values of these settings.
    #[must_use]
    pub fn only(&self, settings: &[&Setting]) -> Self {
        let mut values = Self::default();
        settings.iter().for_each(|setting| values.prefer(setting, self));
        values
    }

    /// All values but those of flags.
    #[must_use]
    pub fn without_flags(mut self) -> Self {
        self.0.retain(|given| !matches!(given.source, SettingSource::Flag(_)));
        self
    }

    /// The flag's value; false where there is none.
    pub fn flag(&self, setting: &Setting) -> bool {
        self.read(setting).unwrap_or(false)
    }
}

impl Setting {
    /// The declared default, in the type that the program uses. No other place spells it.
    ///
    /// # Panics
    /// If none is declared. Callers name a setting that has one.
    pub fn default_value<T: FromValue>(&self) -> T {
        let value = self.default.and_then(|text| self.kind.parse(text).ok());
        let value = value.as_ref().and_then(T::from_value);
        value.unwrap_or_else(|| panic!("the setting `{}` has no default of this type", self.name))
    }
}

/// A type that holds values of a setting.
pub trait FromValue: Sized {
    /// The value; nothing if the setting is of another kind.
    fn from_value(value: &SettingValue) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $pattern:pat => $value:expr),* $(,)?) => {$(
        impl FromValue for $type {
            fn from_value(value: &SettingValue) -> Option<Self> {
                if let $pattern = value { $value } else { None }
            }
        }
    )*};
}
from_value! {
    u8: SettingValue::Number(number) => u8::try_from(*number).ok(),
    u16: SettingValue::Number(number) => u16::try_from(*number).ok(),
    u32: SettingValue::Number(number) => u32::try_from(*number).ok(),
    u64: SettingValue::Number(number) => Some(*number),
    usize: SettingValue::Number(number) => usize::try_from(*number).ok(),
    f64: SettingValue::Fraction(part) => Some(*part),
    bool: SettingValue::Flag(flag) => Some(*flag),
    Duration: SettingValue::Time(time) => Some(*time),
    String: SettingValue::Text(text) => Some(text.clone()),
    PathBuf: SettingValue::Text(text) => Some(Self::from(text)),
    Vec<u32>: SettingValue::Numbers(numbers) => Some(numbers.clone()),
    Vec<(String, u32)>: SettingValue::Weights(weights) => Some(weights.clone()),
    Vec<(String, f64)>: SettingValue::Amounts(amounts) => Some(amounts.clone()),
}

macro_rules! to_value {
    ($($type:ty: $value:ident => $made:expr),* $(,)?) => {$(
        impl From<$type> for SettingValue {
            fn from($value: $type) -> Self {
                $made
            }
        }
    )*};
}
to_value! {
    u32: number => Self::Number(number.into()),
    u64: number => Self::Number(number),
    bool: flag => Self::Flag(flag),
    Duration: time => Self::Time(time),
    String: text => Self::Text(text),
    &str: text => Self::Text(text.to_owned()),
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &SettingValue) -> Option<Self> {
        T::from_value(value).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MAX_BATCH_SIZE, QUEUE};

    #[test]
    fn the_first_source_wins_setting_by_setting() {
        let flag = SettingSource::Flag("--queue".to_owned());
        let file = SettingSource::File { path: Path::new("j.yaml").into(), line: Some(3) };
        let upper = Values::default().with(&QUEUE, SettingValue::Number(7), flag.clone());
        let lower = Values::default().with(&QUEUE, SettingValue::Number(8), file.clone()).with(
            &MAX_BATCH_SIZE,
            SettingValue::Number(4),
            file.clone(),
        );
        let both = upper.or(&lower);
        assert_eq!((both.read(&QUEUE), both.source(&QUEUE)), (Some(7_u32), flag));
        assert_eq!((both.read(&MAX_BATCH_SIZE), both.source(&MAX_BATCH_SIZE)), (Some(4_u32), file));
        assert_eq!(both.source(&MAX_BATCH_SIZE).to_string(), "file j.yaml:3");
        assert_eq!(both.read::<bool>(&QUEUE), None, "of another type");
    }
}
