//! Triton's `config.pbtxt`: what it says about a model, in our settings. A field that would change answers
//! and that is not supported is an error; one that only tunes Triton is remarked on. A name that Triton
//! does not know either is an error with the nearest known one.

use std::path::{Component, Path};
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, MAX_WORKERS, QUEUE, WORKERS};
use jitney_settings::{SettingSource, Values, did_you_mean};

use super::text_format::{self, ConfigError, PbField, PbValue};

/// What a configuration says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TritonConfig {
    pub(super) settings: Values,
    /// The model's file in every version's folder, where it is named.
    pub(super) file: Option<String>,
    pub(super) versions: VersionPolicy,
    /// The model has no batch dimension: a request is run whole and alone.
    pub(super) whole: bool,
    pub(super) declared: DeclaredTensors,
    /// Label files by output, in the model's folder.
    pub(super) labels: Vec<(String, String)>,
    /// What has no effect here.
    pub(super) remarks: Vec<String>,
}

/// Which versions are served.
#[derive(Debug, PartialEq)]
pub(super) enum VersionPolicy {
    Latest(usize),
    All,
    Specific(Vec<u64>),
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest(1)
    }
}

/// The inputs and outputs that a configuration declares, to be compared with the model's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTensors {
    /// All inputs, if any is declared.
    pub inputs: Vec<DeclaredTensor>,
    /// Some outputs.
    pub outputs: Vec<DeclaredTensor>,
    /// Whether a batch dimension stands before the declared ones.
    pub batched: bool,
}

/// One declared input or output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTensor {
    /// Its name.
    pub name: String,
    /// The element type as the Open Inference Protocol names it; empty where none is declared.
    pub datatype: String,
    /// The dimensions without that of the batch; -1 for an open one. `None` where none are declared.
    pub dims: Option<Vec<i64>>,
    /// Where it is declared, for messages.
    pub line: usize,
}

/// Fields that would change what the model answers.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "ensemble_scheduling",
        "ensembles are not supported; a Python definition can call several models",
    ),
    ("sequence_batching", "sequence batching of ONNX models is not supported"),
    ("batch_input", "batch_input is not supported"),
    ("batch_output", "batch_output is not supported"),
    ("model_operations", "operator libraries are not loaded"),
];

/// Fields that only tune Triton, or that are done here anyway.
const WITHOUT_EFFECT: &[&str] = &[
    "optimization",
    "response_cache",
    "metric_tags",
    "model_repository_agents",
    "cc_model_filenames",
    "runtime",
    "model_metrics",
    "parameters",
];

/// Fields that are read.
const READ: &[&str] = &[
    "name",
    "platform",
    "backend",
    "version_policy",
    "max_batch_size",
    "input",
    "output",
    "dynamic_batching",
    "instance_group",
    "default_model_filename",
    "model_warmup",
    "model_transaction_policy",
];

/// Reads the text of a configuration; `folder` is the model's name, `shown` the file for the sources of
/// its settings.
pub(super) fn read(text: &str, folder: &str, shown: &str) -> Result<TritonConfig, ConfigError> {
    let mut config = TritonConfig::default();
    let source = SettingSource::Archive(shown.to_owned());
    let (mut batch_size, mut instances) = (None, None::<u32>);
    for field in text_format::parse(text)? {
        match field.name.as_str() {
            "name" => {
                let name = field.text()?;
                if !name.is_empty() && name != folder {
                    return Err(field.wrong(format!(
                        "the name {name:?} is not that of the folder, {folder:?}"
                    )));
                }
            }
            "platform" => check_backend(&field, "onnxruntime_onnx")?,
            "backend" => check_backend(&field, "onnxruntime")?,
            "max_batch_size" => batch_size = Some(field.number::<u32>()?),
            "input" => config.declared.inputs.push(declared(&field, &mut config.labels)?),
            "output" => config.declared.outputs.push(declared(&field, &mut config.labels)?),
            "instance_group" => {
                let count = instance_count(&field, &mut config.remarks)?;
                instances = Some(instances.unwrap_or(0).saturating_add(count));
            }
            "dynamic_batching" => dynamic_batching(&field, &mut config, &source)?,
            "version_policy" => config.versions = version_policy(&field)?,
            "default_model_filename" => config.file = Some(file_name(&field)?.to_owned()),
            "model_transaction_policy" => {
                for inner in field.message()? {
                    if inner.name == "decoupled" && inner.is_true()? {
                        return Err(inner.wrong("decoupled models are not supported"));
                    }
                }
            }
            // Every batch size is warmed in any case, with made-up inputs.
            "model_warmup" => {}
            name => other(name, &field, &mut config.remarks)?,
        }
    }
    config.remarks.dedup();
    let declares = !(config.declared.inputs.is_empty() && config.declared.outputs.is_empty());
    config.whole = batch_size == Some(0) || (batch_size.is_none() && declares);
    config.declared.batched = !config.whole;
    if let Some(size) = batch_size.map(|size| size.max(1)).or(config.whole.then_some(1)) {
        config.settings.set(&MAX_BATCH_SIZE, size.min(65535), source.clone());
    }
    if let Some(count) = instances {
        config.settings.set(&WORKERS, count.max(1), source.clone());
        config.settings.set(&MAX_WORKERS, count.max(1), source);
    }
    Ok(config)
}

