//! The effective values: file, then command line, then (if the file allows it) the environment on
//! top. Typed readers say which key is wrong; what the values mean is decided in [`super::config`].

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use super::keys::{self, Effect};
use super::properties::Property;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::nearest::did_you_mean;
use crate::origin::Origin;

/// Key and value, resolved.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<String, Given>);

/// A value and who gave it.
#[derive(Clone, Debug)]
struct Given {
    text: String,
    origin: Origin,
}

impl Values {
    /// Lays the sources over each other.
    pub fn resolve(
        file: Vec<Property>,
        flags: &TorchserveFlags,
        env: &Env,
    ) -> Result<Self, Failure> {
        let mut values = Self::default();
        for property in file {
            values.accept(property)?;
        }
        values.add_flags(flags);
        values.add_environment(env);
        values.add_protocol(env);
        Ok(values)
    }

    fn accept(&mut self, property: Property) -> Result<(), Failure> {
        if keys::effect(&property.key).is_none() {
            let message = format!("unknown key `{}` in line {}", property.key, property.line);
            return Err(
                Failure::failed(message).maybe_hint(did_you_mean(&property.key, keys::names()))
            );
        }
        let origin = Origin::File { path: property.file, line: Some(property.line) };
        self.set(&property.key, property.value, origin);
        Ok(())
    }

    /// The command line can switch the two permissions on, never off.
    fn add_flags(&mut self, flags: &TorchserveFlags) {
        let stores = [
            ("model_store", &flags.model_store, "--model-store"),
            ("workflow_store", &flags.workflow_store, "--workflow-store"),
            ("plugins_path", &flags.plugins_path, "--plugins-path"),
        ];
        for (key, path, flag) in stores {
            if let Some(path) = path {
                self.set(key, path.to_string_lossy(), Origin::Flag(flag.to_owned()));
            }
        }
        if !flags.models.is_empty() {
            self.set("load_models", flags.models.join(","), Origin::Flag("--models".to_owned()));
        }
        let switches = [
            ("disable_token_authorization", flags.disable_token_auth, "--disable-token-auth"),
            ("enable_model_api", flags.enable_model_api, "--enable-model-api"),
        ];
        for (key, _, flag) in switches.into_iter().filter(|(_, on, _)| *on) {
            self.set(key, "true", Origin::Flag(flag.to_owned()));
        }
    }

    /// The variable holds always, and names a protocol where the key is a switch: KServe sets `oip`.
    fn add_protocol(&mut self, env: &Env) {
        if let Some(value) = env.text("TS_OPEN_INFERENCE_PROTOCOL").filter(|text| !text.is_empty())
        {
            let on = value == "oip" || value.eq_ignore_ascii_case("true");
            let origin = Origin::Variable("TS_OPEN_INFERENCE_PROTOCOL".to_owned());
            self.set("ts_open_inference_protocol", on.to_string(), origin);
        }
    }

    fn add_environment(&mut self, env: &Env) {
        if !self.truth("enable_envvars_config", false) {
            return;
        }
        let urls_allowed = self.truth("use_env_allowed_urls", false);
        for (key, variable) in
            keys::variables().filter(|(key, _)| urls_allowed || *key != "allowed_urls")
        {
            if let Some(value) = env.text(&variable) {
                self.set(key, value, Origin::Variable(variable));
            }
        }
    }

    fn set(&mut self, key: &str, text: impl Into<String>, origin: Origin) {
        self.0.insert(key.to_owned(), Given { text: text.into(), origin });
    }

