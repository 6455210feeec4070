//! Triton's `config.pbtxt`: what it says about a model, in our settings. A field that would change answers
//! and that is not supported is an error; one that only tunes Triton is remarked on. A name that Triton
//! does not know either is an error with the nearest known one.

use std::path::{Component, Path};

use jitney_settings::model::{CACHE, MAX_BATCH_SIZE};
use jitney_settings::{SettingSource, Values};
use serde_json::{Map, Value};

use super::declared::{DeclaredTensor, DeclaredTensors};
use super::fields::{datatype, unknown};
use super::instance_group::InstanceGroups;
use super::text_format::{self, ConfigError, PbField};
use super::version_policy::{self, VersionPolicy};
use super::{config_json, dynamic_batching, sequence_config};

/// What a configuration says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TritonConfig {
    pub(super) settings: Values,
    /// The model's file in every version's folder, where it is named.
    pub(super) file: Option<String>,
    pub(super) versions: VersionPolicy,
    /// The model has no batch dimension: a request is run whole and alone.
    pub(super) whole: bool,
    /// Most items in a batch, where it says so and there are batches.
    pub(super) batch_size: Option<u32>,
    pub(super) backend: TritonBackend,
    /// What is wrong with it unless it is of the Python backend.
    pub(super) only_python: Option<ConfigError>,
    /// All of it, for models that read it themselves.
    pub(super) json: Map<String, Value>,
    pub(super) declared: DeclaredTensors,
    /// Label files by output, in the model's folder.
    pub(super) labels: Vec<(String, String)>,
    /// What has no effect here.
    pub(super) remarks: Vec<String>,
}

/// What runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TritonBackend {
    /// It does not say so; the files do.
    #[default]
    Unsaid,
    Onnx,
    Python,
    /// A library of Python's reads its files: those of the backends pytorch, fil and openvino.
    Loader,
    /// Other models, one after another.
    Ensemble,
}

/// Fields that would change what the model answers.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("batch_input", "batch_input is not supported"),
    ("batch_output", "batch_output is not supported"),
    ("model_operations", "operator libraries are not loaded"),
];

/// Fields that only tune Triton, or that are done here anyway.
const WITHOUT_EFFECT: &[&str] = &[
    "optimization",
    "metric_tags",
    "model_repository_agents",
    "cc_model_filenames",
    "runtime",
    "model_metrics",
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
    "sequence_batching",
    "ensemble_scheduling",
    "instance_group",
    "default_model_filename",
    "model_warmup",
    "model_transaction_policy",
    "response_cache",
    "parameters",
];

/// Reads the text of a configuration; `folder` is the model's name, `shown` the file for the sources of
/// its settings.
pub(super) fn read(text: &str, folder: &str, shown: &str) -> Result<TritonConfig, ConfigError> {
    read_fields(text_format::parse(text)?, folder, shown)
}