/// A field that is not read: refused, without effect, or unknown.
fn other(name: &str, field: &PbField, remarks: &mut Vec<String>) -> Result<(), ConfigError> {
    if let Some((_, why)) = UNSUPPORTED.iter().find(|(unsupported, _)| *unsupported == name) {
        return Err(field.wrong(*why));
    }
    if WITHOUT_EFFECT.contains(&name) {
        remarks.push(format!("line {}: {name} has no effect here", field.line));
        return Ok(());
    }
    let known = READ.iter().chain(WITHOUT_EFFECT).chain(UNSUPPORTED.iter().map(|(name, _)| name));
    Err(unknown(field, known.copied()))
}

fn unknown<'a>(field: &PbField, known: impl IntoIterator<Item = &'a str>) -> ConfigError {
    let hint = did_you_mean(&field.name, known).map(|hint| format!("; {hint}"));
    field.wrong(format!("the field {:?} is unknown{}", field.name, hint.unwrap_or_default()))
}

/// Models of other backends are not served.
fn check_backend(field: &PbField, expected: &str) -> Result<(), ConfigError> {
    let given = field.text()?;
    if given.is_empty() || given == expected {
        return Ok(());
    }
    Err(field.wrong(format!(
        "{} {given:?} is not supported; ONNX models are ({}: {expected:?})",
        field.name, field.name
    )))
}

fn declared(
    field: &PbField,
    labels: &mut Vec<(String, String)>,
) -> Result<DeclaredTensor, ConfigError> {
    let mut tensor = DeclaredTensor { line: field.line, ..DeclaredTensor::default() };
    let mut label_file = None;
    for inner in field.message()? {
        match inner.name.as_str() {
            "name" => tensor.name = inner.text()?.to_owned(),
            "data_type" => tensor.datatype = datatype(inner)?,
            "dims" => tensor.dims.get_or_insert_default().push(inner.number()?),
            "label_filename" if !inner.text()?.is_empty() => {
                label_file = Some(file_name(inner)?.to_owned());
            }
            "reshape" => return Err(inner.wrong("reshape is not supported")),
            "is_shape_tensor" | "allow_ragged_batch" if inner.is_true()? => {
                return Err(inner.wrong(format!("{} is not supported", inner.name)));
            }
            "label_filename"
            | "format"
            | "optional"
            | "is_shape_tensor"
            | "allow_ragged_batch"
            | "is_non_linear_format_io" => {}
            _ => {
                return Err(unknown(
                    inner,
                    ["name", "data_type", "dims", "format", "optional", "label_filename"],
                ));
            }
        }
    }
    if tensor.name.is_empty() {
        return Err(field.wrong(format!("an {} without a name", field.name)));
    }
    labels.extend(label_file.map(|file| (tensor.name.clone(), file)));
    Ok(tensor)
}

