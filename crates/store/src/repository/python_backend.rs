//! A model of Triton's Python backend, as the engine serves it: a directory with `model.py`, served like a definition
//! of one endpoint whose tensors are those of the configuration. An ensemble is such a model without a file: its worker
//! calls the models that the steps name.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::declared::DeclaredTensor;
use super::text_format::ConfigError;
use super::triton::{TritonBackend, TritonConfig};
use crate::package::Api;
use crate::tensor_specs::{ItemForm, PackedTensor, PackedTensors};

/// The model's file in every version's folder.
pub(super) const PYTHON_FILE: &str = "model.py";

/// The name under which its only endpoint is known.
const ENDPOINT: &str = "predict";

/// Where the worker finds the configuration.
const SECTION: &str = "triton";

/// What the worker and the engine need to know of it.
#[derive(Clone, Debug)]
pub struct PythonBackend {
    /// The file in the version's folder; of an ensemble a word that names none.
    pub file: String,
    /// Whether it is an ensemble.
    pub ensemble: bool,
    /// The settings that its worker reads: the whole configuration, under `triton`.
    pub settings: Value,
    /// What it takes and gives.
    pub api: Api,
}

/// What a model adds to its configuration by `auto_complete_config`.
#[derive(Debug, Deserialize)]
pub struct CompletedConfig {
    tensors: PackedTensors,
    /// Most items in a batch; 0 where there are no batches.
    pub max_batch_size: u32,
}

impl PythonBackend {
    /// The configuration, which leaves out tensors that the model itself may name; none where nothing is left out.
    pub fn open_config(&self) -> Option<&Value> {
        let is_open = |it: &PackedTensors| it.inputs.is_empty() || it.outputs.is_empty();
        let asked = !self.ensemble && self.api.tensors.values().any(is_open);
        self.settings.get(SECTION).filter(|_| asked)
    }

    /// What it takes and gives with what the model adds.
    pub fn completed(&self, added: CompletedConfig) -> Api {
        let mut api = self.api.clone();
        if added.max_batch_size > 0 {
            api.batch_sizes.insert(ENDPOINT.to_owned(), added.max_batch_size);
        }
        api.tensors.insert(ENDPOINT.to_owned(), added.tensors);
        api
    }

    /// The model of a configuration.
    pub(super) fn new(name: &str, config: &TritonConfig) -> Result<Self, ConfigError> {
        let declared = &config.declared;
        let tensors = |tensors: &[DeclaredTensor]| {
            let packed = tensors.iter().map(|tensor| packed(tensor, declared.batched));
            packed.collect::<Result<Vec<_>, _>>()
        };
        let batched = declared.batched && config.batch_size.is_some();
        let packed = PackedTensors {
            inputs: tensors(&declared.inputs)?,
            outputs: tensors(&declared.outputs)?,
            items: if batched { ItemForm::Rows } else { ItemForm::Whole },
            batch_dim: 0,
            takes_any: declared.inputs.is_empty(),
        };
        let size = config.batch_size.filter(|_| batched);
        let api = Api {
            endpoints: vec![ENDPOINT.to_owned()],
            batch_sizes: size.map(|size| (ENDPOINT.to_owned(), size)).into_iter().collect(),
            tensors: [(ENDPOINT.to_owned(), packed)].into(),
            triton: true,
            ..Api::default()
        };
        let ensemble = config.backend == TritonBackend::Ensemble;
        let usual = if ensemble { "ensemble" } else { PYTHON_FILE };
        let file = config.file.clone().unwrap_or_else(|| usual.to_owned());
        let settings = json!({ SECTION: told(name, &config.json) });
        Ok(Self { file, ensemble, settings, api })
    }
}

/// The configuration with what is always in it.
fn told(name: &str, json: &Map<String, Value>) -> Value {
    let mut told = Map::new();
    told.insert("name".to_owned(), name.into());
    told.insert("backend".to_owned(), "python".into());
    told.insert("max_batch_size".to_owned(), 0.into());
    for list in ["input", "output"] {
        told.insert(list.to_owned(), Value::Array(Vec::new()));
    }
    told.extend(json.clone());
    told.into()
}

fn packed(tensor: &DeclaredTensor, batched: bool) -> Result<PackedTensor, ConfigError> {
    let wrong = |why: &str| {
        let why = format!("{:?} {why}", tensor.name);
        ConfigError { line: tensor.line, why }
    };
    if tensor.datatype.is_empty() {
        return Err(wrong("has no data_type"));
    }
    if tensor.reshape.is_some() {
        return Err(wrong("has a reshape, which is for ONNX models; model.py can do it"));
    }
    let dims = tensor.dims.as_deref().unwrap_or_default();
    Ok(PackedTensor {
        name: tensor.name.clone(),
        datatype: tensor.datatype.clone(),
        shape: batched.then_some(-1).into_iter().chain(dims.iter().copied()).collect(),
        required: !tensor.optional,
        rows: batched && !tensor.ragged,
        checked: true,
    })
}
