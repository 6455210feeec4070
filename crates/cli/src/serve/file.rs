//! `jitney.yaml`: settings of the server and of all models, with batching in a section of its own,
//! and a list of models. Unknown keys and wrong values are errors with their line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use jitney_settings::{
    Batching, Setting, SettingKind, SettingSource, SettingValue, Values, did_you_mean, model,
    server,
};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::failure::Failure;
use crate::plan::Startup;

/// The section of settings about batching.
const BATCHING: &str = "batching";

/// The section about the places of a model's workers. A text there is the server's setting of the same name.
const RAY: &str = "ray";

/// The list of models.
const MODELS: &str = "models";

/// The keys of a model's entry that are not settings.
const ENTRY_KEYS: [&str; 7] = ["path", "url", "name", "version", "handler", "sha256", PARTS];

/// The section with the settings of an application's parts.
const PARTS: &str = "parts";

/// How deep lists and mappings may stand in each other; the settings need half of it. A reader that calls itself for
/// each level would otherwise use up its thread's stack.
const DEPTH_MAX: usize = 16;

/// The file's content.
#[derive(Clone, Debug, Default)]
pub struct JitneyYaml {
    /// The settings of the server and of every model.
    pub settings: Values,
    /// The models it lists.
    pub models: Vec<Startup>,
}

/// Reads the file; relative paths in it count from its own directory.
pub fn read(path: &Path) -> Result<JitneyYaml, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    let mut file = parse(&text, path)?;
    let base = path.parent().unwrap_or(Path::new(""));
    for entry in file.models.iter_mut().filter(|entry| !entry.url.contains("://")) {
        entry.url = base.join(&entry.url).to_string_lossy().into_owned();
    }
    for setting in [
        &server::MODEL_STORE,
        &server::TLS_CERT,
        &server::TLS_KEY,
        &server::CLIENT_CA,
        &server::AUDIT_LOG,
        &server::JOBS_DIR,
        &server::KEY_FILE,
        &server::KEYS,
        &server::REGISTRATIONS,
    ] {
        let named = file.settings.read::<String>(setting);
        if let Some(named) = named.filter(|named| !named.contains("://")) {
            let named = base.join(named).to_string_lossy().into_owned();
            let source = file.settings.source(setting);
            file.settings.set(setting, named, source);
        }
    }
    Ok(file)
}

/// Reads a list of models and nothing else; `path` is for its messages, and relative paths stay so.
pub fn list(text: &str, path: &Path) -> Result<Vec<Startup>, Failure> {
    let none = || Failure::usage(format!("{}: it has no list `models`", path.display()));
    let reader = YamlReader { path: path.into() };
    let document = if text.trim().is_empty() { None } else { Some(document(text, path)?) };
    let document = document.ok_or_else(none)?;
    let entries = reader.mapping("the list", &document)?;
    if let Some((other, _)) = entries.iter().find(|(key, _)| key.value != MODELS) {
        return Err(reader.unknown(other, &[MODELS]));
    }
    let (_, node) = entries.first().ok_or_else(none)?;
    reader.models(node)
}

fn document(text: &str, path: &Path) -> Result<Spanned<YamlNode>, Failure> {
    let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
    let options = serde_saphyr::options! { with_snippet: false, budget: budget };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| unreadable(&error, path))
}

fn unreadable(error: &serde_saphyr::Error, path: &Path) -> Failure {
    let path = path.display();
    if let serde_saphyr::Error::Budget { location, .. } = error {
        let line = location.line();
        return Failure::usage(format!(
            "{path} line {line}: lists and mappings stand more than {DEPTH_MAX} deep in each other, or there are too many"
        ));
    }
    let hint = || "YAML is indented with spaces: put some in the place of the tab".to_owned();
    let error = error.to_string();
    let has_tab = error.contains("tab");
    Failure::usage(format!("{path}: {error}")).maybe_hint(has_tab.then(hint))
}

