//! What the fields of a configuration say: text, words, numbers, messages, types; an error names the line.

use jitney_settings::did_you_mean;

use super::text_format::{ConfigError, PbField, PbValue};

/// A field that nobody knows, with the nearest name that somebody does.
pub(super) fn unknown<'a>(
    field: &PbField,
    known: impl IntoIterator<Item = &'a str>,
) -> ConfigError {
    let hint = did_you_mean(&field.name, known).map(|hint| format!("; {hint}"));
    field.wrong(format!("the field {:?} is unknown{}", field.name, hint.unwrap_or_default()))
}

/// `TYPE_FP32` as the protocol names it.
pub(super) fn datatype(field: &PbField) -> Result<String, ConfigError> {
    let given = field.word()?;
    match given.strip_prefix("TYPE_") {
        Some("STRING") => Ok("BYTES".to_owned()),
        Some(
            known @ ("BOOL" | "UINT8" | "UINT16" | "UINT32" | "UINT64" | "INT8" | "INT16" | "INT32"
            | "INT64" | "FP16" | "BF16" | "FP32" | "FP64"),
        ) => Ok(known.to_owned()),
        Some(_) | None => Err(field.wrong(format!("the data type {given:?} is unknown"))),
    }
}

impl PbField {
    pub(super) fn wrong(&self, why: impl Into<String>) -> ConfigError {
        ConfigError { line: self.line, why: why.into() }
    }

    pub(super) fn message(&self) -> Result<&[Self], ConfigError> {
        match &self.value {
            PbValue::Message(fields) => Ok(fields),
            PbValue::Text(_) | PbValue::Word(_) => {
                Err(self.wrong(format!("{} takes fields in braces", self.name)))
            }
        }
    }

    pub(super) fn text(&self) -> Result<&str, ConfigError> {
        match &self.value {
            PbValue::Text(text) => Ok(text),
            PbValue::Message(_) | PbValue::Word(_) => {
                Err(self.wrong(format!("{} takes text in quotes", self.name)))
            }
        }
    }

    pub(super) fn word(&self) -> Result<&str, ConfigError> {
        match &self.value {
            PbValue::Word(word) => Ok(word),
            PbValue::Message(_) | PbValue::Text(_) => {
                Err(self.wrong(format!("{} takes a word", self.name)))
            }
        }
    }

    pub(super) fn is_true(&self) -> Result<bool, ConfigError> {
        Ok(matches!(self.word()?, "true" | "True" | "t" | "1"))
    }

    pub(super) fn number<T: std::str::FromStr>(&self) -> Result<T, ConfigError> {
        let word = self.word()?;
        word.parse().map_err(|_| {
            self.wrong(format!("{} is {word}, which is no number that fits", self.name))
        })
    }
}
