//! `default_queue_policy` of a Triton configuration: how many requests may wait, and how long.

use std::time::Duration;

use jitney_settings::model::{CLIENT_TIMEOUT, QUEUE};
use jitney_settings::{SettingSource, Values};

use super::fields::unknown;
use super::text_format::{ConfigError, PbField};

/// Reads the field into settings; what has no effect is told.
pub(super) fn read(
    field: &PbField,
    settings: &mut Values,
    source: &SettingSource,
) -> Result<Vec<String>, ConfigError> {
    let (mut timeout, mut delays, mut remarks) = (Duration::ZERO, false, Vec::new());
    for inner in field.message()? {
        match inner.name.as_str() {
            "max_queue_size" if inner.number::<u32>()? > 0 => {
                settings.set(&QUEUE, inner.number::<u32>()?, source.clone());
            }
            "max_queue_size" => {}
            "default_timeout_microseconds" => timeout = Duration::from_micros(inner.number()?),
            "timeout_action" => delays = inner.word()? == "DELAY",
            "allow_timeout_override" => remarks.push(format!(
                "line {}: allow_timeout_override has no effect here: requests may always name a timeout",
                inner.line
            )),
            _ => {
                let known = ["max_queue_size", "default_timeout_microseconds", "timeout_action"];
                return Err(unknown(inner, known.into_iter().chain(["allow_timeout_override"])));
            }
        }
    }
    if timeout.is_zero() {
        return Ok(remarks);
    }
    if delays {
        remarks.push(format!(
            "line {}: default_timeout_microseconds has no effect with timeout_action DELAY: no request is put behind \
             others here",
            field.line
        ));
    } else {
        settings.set(&CLIENT_TIMEOUT, timeout.max(Duration::from_millis(1)), source.clone());
    }
    Ok(remarks)
}

#[cfg(test)]
mod tests {
    use super::super::text_format::parse;
    use super::*;

    #[test]
    fn a_timeout_that_rejects_is_the_deadline_of_requests_and_one_that_delays_is_none() {
        for (text, expected, remarks) in [
            ("default_timeout_microseconds: 30000", Some(30), 0),
            ("default_timeout_microseconds: 7 timeout_action: REJECT", Some(1), 0),
            ("default_timeout_microseconds: 30000 timeout_action: DELAY", None, 1),
            ("timeout_action: DELAY", None, 0),
            ("default_timeout_microseconds: 0 allow_timeout_override: true", None, 1),
        ] {
            let fields = parse(&format!("default_queue_policy {{ {text} }}")).expect("a text");
            let mut settings = Values::default();
            let source = SettingSource::Archive("f".to_owned());
            let said = read(&fields[0], &mut settings, &source).expect("a policy");
            let expected = expected.map(Duration::from_millis);
            assert_eq!(settings.read(&CLIENT_TIMEOUT), expected, "{text}");
            assert_eq!(said.len(), remarks, "{text}: {said:?}");
        }
    }
}
