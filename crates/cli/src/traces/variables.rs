//! OpenTelemetry's own variables that say what our settings say.

use jitney_settings::server::{OTLP_ENDPOINT, SERVICE_NAME};
use jitney_settings::{SettingSource, Values};

use crate::env::Env;

/// The variable whose URL is used as it is.
pub const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// What they set. Where OpenTelemetry is disabled (`OTEL_SDK_DISABLED`), they name no collector.
pub fn variables(env: &Env) -> Values {
    let mut values = Values::default();
    let disabled = env.text("OTEL_SDK_DISABLED");
    let disabled = disabled.is_some_and(|text| text.eq_ignore_ascii_case("true"));
    for (name, setting) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &OTLP_ENDPOINT),
        (TRACES_ENDPOINT, &OTLP_ENDPOINT),
        ("OTEL_SERVICE_NAME", &SERVICE_NAME),
    ] {
        let text = env.text(name).filter(|text| !text.is_empty());
        if let Some(text) = text.filter(|_| !disabled) {
            values.set(setting, text.to_owned(), SettingSource::Variable(name.to_owned()));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_for_traces_goes_before_that_for_everything() {
        let env = Env::from([
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
            (TRACES_ENDPOINT, "http://traces/x"),
            ("OTEL_SERVICE_NAME", "shop"),
        ]);
        let values = variables(&env);
        assert_eq!(values.show(&OTLP_ENDPOINT).as_deref(), Some("http://traces/x"));
        assert_eq!(values.show(&SERVICE_NAME).as_deref(), Some("shop"));
        assert!(variables(&env.with("OTEL_SDK_DISABLED", "true")).is_empty());
    }
}
