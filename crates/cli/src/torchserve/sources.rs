//! The sources of TorchServe's settings: the file, over it the command line, over that (if the file
//! allows it) the environment.

use jitney_settings::server::MODEL_STORE;
use jitney_settings::torchserve::{
    ALLOWED_URLS, DISABLE_TOKEN_AUTHORIZATION, ENABLE_ENVVARS_CONFIG, ENABLE_MODEL_API,
    LOAD_MODELS, PLUGINS_PATH, TS_OPEN_INFERENCE_PROTOCOL, USE_ENV_ALLOWED_URLS, WORKFLOW_STORE,
    properties, property,
};
use jitney_settings::{
    PropertyEffect, Setting, SettingKind, SettingSource, SettingValue, Values, did_you_mean,
};

use super::properties::Property;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::settings::{flag_values, path_value};
use crate::flags::torchserve::TorchserveFlags;
use crate::traces;

/// What the sources set, and warnings about keys that are unknown or have no effect.
pub fn read(
    file: Vec<Property>,
    flags: &TorchserveFlags,
    env: &Env,
) -> Result<(Values, Vec<String>), Failure> {
    let (mut values, mut warnings) = (Values::default(), Vec::new());
    for property in file {
        let (property, run_on, warning) = unjoined(property);
        warnings.extend(warning);
        for property in [Some(property), run_on].into_iter().flatten() {
            warnings.extend(accept(property, &mut values)?);
        }
    }
    let mut values = given(flags).or(&values);
    if values.flag(&ENABLE_ENVVARS_CONFIG) {
        values = variables(env, values.flag(&USE_ENV_ALLOWED_URLS))?.or(&values);
    }
    // The variable holds always, and names a protocol where the key is a switch: KServe sets `oip`.
    if let Some(text) = env.text("TS_OPEN_INFERENCE_PROTOCOL").filter(|text| !text.is_empty()) {
        let on = text == "oip" || text.eq_ignore_ascii_case("true");
        let source = SettingSource::Variable("TS_OPEN_INFERENCE_PROTOCOL".to_owned());
        values.set(&TS_OPEN_INFERENCE_PROTOCOL, on, source);
    }
    let values = values.or(&traces::variables(env));
    warnings.extend(without_effect(&values));
    Ok((values, warnings))
}

/// AWS's toolkit for PyTorch writes its lines behind a file that ends without a line break, which makes one line of
/// two: `enable_model_api=truedefault_response_timeout=60`. Both are meant.
fn unjoined(line: Property) -> (Property, Option<Property>, Option<String>) {
    let second = line.value.strip_prefix("true").and_then(|rest| rest.split_once('='));
    let second = second.filter(|(key, _)| property(key).is_some());
    let is_flag = property(&line.key).is_some_and(|it| matches!(it.kind, SettingKind::Flag));
    let Some((key, value)) = second.filter(|_| is_flag) else { return (line, None, None) };
    let warning = format!(
        "{} line {}: a line break is missing; read as {}=true and {key}={value}",
        line.file.display(),
        line.line,
        line.key
    );
    let run_on = Property { key: key.to_owned(), value: value.to_owned(), ..line.clone() };
    (Property { value: "true".to_owned(), ..line }, Some(run_on), Some(warning))
}

/// Takes a line of the file; an unknown key is a warning, since TorchServe starts with it.
fn accept(line: Property, values: &mut Values) -> Result<Option<String>, Failure> {
    let place = format!("{} line {}", line.file.display(), line.line);
    let Some(setting) = property(&line.key) else {
        let names = properties().filter_map(|setting| setting.property);
        let hint = did_you_mean(&line.key, names).map(|hint| format!("; {hint}"));
        let hint = hint.unwrap_or_default();
        return Ok(Some(format!("{place}: unknown key `{}` has no effect{hint}", line.key)));
    };
    let source = SettingSource::File { path: line.file, line: Some(line.line) };
    let wrong = |expected| {
        let (key, text) = (&line.key, &line.value);
        Failure::failed(format!("{place}: {key} must be {expected}, not {text:?}"))
    };
    if let Some(value) = parse(setting, &line.value).transpose().map_err(wrong)? {
        values.set(setting, value, source);
    }
    Ok(None)
}

/// An empty value counts as absent. A flag is true only for `true` in any case, as in Java.
fn parse(setting: &Setting, text: &str) -> Option<Result<SettingValue, String>> {
    if text.is_empty() {
        return None;
    }
    let is_flag = matches!(setting.kind, SettingKind::Flag);
    Some(if is_flag {
        Ok(text.eq_ignore_ascii_case("true").into())
    } else {
        setting.kind.parse(text)
    })
}

/// The command line can switch the two permissions on, never off.
fn given(flags: &TorchserveFlags) -> Values {
    let models = (!flags.models.is_empty()).then(|| flags.models.join(",").into());
    let on = |switch: bool| switch.then(|| true.into());
    flag_values([
        (&MODEL_STORE, "model-store", path_value(flags.model_store.as_deref())),
        (&WORKFLOW_STORE, "workflow-store", path_value(flags.workflow_store.as_deref())),
        (&PLUGINS_PATH, "plugins-path", path_value(flags.plugins_path.as_deref())),
        (&LOAD_MODELS, "models", models),
        (&DISABLE_TOKEN_AUTHORIZATION, "disable-token-auth", on(flags.disable_token_auth)),
        (&ENABLE_MODEL_API, "enable-model-api", on(flags.enable_model_api)),
    ])
}

