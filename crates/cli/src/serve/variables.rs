//! `JITNEY_*` variables. Each has the name and the values of a flag. OpenTelemetry's own variables count where
//! ours say nothing.

use jitney_settings::{Setting, SettingSource, Values, did_you_mean, model, server};

use crate::env::Env;
use crate::failure::Failure;
use crate::traces;

const PREFIX: &str = "JITNEY_";

/// What the environment sets, and a warning for each variable that is unknown.
pub fn read(env: &Env) -> Result<(Values, Vec<String>), Failure> {
    let (mut values, mut warnings) = (Values::default(), Vec::new());
    for (name, text) in named(env) {
        let key = name[PREFIX.len()..].to_ascii_lowercase();
        if let Some(setting) = known().find(|setting| setting.is_called(&key)) {
            let wrong =
                |expected| Failure::usage(format!("{name} must be {expected}, not {text:?}"));
            let value = setting.kind.parse(text).map_err(wrong)?;
            values.set(setting, value, SettingSource::Variable(name.to_owned()));
        } else if !is_other(name) {
            let names: Vec<String> = known().filter_map(Setting::jitney_variable).collect();
            let hint = did_you_mean(name, names.iter().map(String::as_str));
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            warnings.push(format!("the variable {name} is unknown and has no effect{hint}"));
        }
    }
    Ok((values.or(&traces::variables(env)), warnings))
}

fn known() -> impl Iterator<Item = &'static Setting> {
    server::SETTINGS.iter().chain(model::SETTINGS).copied().filter(|setting| setting.flag.is_some())
}

/// Our variables. Kubernetes sets `JITNEY_PORT=tcp://…` beside a service called jitney; that is not
/// meant for us.
fn named(env: &Env) -> impl Iterator<Item = (&str, &str)> {
    let texts = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    texts.filter(|(name, value)| {
        name.starts_with(PREFIX) && !value.starts_with("tcp://") && !value.starts_with("udp://")
    })
}

/// Variables of other parts of the product, and those that Kubernetes sets for a service.
fn is_other(name: &str) -> bool {
    let numbered = name.split("_PORT_").nth(1);
    const OTHERS: [&str; 6] = [
        "JITNEY_BIN",
        "JITNEY_CONFIG",
        "JITNEY_PLATFORM",
        "JITNEY_URL",
        "JITNEY_INFERENCE_URL",
        "JITNEY_SAGEMAKER_ALLOW_PICKLE",
    ];
    OTHERS.contains(&name)
        || name.contains("TOKEN")
        || name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || numbered.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_as_the_flag_of_its_name() {
        let env = Env::from([
            ("JITNEY_PORT", "9000"),
            ("JITNEY_MAX_LATENCY_MS", "50"),
            ("JITNEY_LOG", "debug"),
            ("JITNEY_ACCESS_LOG", "true"),
            ("JITNEY_MAX_BATCH_SIZE", "4"),
            ("HOME", "/root"),
        ]);
        let (values, warnings) = read(&env).expect("reads");
        assert_eq!(warnings, Vec::<String>::new());
        for (setting, expected) in [
            (&server::INFERENCE_PORT, "9000"),
            (&model::MAX_LATENCY_MS, "50"),
            (&server::LOG_LEVEL, "debug"),
            (&server::ACCESS_LOG, "true"),
            (&model::MAX_BATCH_SIZE, "4"),
        ] {
            assert_eq!(values.show(setting).as_deref(), Some(expected));
        }
        assert_eq!(values.source(&server::LOG_LEVEL).to_string(), "environment JITNEY_LOG");
    }

    #[test]
    fn a_bad_value_names_the_variable_and_what_it_must_be() {
        let failure = read(&Env::from([("JITNEY_PORT", "many")])).expect_err("rejected");
        let expected = "JITNEY_PORT must be a whole number from 0 to 65535, not \"many\"";
        assert_eq!(failure.message, expected);
    }

    #[test]
    fn an_unknown_variable_is_a_warning_with_the_nearest_name() {
        for (typed, nearest) in [("JITNEY_PROT", "JITNEY_PORT"), ("JITNEY_PYTON", "JITNEY_PYTHON")]
        {
            let (_, warnings) = read(&Env::from([(typed, "1")])).expect("reads");
            let expected = format!(
                "the variable {typed} is unknown and has no effect; did you mean `{nearest}`?"
            );
            assert_eq!(warnings, [expected]);
        }
    }

    #[test]
    fn what_kubernetes_sets_for_a_service_is_ignored_in_silence() {
        let env = Env::from([
            ("JITNEY_PORT", "tcp://10.0.0.1:8080"),
            ("JITNEY_SERVICE_HOST", "10.0.0.1"),
            ("JITNEY_SERVICE_PORT", "8080"),
            ("JITNEY_SERVICE_PORT_HTTP", "8080"),
            ("JITNEY_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("JITNEY_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("JITNEY_PORT_8080_TCP_PORT", "8080"),
            ("JITNEY_PORT_8080_TCP_PROTO", "tcp"),
        ]);
        let (values, warnings) = read(&env).expect("reads");
        assert!(values.is_empty() && warnings.is_empty(), "{warnings:?}");
    }
}