/// The same of its fields.
pub(super) fn read_fields(
    fields: Vec<PbField>,
    folder: &str,
    shown: &str,
) -> Result<TritonConfig, ConfigError> {
    let mut config = TritonConfig::default();
    shown.clone_into(&mut config.declared.file);
    let source = SettingSource::Archive(shown.to_owned());
    let (mut batch_size, mut instances) = (None, InstanceGroups::default());
    let mut parameters = None;
    config.json = config_json::object(&fields);
    for field in fields {
        match field.name.as_str() {
            "name" => check_name(&field, folder)?,
            "platform" | "backend" => config.backend = backend(&field)?.unwrap_or(config.backend),
            "max_batch_size" => batch_size = Some(field.number::<u32>()?),
            "input" => config.declared.inputs.push(declared(&field, &mut config.labels)?),
            "output" => config.declared.outputs.push(declared(&field, &mut config.labels)?),
            "instance_group" => instances.read(&field)?,
            "dynamic_batching" => {
                let said = dynamic_batching::read(&field, &mut config.settings, &source)?;
                config.remarks.extend(said);
            }
            "sequence_batching" => {
                let TritonConfig { declared, settings, remarks, .. } = &mut config;
                remarks.extend(sequence_config::read(&field, declared, settings, &source)?);
            }
            "version_policy" => config.versions = version_policy::read(&field)?,
            "default_model_filename" => config.file = Some(file_name(&field)?.to_owned()),
            "model_transaction_policy" => {
                for inner in field.message()? {
                    if inner.name == "decoupled" && inner.is_true()? {
                        let why = "only models of the Python backend can be decoupled";
                        config.only_python = Some(inner.wrong(why));
                    }
                }
            }
            "response_cache" => response_cache(&field, &mut config.settings, &source)?,
            // Every batch size is warmed in any case, with made-up inputs.
            "model_warmup" => {}
            "parameters" => parameters = parameters.or(Some(field.line)),
            // Its worker reads the steps.
            "ensemble_scheduling" => config.backend = TritonBackend::Ensemble,
            name => other(name, &field, &mut config.remarks)?,
        }
    }
    let onnx = matches!(config.backend, TritonBackend::Onnx | TritonBackend::Unsaid);
    config.remarks.extend(instances.set(onnx, &mut config.settings, &source));
    // A `model.py` reads them itself.
    if let Some(line) = parameters.filter(|_| config.backend != TritonBackend::Python) {
        config.remarks.push(without_effect(line, "parameters"));
    }
    config.remarks.dedup();
    if let Some(ragged) = config.declared.inputs.iter().find(|it| it.ragged) {
        let why = "allow_ragged_batch is for models of the Python backend".to_owned();
        config.only_python = Some(ConfigError { line: ragged.line, why });
    }
    let declares = !(config.declared.inputs.is_empty() && config.declared.outputs.is_empty());
    config.whole = batch_size == Some(0) || (batch_size.is_none() && declares);
    config.declared.batched = !config.whole;
    config.batch_size = batch_size.filter(|size| *size > 0);
    if let Some(size) = batch_size.map(|size| size.max(1)).or(config.whole.then_some(1)) {
        config.settings.set(&MAX_BATCH_SIZE, size.min(65535), source);
    }
    Ok(config)
}

/// Turns the cache on with the bounds that it has by itself: here the whole server's stand on Triton's command line.
fn response_cache(
    field: &PbField,
    settings: &mut Values,
    source: &SettingSource,
) -> Result<(), ConfigError> {
    for inner in field.message()? {
        if inner.name == "enable" && inner.is_true()? {
            settings.set(&CACHE, "{}", source.clone());
        }
    }
    Ok(())
}

fn check_name(field: &PbField, folder: &str) -> Result<(), ConfigError> {
    let name = field.text()?;
    if name.is_empty() || name == folder {
        return Ok(());
    }
    Err(field.wrong(format!("the name {name:?} is not that of the folder, {folder:?}")))
}

/// A field that is not read: refused, without effect, or unknown.
fn other(name: &str, field: &PbField, remarks: &mut Vec<String>) -> Result<(), ConfigError> {
    if let Some((_, why)) = UNSUPPORTED.iter().find(|(unsupported, _)| *unsupported == name) {
        return Err(field.wrong(*why));
    }
    if WITHOUT_EFFECT.contains(&name) {
        remarks.push(without_effect(field.line, name));
        return Ok(());
    }
    let known = READ.iter().chain(WITHOUT_EFFECT).chain(UNSUPPORTED.iter().map(|(name, _)| name));
    Err(unknown(field, known.copied()))
}

fn without_effect(line: usize, name: &str) -> String {
    format!("line {line}: {name} has no effect here")
}