    /// Everything that was given, with who gave it, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Origin)> {
        self.0.iter().map(|(key, given)| (key.as_str(), given.text.as_str(), &given.origin))
    }

    /// Who gave a value.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.0.get(key).map(|given| &given.origin)
    }

    /// A value that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        debug_assert!(keys::effect(key).is_some(), "{key} is not in the table");
        self.0.get(key).map(|given| given.text.as_str()).filter(|value| !value.is_empty())
    }

    /// Java's truth: the word `true` in any case, nothing else.
    pub fn truth(&self, key: &str, default: bool) -> bool {
        self.text(key).map_or(default, |value| value.eq_ignore_ascii_case("true"))
    }

    /// A value of a type that reads itself.
    pub fn read<T: FromStr>(&self, key: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let wrong = || Failure::failed(format!("{key}={text}: not a value this key can have"));
        text.trim().parse().map(Some).map_err(|_| wrong())
    }

    /// A number, or the default.
    pub fn number<T: FromStr>(&self, key: &str, default: T) -> Result<T, Failure> {
        Ok(self.read(key)?.unwrap_or(default))
    }

    /// Sentences about keys that are set and do nothing, grouped by the reason.
    pub fn remarks(&self) -> Vec<String> {
        let java = "accepted without effect, they tune the Java server";
        self.remark(Effect::Java, java).into_iter().chain(self.instead()).collect()
    }

    fn instead(&self) -> impl Iterator<Item = String> {
        self.0.keys().filter_map(|key| match keys::effect(key)? {
            Effect::Instead(what) => Some(format!("{key} has no effect: {what}")),
            Effect::Acts | Effect::Java | Effect::Silent => None,
        })
    }

    fn remark(&self, effect: Effect, reason: &str) -> Option<String> {
        let set = self.0.keys().filter(|key| keys::effect(key) == Some(effect));
        let names: BTreeSet<&str> = set.map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        (!names.is_empty()).then(|| format!("{reason}: {}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torchserve::properties::parse;

    fn resolve(text: &str, flags: &TorchserveFlags, env: &Env) -> Result<Values, Failure> {
        Values::resolve(parse(text.as_bytes(), env)?, flags, env)
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
            let values = resolve(text, &flags, env).expect("resolves");
            assert_eq!(values.text("model_store"), Some(expected), "{text}");
        }
    }

    #[test]
    fn flags_only_switch_permissions_on() {
        let values =
            resolve("enable_model_api=true\n", &TorchserveFlags::default(), &Env::default());
        assert!(values.expect("resolves").truth("enable_model_api", false));
    }

    #[test]
    fn urls_from_the_environment_need_a_second_permission() {
        let env = Env::from([("TS_ALLOWED_URLS", "x")]);
        let values = |text| resolve(text, &TorchserveFlags::default(), &env).expect("resolves");
        assert_eq!(values("enable_envvars_config=true\n").text("allowed_urls"), None);
        let both = "enable_envvars_config=true\nuse_env_allowed_urls=true\n";
        assert_eq!(values(both).text("allowed_urls"), Some("x"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_nearest_name() {
        let failure = resolve(
            "a\njob_queue_sise=1\n".trim_start_matches("a\n"),
            &Default::default(),
            &Env::default(),
        );
        let failure = failure.expect_err("refused");
        assert_eq!(failure.message, "unknown key `job_queue_sise` in line 1");
        assert_eq!(failure.hint.as_deref(), Some("did you mean `job_queue_size`?"));
    }

    #[test]
    fn only_the_word_true_is_true() {
        for (text, expected) in [("TRUE", true), ("true", true), ("1", false), ("yes", false)] {
            let values = resolve(&format!("debug={text}"), &Default::default(), &Env::default());
            assert_eq!(values.expect("resolves").truth("debug", false), expected, "{text}");
        }
    }

    #[test]
    fn keys_without_effect_are_remarked_on_together() {
        let text = "io_ratio=1\nvmargs=-X\nversion=1\ncpu_launcher_enable=true\n";
        let values = resolve(text, &Default::default(), &Env::default()).expect("resolves");
        let remarks = values.remarks();
        assert_eq!(remarks.len(), 2);
        assert!(remarks[0].ends_with("io_ratio, vmargs"));
        assert!(remarks[1].starts_with("cpu_launcher_enable has no effect: pin the whole server"));
    }
}