fn variables(env: &Env, urls_allowed: bool) -> Result<Values, Failure> {
    let mut values = Values::default();
    for setting in properties().filter(|it| urls_allowed || it.name != ALLOWED_URLS.name) {
        let Some(name) = setting.torchserve_variable() else { continue };
        let Some(text) = env.text(&name) else { continue };
        let wrong = |expected| Failure::failed(format!("{name} must be {expected}, not {text:?}"));
        if let Some(value) = parse(setting, text).transpose().map_err(wrong)? {
            values.set(setting, value, SettingSource::Variable(name));
        }
    }
    Ok(values)
}

/// Sentences about keys that are set and do nothing.
fn without_effect(values: &Values) -> Vec<String> {
    let (mut java, mut others) = (Vec::new(), Vec::new());
    for setting in properties().filter(|setting| values.has(setting)) {
        match setting.effect {
            PropertyEffect::Java => java.push(setting.name),
            PropertyEffect::Instead(what) => {
                others.push(format!("{} has no effect: {what}", setting.name));
            }
            PropertyEffect::Acts | PropertyEffect::Silent => {}
        }
    }
    if !java.is_empty() {
        java.sort_unstable();
        let names = java.join(", ");
        others.insert(0, format!("accepted without effect, they tune the Java server: {names}"));
    }
    others
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jitney_settings::torchserve::DEBUG;

    use super::*;
    use crate::torchserve::properties::parse;

    fn resolve(
        text: &str,
        flags: &TorchserveFlags,
        env: &Env,
    ) -> Result<(Values, Vec<String>), Failure> {
        let lines = parse(text.as_bytes(), env)?.into_iter();
        let lines =
            lines.map(|line| Property { file: Path::new("config.properties").into(), ..line });
        read(lines.collect(), flags, env)
    }

    fn values(text: &str, flags: &TorchserveFlags, env: &Env) -> Values {
        resolve(text, flags, env).expect("resolves").0
    }

    #[test]
    fn the_environment_wins_over_flags_and_flags_over_the_file() {
        let flags = TorchserveFlags { model_store: Some("flag".into()), ..Default::default() };
        let env = Env::from([("TS_MODEL_STORE", "env")]);
        for (text, env, expected) in [
            ("model_store=file\n", &Env::default(), "flag"),
            ("model_store=file\n", &env, "flag"),
            ("model_store=file\nenable_envvars_config=true\n", &env, "env"),
        ] {
            let values = values(text, &flags, env);
            assert_eq!(values.show(&MODEL_STORE).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn flags_only_switch_permissions_on() {
        let text = "enable_model_api=true\n";
        assert!(values(text, &TorchserveFlags::default(), &Env::default()).flag(&ENABLE_MODEL_API));
    }

    #[test]
    fn urls_from_the_environment_need_a_second_permission() {
        let env = Env::from([("TS_ALLOWED_URLS", "x")]);
        let urls = |text| values(text, &TorchserveFlags::default(), &env).show(&ALLOWED_URLS);
        assert_eq!(urls("enable_envvars_config=true\n"), None);
        let both = "enable_envvars_config=true\nuse_env_allowed_urls=true\n";
        assert_eq!(urls(both).as_deref(), Some("x"));
    }

    #[test]
    fn an_unknown_key_is_a_warning_with_file_line_and_nearest_name() {
        let (values, warnings) =
            resolve("#\njob_queue_sise=1\n", &Default::default(), &Env::default()).expect("starts");
        assert!(values.is_empty());
        let expected = "config.properties line 2: unknown key `job_queue_sise` has no effect; \
                        did you mean `job_queue_size`?";
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn two_lines_without_a_break_are_both_read() {
        let text = "enable_model_api=truedefault_response_timeout=60\n";
        let (values, warnings) =
            resolve(text, &Default::default(), &Env::default()).expect("starts");
        assert!(values.flag(&ENABLE_MODEL_API));
        let timeout = property("default_response_timeout").expect("known");
        assert_eq!(values.show(timeout).as_deref(), Some("60"));
        assert!(
            warnings[0].ends_with("read as enable_model_api=true and default_response_timeout=60")
        );
        let (values, _) =
            resolve("enable_model_api=trueish=1\n", &Default::default(), &Env::default())
                .expect("starts");
        assert!(!values.flag(&ENABLE_MODEL_API), "anything else is no flag, as in Java");
    }

    #[test]
    fn a_wrong_value_names_file_line_and_expectation() {
        let text = "\n\n\n\n\n\njob_queue_size=ten\n";
        let failure = resolve(text, &Default::default(), &Env::default()).expect_err("rejected");
        let expected =
            "config.properties line 7: job_queue_size must be a whole number, not \"ten\"";
        assert_eq!((failure.message.as_str(), failure.code), (expected, 1));
        let env = Env::from([("TS_JOB_QUEUE_SIZE", "ten")]);
        let failure = resolve("enable_envvars_config=true", &Default::default(), &env);
        let expected = "TS_JOB_QUEUE_SIZE must be a whole number, not \"ten\"";
        assert_eq!(failure.expect_err("rejected").message, expected);
    }

    #[test]
    fn only_the_word_true_is_true() {
        for (text, expected) in [("TRUE", true), ("true", true), ("1", false), ("yes", false)] {
            let text = format!("debug={text}");
            assert_eq!(values(&text, &Default::default(), &Env::default()).flag(&DEBUG), expected);
        }
    }

    #[test]
    fn keys_without_effect_are_remarked_on_together() {
        let text = "vmargs=-X\nio_ratio=1\nversion=1\ncpu_launcher_enable=true\n";
        let (_, remarks) = resolve(text, &Default::default(), &Env::default()).expect("resolves");
        assert_eq!(remarks.len(), 2);
        assert!(remarks[0].ends_with("io_ratio, vmargs"));
        assert!(remarks[1].starts_with("cpu_launcher_enable has no effect: "));
    }
}
