//! A line of the log as an object: what `--log-format json` writes and what `/logs` answers. The names
//! are an interface for people's scripts: `time`, `level`, `target`, `message`, `fields`.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::log_text::steers;

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct LogLine {
    /// When it was written, in UTC with milliseconds.
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: &'static str,
    /// The part of the program that wrote it.
    pub target: &'static str,
    /// What happened, in words.
    pub message: String,
    /// Of what and whom: `model`, `version`, `worker`, `request_id`, `trace_id` and others.
    pub fields: Map<String, Value>,
}

impl LogLine {
    /// The object on one line.
    pub fn to_json(&self) -> String {
        one_line(self)
    }
}

/// An object on one line. Characters that could steer a terminal are escaped as JSON does.
pub(crate) fn one_line(object: &impl Serialize) -> String {
    let text = serde_json::to_string(object).unwrap_or_default();
    if text.is_ascii() && !text.contains('\x7f') {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        // Writing to memory does not fail.
        let _ = match steers(character) {
            true => write!(escaped, "\\u{:04x}", u32::from(character)),
            false => escaped.write_char(character),
        };
    }
    escaped
}

pub(crate) fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_millis(*time))
}

/// A time in milliseconds, to the microsecond.
pub fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_one_object_whatever_it_tells() {
        let message = "a\nb\u{9b}31m\x7f\u{2028} gr\u{fc}n \x1b[0m";
        let line = LogLine {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_735_689_600_123),
            level: "WARN",
            target: "jitney::x",
            message: message.to_owned(),
            fields: [("worker".to_owned(), json!(9000))].into_iter().collect(),
        };
        let text = line.to_json();
        assert!(!text.contains(steers), "{text}");
        assert!(text.starts_with("{\"time\":\"2025-01-01T00:00:00.123Z\",\"level\":\"WARN\""));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["message"], &read["fields"]["worker"]), (&json!(message), &json!(9000)));
    }
}