/// What runs the model. Models of other backends are not served.
fn backend(field: &PbField) -> Result<Option<TritonBackend>, ConfigError> {
    let given = field.text()?;
    match (field.name.as_str(), given) {
        (_, "") => Ok(None),
        ("platform", "onnxruntime_onnx") | ("backend", "onnxruntime") => Ok(Some(TritonBackend::Onnx)),
        ("backend", "python") => Ok(Some(TritonBackend::Python)),
        ("platform", "ensemble") => Ok(Some(TritonBackend::Ensemble)),
        ("platform", "pytorch_libtorch" | "torch_aoti" | "fil" | "openvino")
        | ("backend", "pytorch" | "fil" | "openvino") => Ok(Some(TritonBackend::Loader)),
        (name, _) => Err(field.wrong(format!(
            "{name} {given:?} is not supported; ONNX models (platform: \"onnxruntime_onnx\"), Python's \
             (backend: \"python\") and those of the backends pytorch, fil and openvino are"
        ))),
    }
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
            "reshape" => {
                let shape = inner.message()?.iter().filter(|it| it.name == "shape");
                let shape = shape.map(PbField::number::<i64>).collect::<Result<_, _>>()?;
                tensor.reshape = Some(shape);
            }
            "optional" => tensor.optional = inner.is_true()?,
            "allow_ragged_batch" => tensor.ragged = inner.is_true()?,
            "is_shape_tensor" if inner.is_true()? => {
                return Err(inner.wrong("is_shape_tensor is not supported"));
            }
            "label_filename" | "format" | "is_shape_tensor" | "is_non_linear_format_io" => {}
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

/// A file in the model's own folder.
fn file_name(field: &PbField) -> Result<&str, ConfigError> {
    let name = field.text()?;
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain && !name.is_empty() {
        return Ok(name);
    }
    Err(field.wrong(format!("{name:?} does not lie in the model's folder")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jitney_settings::model::{CLIENT_TIMEOUT, MAX_BATCH_DELAY, MAX_WORKERS, QUEUE, WORKERS};

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
              default_queue_policy { max_queue_size: 7 default_timeout_microseconds: 30000 } }
            version_policy: { specific { versions: [ 1, 3 ] } }
            default_model_filename: "net.onnx"
            model_warmup [ { name: "w" batch_size: 1 } ]
            response_cache { enable: true }
            parameters { key: "a" value { string_value: "b" } }
            "#,
        )
        .unwrap();
        for (setting, value) in [
            (&MAX_BATCH_SIZE, "16"),
            (&WORKERS, "3"),
            (&MAX_WORKERS, "3"),
            (&QUEUE, "7"),
            (&CACHE, "{}"),
            (&CLIENT_TIMEOUT, "30"),
        ] {
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
    fn strategies_of_sequences_wait_where_they_say_so() {
        for (strategy, delay, remarks) in [
            ("", None, 0),
            ("oldest { max_candidate_sequences: 4 }", None, 0),
            (
                "oldest { max_queue_delay_microseconds: 2000 preferred_batch_size: [ 2 ] }",
                Some(2),
                1,
            ),
            ("direct { }", None, 0),
            ("direct { max_queue_delay_microseconds: 2000 }", None, 0),
            (
                "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 3000 }",
                Some(3),
                0,
            ),
        ] {
            let config = read_text(&format!("sequence_batching {{ {strategy} }}")).unwrap();
            let expected = delay.map(Duration::from_millis);
            assert_eq!(config.settings.read(&MAX_BATCH_DELAY), expected, "{strategy}");
            assert_eq!(config.remarks.len(), remarks, "{:?}", config.remarks);
        }
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
                "platform \"tensorrt_plan\" is not supported; ONNX models (platform: \"onnxruntime_onnx\"), \
                 Python's (backend: \"python\") and those of the backends pytorch, fil and openvino are",
            ),
            (
                "sequence_batching { state { input_name: \"s\" initial_state { data_file: \"f\" } } }",
                1,
                "data_file is not supported: the state of a new sequence is zeros",
            ),
            (
                "sequence_batching { oldest { max_candidate_sequence: 4 } }",
                1,
                "the field \"max_candidate_sequence\" is unknown; did you mean `max_candidate_sequences`?",
            ),
            (
                "sequence_batching {\n direct { preserve_ordering: true } }",
                2,
                "the field \"preserve_ordering\" is unknown",
            ),
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
            ("default_model_filename: \"../x\"", 1, "\"../x\" does not lie in the model's folder"),
            ("name: 3", 1, "name takes text in quotes"),
        ] {
            assert_eq!(read_text(text), Err(ConfigError { line, why: why.to_owned() }), "{text}");
        }
    }
}