/// Reads the file's text; `path` is for its messages.
fn parse(text: &str, path: &Path) -> Result<JitneyYaml, Failure> {
    if text.trim().is_empty() {
        return Ok(JitneyYaml::default());
    }
    let document = document(text, path)?;
    let reader = YamlReader { path: path.into() };
    let mut file = JitneyYaml::default();
    for (key, node) in reader.mapping("the file", &document)? {
        if key.value == MODELS {
            file.models = reader.models(node)?;
        } else {
            let known = server::SETTINGS.iter().chain(model::SETTINGS).copied();
            reader.setting(key, node, &mut file.settings, known.collect(), &[MODELS])?;
        }
    }
    Ok(file)
}

type YamlMapping = [(Spanned<String>, Spanned<YamlNode>)];

/// Knows the file for sources and messages.
struct YamlReader {
    path: Arc<Path>,
}

impl YamlReader {
    fn models(&self, node: &Spanned<YamlNode>) -> Result<Vec<Startup>, Failure> {
        let YamlNode::List(list) = &node.value else {
            return Err(self.wrong(node, MODELS, "a list", &node.value.to_json()));
        };
        list.iter().map(|entry| self.entry(entry)).collect()
    }

    fn mapping<'a>(
        &self,
        what: &str,
        node: &'a Spanned<YamlNode>,
    ) -> Result<&'a YamlMapping, Failure> {
        match &node.value {
            YamlNode::Mapping(entries) => Ok(entries),
            YamlNode::List(_) | YamlNode::Scalar(_) => {
                Err(self.wrong(node, what, "a mapping", &node.value.to_json()))
            }
        }
    }

    /// Reads one key: a setting of the top, or the section about batching.
    fn setting(
        &self,
        key: &Spanned<String>,
        node: &Spanned<YamlNode>,
        values: &mut Values,
        known: Vec<&'static Setting>,
        others: &[&str],
    ) -> Result<(), Failure> {
        let is_placement = key.value == RAY && matches!(node.value, YamlNode::Mapping(_));
        if is_placement {
            let section: Vec<&Setting> =
                known.iter().filter(|it| it.section == Some(RAY)).copied().collect();
            for (key, node) in self.mapping(RAY, node)? {
                self.value(key, node, values, section.clone(), &[])?;
            }
            return Ok(());
        }
        if key.value != BATCHING {
            let top = known.iter().filter(|it| it.yaml && it.section.is_none()).copied();
            let others = [others, &[BATCHING, RAY]].concat();
            return self.value(key, node, values, top.collect(), &others);
        }
        let section = known.iter().filter(|it| it.section == Some(BATCHING)).copied();
        let section: Vec<&Setting> = section.collect();
        let mut enabled = None;
        for (key, node) in self.mapping(BATCHING, node)? {
            if key.value == Batching::KEY {
                let value = node.value.to_json();
                let flag = value.as_bool();
                let wrong = || self.wrong(node, Batching::KEY, "true or false", &value);
                enabled = Some((Batching::of(flag.ok_or_else(wrong)?), self.source(node)));
            } else {
                self.value(key, node, values, section.clone(), &[Batching::KEY])?;
            }
        }
        if let Some((enabled, source)) = enabled {
            enabled.settle(values, source);
        }
        Ok(())
    }

    fn value(
        &self,
        key: &Spanned<String>,
        node: &Spanned<YamlNode>,
        values: &mut Values,
        known: Vec<&'static Setting>,
        others: &[&str],
    ) -> Result<(), Failure> {
        let Some(setting) = known.iter().find(|setting| setting.is_called(&key.value)) else {
            let names: Vec<&str> =
                known.iter().map(|it| it.name).chain(others.iter().copied()).collect();
            return Err(self.unknown(key, &names));
        };
        let value = node.value.to_json();
        if !value.is_null() {
            let read = setting.kind.from_json(&value);
            let wrong = |expected: String| self.wrong(node, &key.value, &expected, &value);
            values.set(setting, read.map_err(wrong)?, self.source(node));
        }
        Ok(())
    }

    fn entry(&self, node: &Spanned<YamlNode>) -> Result<Startup, Failure> {
        let mut entry = Startup::default();
        for (key, node) in self.mapping("a model", node)? {
            if !ENTRY_KEYS.contains(&key.value.as_str()) {
                self.setting(
                    key,
                    node,
                    &mut entry.settings,
                    model::SETTINGS.to_vec(),
                    &ENTRY_KEYS,
                )?;
                continue;
            }
            if key.value == PARTS {
                entry.parts = self.parts(node)?;
                continue;
            }
            let value = node.value.to_json();
            let wrong = |expected: &str| self.wrong(node, &key.value, expected, &value);
            let text = match SettingKind::Text.from_json(&value) {
                Ok(SettingValue::Text(text)) => text,
                Ok(_) | Err(_) => {
                    return Err(wrong("a text (in quotes where it looks like a number)"));
                }
            };
            match key.value.as_str() {
                "name" => entry.name = Some(text),
                "version" => entry.version = Some(text),
                "handler" => entry.handler = Some(text),
                "sha256" => entry.sha256 = Some(text.parse().map_err(|why: String| wrong(&why))?),
                _ => entry.url = text,
            }
        }
        if entry.url.is_empty() {
            return Err(Failure::usage(format!(
                "{}: a model of the list has no path",
                self.at(node)
            )));
        }
        Ok(entry)
    }

    /// The settings of parts, by their names.
    fn parts(&self, node: &Spanned<YamlNode>) -> Result<BTreeMap<String, Values>, Failure> {
        let mut parts = BTreeMap::new();
        for (name, node) in self.mapping(PARTS, node)? {
            let mut values = Values::default();
            for (key, node) in self.mapping(&name.value, node)? {
                self.setting(key, node, &mut values, model::SETTINGS.to_vec(), &[])?;
            }
            parts.insert(name.value.clone(), values);
        }
        Ok(parts)
    }

    fn source<T>(&self, node: &Spanned<T>) -> SettingSource {
        let line = usize::try_from(node.referenced.line()).ok();
        SettingSource::File { path: Arc::clone(&self.path), line }
    }

    fn at<T>(&self, node: &Spanned<T>) -> String {
        format!("{} line {}", self.path.display(), node.referenced.line())
    }

    fn wrong<T>(&self, node: &Spanned<T>, key: &str, expected: &str, value: &Value) -> Failure {
        Failure::usage(format!("{}: {key} must be {expected}, not {value}", self.at(node)))
    }

    fn unknown(&self, key: &Spanned<String>, known: &[&str]) -> Failure {
        let list = || format!("known keys: {}", known.join(", "));
        let hint = did_you_mean(&key.value, known.iter().copied()).unwrap_or_else(list);
        Failure::usage(format!("{}: unknown key `{}`", self.at(key), key.value)).hint(hint)
    }
}

