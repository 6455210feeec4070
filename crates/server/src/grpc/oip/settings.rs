//! Settings of tracing and logging in Triton's words. They say what is so; this server's operator sets them.

use std::collections::BTreeMap;

use jitney_proto::kserve as pb;
use jitney_proto::kserve::log_settings_response::setting_value::ParameterChoice;
use tracing::level_filters::LevelFilter;

use crate::errors::Problem;

/// The server traces nothing in Triton's form.
const TRACE: [(&str, &str); 6] = [
    ("trace_level", "OFF"),
    ("trace_rate", "1000"),
    ("trace_count", "-1"),
    ("log_frequency", "0"),
    ("trace_file", ""),
    ("trace_mode", "triton"),
];

/// The settings of tracing, which no client can change.
pub(super) fn trace_settings(
    message: pb::TraceSettingRequest,
) -> Result<pb::TraceSettingResponse, Problem> {
    for (name, asked) in message.settings {
        let known = TRACE.iter().find(|(known, _)| *known == name);
        let same = known.is_some_and(|(_, value)| asked.value.iter().all(|asked| asked == value));
        if !same {
            return Err(fixed(&name, "This server writes no traces in Triton's form."));
        }
    }
    let value =
        |text: &str| pb::trace_setting_response::SettingValue { value: vec![text.to_owned()] };
    let settings = TRACE.map(|(name, text)| (name.to_owned(), value(text)));
    Ok(pb::TraceSettingResponse { settings: BTreeMap::from(settings) })
}

/// The settings of logging, which no client can change.
pub(super) fn log_settings(
    message: pb::LogSettingsRequest,
) -> Result<pb::LogSettingsResponse, Problem> {
    let logs = |level| ParameterChoice::BoolParam(LevelFilter::current() >= level);
    let verbose = u32::from(LevelFilter::current() >= LevelFilter::DEBUG);
    let settings = BTreeMap::from([
        ("log_file", ParameterChoice::StringParam(String::new())),
        ("log_info", logs(LevelFilter::INFO)),
        ("log_warning", logs(LevelFilter::WARN)),
        ("log_error", logs(LevelFilter::ERROR)),
        ("log_verbose_level", ParameterChoice::Uint32Param(verbose)),
        ("log_format", ParameterChoice::StringParam("default".to_owned())),
    ]);
    for (name, asked) in message.settings {
        if settings.get(name.as_str()).cloned() != asked.parameter_choice.map(answered) {
            return Err(fixed(&name, "The operator sets it with log_level."));
        }
    }
    let value = |choice| pb::log_settings_response::SettingValue { parameter_choice: Some(choice) };
    let settings = settings.into_iter().map(|(name, choice)| (name.to_owned(), value(choice)));
    Ok(pb::LogSettingsResponse { settings: settings.collect() })
}

/// A value as the answer has it.
fn answered(asked: pb::log_settings_request::setting_value::ParameterChoice) -> ParameterChoice {
    use pb::log_settings_request::setting_value::ParameterChoice as Asked;
    match asked {
        Asked::BoolParam(value) => ParameterChoice::BoolParam(value),
        Asked::Uint32Param(value) => ParameterChoice::Uint32Param(value),
        Asked::StringParam(value) => ParameterChoice::StringParam(value),
    }
}

fn fixed(name: &str, why: &str) -> Problem {
    Problem::bad_request(format!("Setting {name:?} cannot be changed by a client. {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_can_be_read_and_written_back_but_not_changed() {
        let read = log_settings(pb::LogSettingsRequest::default()).unwrap();
        assert_eq!(read.settings.len(), 6);
        let level = |number| pb::log_settings_request::SettingValue {
            parameter_choice: Some(
                pb::log_settings_request::setting_value::ParameterChoice::Uint32Param(number),
            ),
        };
        let change = |number| {
            let settings = BTreeMap::from([("log_verbose_level".to_owned(), level(number))]);
            log_settings(pb::LogSettingsRequest { settings }).is_ok()
        };
        assert!(change(0) && !change(7));
        let trace = trace_settings(pb::TraceSettingRequest::default()).unwrap();
        assert_eq!(trace.settings["trace_level"].value, ["OFF"]);
        let timestamps =
            pb::trace_setting_request::SettingValue { value: vec!["TIMESTAMPS".into()] };
        let settings = BTreeMap::from([("trace_level".to_owned(), timestamps)]);
        assert!(
            trace_settings(pb::TraceSettingRequest { settings, ..Default::default() }).is_err()
        );
    }
}