/// `TYPE_FP32` as the protocol names it.
fn datatype(field: &PbField) -> Result<String, ConfigError> {
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

fn instance_count(field: &PbField, remarks: &mut Vec<String>) -> Result<u32, ConfigError> {
    let mut count = 1;
    for inner in field.message()? {
        match inner.name.as_str() {
            "count" => count = inner.number::<u32>()?.max(1),
            "kind" if inner.word()? == "KIND_GPU" => remarks.push(format!(
                "line {}: KIND_GPU has no effect here; the execution providers of ONNX Runtime are a setting of the server",
                inner.line
            )),
            "kind" | "name" | "gpus" | "profile" | "host_policy" | "rate_limiter" | "secondary_devices" => {}
            "passive" if !inner.is_true()? => {}
            "passive" => return Err(inner.wrong("passive instances are not supported")),
            _ => return Err(unknown(inner, ["count", "kind", "name", "gpus", "profile", "host_policy", "passive"])),
        }
    }
    Ok(count)
}

/// A delay that is given is a window; without one requests meet as the policy `adaptive` finds best.
fn dynamic_batching(
    field: &PbField,
    config: &mut TritonConfig,
    source: &SettingSource,
) -> Result<(), ConfigError> {
    for inner in field.message()? {
        match inner.name.as_str() {
            "max_queue_delay_microseconds" => {
                let delay = Duration::from_micros(inner.number()?);
                if !delay.is_zero() {
                    config.settings.set(&MAX_BATCH_DELAY, delay, source.clone());
                }
            }
            "default_queue_policy" => {
                for policy in inner.message()? {
                    if policy.name == "max_queue_size" && policy.number::<u32>()? > 0 {
                        config.settings.set(&QUEUE, policy.number::<u32>()?, source.clone());
                    } else if policy.name != "max_queue_size" {
                        config.remarks.push(format!(
                            "line {}: {} has no effect here",
                            policy.line, policy.name
                        ));
                    }
                }
            }
            "preferred_batch_size"
            | "preserve_ordering"
            | "priority_levels"
            | "default_priority_level"
            | "priority_queue_policy" => {
                config
                    .remarks
                    .push(format!("line {}: {} has no effect here", inner.line, inner.name));
            }
            _ => {
                return Err(unknown(
                    inner,
                    [
                        "max_queue_delay_microseconds",
                        "preferred_batch_size",
                        "default_queue_policy",
                    ],
                ));
            }
        }
    }
    Ok(())
}

fn version_policy(field: &PbField) -> Result<VersionPolicy, ConfigError> {
    let Some(policy) = field.message()?.first() else { return Ok(VersionPolicy::default()) };
    let inner = policy.message()?;
    match policy.name.as_str() {
        "all" => Ok(VersionPolicy::All),
        "latest" => {
            let count = inner.iter().find(|field| field.name == "num_versions");
            Ok(VersionPolicy::Latest(count.map_or(Ok(1), PbField::number::<usize>)?.max(1)))
        }
        "specific" => {
            let versions = inner.iter().filter(|field| field.name == "versions");
            Ok(VersionPolicy::Specific(
                versions.map(PbField::number::<u64>).collect::<Result<_, _>>()?,
            ))
        }
        _ => Err(unknown(policy, ["latest", "all", "specific"])),
    }
}

/// A file in the model's own folder.
fn file_name(field: &PbField) -> Result<&str, ConfigError> {
    let name = field.text()?;
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain && !name.is_empty() {
        return Ok(name);
    }
    Err(field.wrong(format!("{name:?} does not lie in the model's folder")))
}

impl PbField {
    fn wrong(&self, why: impl Into<String>) -> ConfigError {
        ConfigError { line: self.line, why: why.into() }
    }

    fn message(&self) -> Result<&[Self], ConfigError> {
        match &self.value {
            PbValue::Message(fields) => Ok(fields),
            PbValue::Text(_) | PbValue::Word(_) => {
                Err(self.wrong(format!("{} takes fields in braces", self.name)))
            }
        }
    }

    fn text(&self) -> Result<&str, ConfigError> {
        match &self.value {
            PbValue::Text(text) => Ok(text),
            PbValue::Message(_) | PbValue::Word(_) => {
                Err(self.wrong(format!("{} takes text in quotes", self.name)))
            }
        }
    }

    fn word(&self) -> Result<&str, ConfigError> {
        match &self.value {
            PbValue::Word(word) => Ok(word),
            PbValue::Message(_) | PbValue::Text(_) => {
                Err(self.wrong(format!("{} takes a word", self.name)))
            }
        }
    }

    fn is_true(&self) -> Result<bool, ConfigError> {
        Ok(matches!(self.word()?, "true" | "True" | "t" | "1"))
    }

    fn number<T: std::str::FromStr>(&self) -> Result<T, ConfigError> {
        let word = self.word()?;
        word.parse().map_err(|_| {
            self.wrong(format!("{} is {word}, which is no number that fits", self.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<TritonConfig, ConfigError> {
        read(text, "add", "add/config.pbtxt")
    }

    #[test]
    fn a_configuration_becomes_settings() {
        let config = read_text(
            r#"
            name: "add"
            platform: "onnxruntime_onnx"
            max_batch_size: 16
            input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] } ]
            output [ { name: "y" data_type: TYPE_STRING dims: [ 1 ] label_filename: "labels.txt" } ]
            instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_GPU } ]
            dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 1500
              default_queue_policy { max_queue_size: 7 } }
            version_policy: { specific { versions: [ 1, 3 ] } }
            default_model_filename: "net.onnx"
            model_warmup [ { name: "w" batch_size: 1 } ]
            parameters { key: "a" value { string_value: "b" } }
            "#,
        )
        .unwrap();
        for (setting, value) in
            [(&MAX_BATCH_SIZE, "16"), (&WORKERS, "3"), (&MAX_WORKERS, "3"), (&QUEUE, "7")]
        {
            assert_eq!(config.settings.show(setting).as_deref(), Some(value), "{}", setting.name);
        }
        assert_eq!(config.settings.read(&MAX_BATCH_DELAY), Some(Duration::from_micros(1500)));
        assert_eq!(config.settings.source(&QUEUE).to_string(), "archive add/config.pbtxt");
        assert_eq!((config.file.as_deref(), config.whole), (Some("net.onnx"), false));
        assert_eq!(config.versions, VersionPolicy::Specific(vec![1, 3]));
        assert_eq!(config.labels, [("y".to_owned(), "labels.txt".to_owned())]);
        let input = &config.declared.inputs[0];
        assert_eq!((input.datatype.as_str(), &input.dims), ("FP32", &Some(vec![3, -1])));
        assert_eq!(config.declared.outputs[0].datatype, "BYTES");
        assert!(config.declared.batched);
        assert_eq!(config.remarks.len(), 3, "{:?}", config.remarks);
    }

    #[test]
    fn without_a_batch_size_declared_shapes_are_whole() {
        let input = r#"input { name: "x" data_type: TYPE_INT64 dims: 2 }"#;
        for (text, whole, size) in [
            ("", false, None),
            ("max_batch_size: 0", true, Some("1")),
            (input, true, Some("1")),
            (&format!("max_batch_size: 4 {input}"), false, Some("4")),
        ] {
            let config = read_text(text).unwrap();
            assert_eq!(config.whole, whole, "{text}");
            assert_eq!(config.settings.show(&MAX_BATCH_SIZE).as_deref(), size, "{text}");
        }
        let none = read_text("dynamic_batching { max_queue_delay_microseconds: 0 }").unwrap();
        assert!(!none.settings.has(&MAX_BATCH_DELAY), "no delay is no window");
    }

    #[test]
    fn versions_are_chosen() {
        for (text, expected) in [
            ("", VersionPolicy::Latest(1)),
            ("version_policy { latest { num_versions: 2 } }", VersionPolicy::Latest(2)),
            ("version_policy { latest { } }", VersionPolicy::Latest(1)),
            ("version_policy { all { } }", VersionPolicy::All),
        ] {
            assert_eq!(read_text(text).unwrap().versions, expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_line() {
        for (text, line, why) in [
            ("name: \"other\"", 1, "the name \"other\" is not that of the folder, \"add\""),
            (
                "\nplatform: \"tensorrt_plan\"",
                2,
                "platform \"tensorrt_plan\" is not supported; ONNX models are (platform: \"onnxruntime_onnx\")",
            ),
            (
                "backend: \"python\"",
                1,
                "backend \"python\" is not supported; ONNX models are (backend: \"onnxruntime\")",
            ),
            ("sequence_batching { }", 1, "sequence batching of ONNX models is not supported"),
            (
                "max_batchsize: 3",
                1,
                "the field \"max_batchsize\" is unknown; did you mean `max_batch_size`?",
            ),
            ("max_batch_size: -1", 1, "max_batch_size is -1, which is no number that fits"),
            ("input { data_type: TYPE_FP32 }", 1, "an input without a name"),
            (
                "input {\n name: \"x\"\n data_type: TYPE_FP31 }",
                3,
                "the data type \"TYPE_FP31\" is unknown",
            ),
            ("input { name: \"x\" reshape { shape: [] } }", 1, "reshape is not supported"),
            (
                "model_transaction_policy { decoupled: true }",
                1,
                "decoupled models are not supported",
            ),
            ("default_model_filename: \"../x\"", 1, "\"../x\" does not lie in the model's folder"),
            ("name: 3", 1, "name takes text in quotes"),
        ] {
            assert_eq!(read_text(text), Err(ConfigError { line, why: why.to_owned() }), "{text}");
        }
    }
}