/// A YAML document with the line of everything in it.
enum YamlNode {
    Mapping(Vec<(Spanned<String>, Spanned<YamlNode>)>),
    List(Vec<Spanned<YamlNode>>),
    Scalar(Value),
}

impl YamlNode {
    fn to_json(&self) -> Value {
        match self {
            Self::Mapping(entries) => entries
                .iter()
                .map(|(key, node)| (key.value.clone(), node.value.to_json()))
                .collect(),
            Self::List(list) => list.iter().map(|node| node.value.to_json()).collect(),
            Self::Scalar(value) => value.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlNode::Mapping(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<YamlNode, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(YamlNode::List(nodes))
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(flag.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(text.into()))
    }
}

#[cfg(any(test, fuzzing))]
#[path = "file_fuzzing.rs"]
pub mod fuzzing;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<JitneyYaml, Failure> {
        parse(text, Path::new("jitney.yaml"))
    }

    #[test]
    fn the_documented_structure_is_read_with_its_lines() {
        let file = parsed(
            "# note\nport: 9000\nmax_request_size: 64MiB\nbatching: {policy: adaptive, max_latency_ms: 50ms}\n\
             models:\n  - path: a.mar\n    name: a\n    version: '1.10'\n    workers: 2\n    \
             batching: {batch_size: 8, sizes: [1, 8], tenants: {gold: 4}}\n    \
             parts: {b: {workers: 3}}\n",
        )
        .expect("reads");
        for (setting, value, line) in [
            (&server::INFERENCE_PORT, "9000", 2),
            (&server::MAX_REQUEST_SIZE, "67108864", 3),
            (&model::POLICY, "adaptive", 4),
            (&model::MAX_LATENCY_MS, "50", 4),
        ] {
            assert_eq!(file.settings.show(setting).as_deref(), Some(value));
            let source = format!("file jitney.yaml:{line}");
            assert_eq!(file.settings.source(setting).to_string(), source);
        }
        let entry = &file.models[0];
        assert_eq!((entry.url.as_str(), entry.version.as_deref()), ("a.mar", Some("1.10")));
        for (setting, value) in [
            (&model::WORKERS, "2"),
            (&model::MAX_BATCH_SIZE, "8"),
            (&model::SIZES, "1,8"),
            (&model::TENANTS, "gold:4"),
        ] {
            assert_eq!(entry.settings.show(setting).as_deref(), Some(value));
        }
        assert_eq!(entry.settings.source(&model::WORKERS).to_string(), "file jitney.yaml:9");
        assert_eq!(entry.parts["b"].show(&model::WORKERS).as_deref(), Some("3"));
    }

    #[test]
    fn unknown_keys_are_errors_with_line_and_nearest_name() {
        for (text, line, hint) in [
            ("prot: 8080\n", "jitney.yaml line 1: unknown key `prot`", "did you mean `port`?"),
            (
                "host: a\nbatching:\n  max_batchsize: 4\n",
                "line 3",
                "did you mean `max_batch_size`?",
            ),
            ("models:\n  - path: a\n    worker: 4\n", "line 3", "did you mean `workers`?"),
        ] {
            let failure = parsed(text).expect_err(text);
            assert!(failure.message.contains(line), "{text}: {}", failure.message);
            assert_eq!(failure.hint.as_deref(), Some(hint), "{text}");
            assert_eq!(failure.code, crate::failure::USAGE);
        }
    }

    #[test]
    fn wrong_values_name_file_line_and_expectation() {
        for (text, message) in [
            (
                "port: 99999\n",
                "jitney.yaml line 1: port must be a whole number from 0 to 65535, not 99999",
            ),
            (
                "\nport: many\n",
                "jitney.yaml line 2: port must be a whole number from 0 to 65535, not \"many\"",
            ),
            (
                "batching: {policy: sometimes}\n",
                "jitney.yaml line 1: policy must be one of adaptive, window, opportunistic, not \"sometimes\"",
            ),
            ("models: 3\n", "jitney.yaml line 1: models must be a list, not 3"),
            ("models:\n  - name: a\n", "jitney.yaml line 2: a model of the list has no path"),
            ("3\n", "jitney.yaml line 1: the file must be a mapping, not 3"),
        ] {
            assert_eq!(parsed(text).expect_err(text).message, message);
        }
        let time = parsed("drain_timeout: soon\n").expect_err("rejected").message;
        assert!(time.ends_with(
            "must be a time such as 10ms, 2s or 1m, or a number of seconds, not \"soon\""
        ));
        assert!(parsed("port: [\n").expect_err("rejected").message.starts_with("jitney.yaml: "));
    }

    #[test]
    fn deep_nesting_is_refused_before_it_uses_up_the_stack() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let nested = |depth| format!("models: {}{}", open.repeat(depth), close.repeat(depth));
            let message = |depth| parsed(&nested(depth)).expect_err("rejected").message;
            let said = message(60);
            assert!(said.starts_with("jitney.yaml line 1: lists and mappings"), "{said}");
            assert!(message(DEPTH_MAX - 1).contains("must be"), "{}", message(DEPTH_MAX - 1));
        }
    }
}
