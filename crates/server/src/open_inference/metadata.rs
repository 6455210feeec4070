//! What a model is, as the protocol describes it: its metadata, and Triton's configuration of it.

use std::borrow::Cow;

use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::{Engine, Model};
use serde::Serialize;
use serde_json::{Value, json};

use super::archive;
use crate::errors::Problem;

/// A model's metadata.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelMetadata {
    pub(crate) name: String,
    pub(crate) versions: Vec<String>,
    pub(crate) platform: String,
    pub(crate) inputs: Vec<TensorMetadata>,
    pub(crate) outputs: Vec<TensorMetadata>,
}

/// An input or output in the metadata.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TensorMetadata {
    pub(crate) name: String,
    pub(crate) datatype: &'static str,
    /// -1 for an open size.
    pub(crate) shape: Vec<i64>,
}

/// What a model takes and gives; where nobody says so, a body and an answer.
pub(crate) fn signature(model: &Model) -> Cow<'_, Signature> {
    model.signature().map_or_else(|| Cow::Owned(archive::signature()), Cow::Borrowed)
}

/// A model's metadata.
///
/// # Errors
/// The model is gone.
pub(crate) fn metadata(engine: &Engine, model: &Model) -> Result<ModelMetadata, Problem> {
    let versions = engine.versions(model.name())?;
    let tensor = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.as_str(),
        shape: spec.shape_or_minus_one(),
    };
    let signature = signature(model);
    Ok(ModelMetadata {
        name: model.name().to_owned(),
        versions: versions.iter().map(|model| model.version().to_owned()).collect(),
        platform: model.settings().runtime.clone(),
        inputs: signature.inputs.iter().map(tensor).collect(),
        outputs: signature.outputs.iter().map(tensor).collect(),
    })
}

/// An input or output of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct ConfiguredTensor {
    pub(crate) name: String,
    /// Triton's name of the type, `TYPE_FP32`.
    pub(crate) data_type: String,
    /// Without the batch dimension, where the model batches.
    pub(crate) dims: Vec<i64>,
    /// Where the channels of an image are, as the shape tells.
    pub(crate) format: ImageFormat,
}

/// How an image lies in a tensor of three dimensions; clients that send images ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageFormat {
    None,
    ChannelsFirst,
    ChannelsLast,
}

impl ImageFormat {
    fn of(dims: &[i64]) -> Self {
        match dims {
            [1 | 3, _, _] => Self::ChannelsFirst,
            [_, _, 1 | 3] => Self::ChannelsLast,
            _ => Self::None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "FORMAT_NONE",
            Self::ChannelsFirst => "FORMAT_NCHW",
            Self::ChannelsLast => "FORMAT_NHWC",
        }
    }
}

/// Triton's configuration of a model, as far as this server has its like.
#[derive(Clone, Debug)]
pub(crate) struct ModelConfiguration {
    pub(crate) name: String,
    pub(crate) platform: String,
    /// The most items of a batch; 0 for a model whose tensors have no batch dimension.
    pub(crate) max_batch_size: u32,
    pub(crate) input: Vec<ConfiguredTensor>,
    pub(crate) output: Vec<ConfiguredTensor>,
    pub(crate) workers: u32,
    pub(crate) gpu: bool,
    /// The longest time that a request waits for others, in microseconds, where batches wait so.
    pub(crate) max_queue_delay_us: u64,
    pub(crate) stateful: bool,
}

impl ModelConfiguration {
    pub(crate) fn of(model: &Model) -> Self {
        let (settings, signature) = (model.settings(), signature(model));
        let batches = model.takes_tensors() && signature.batches();
        let tensor = |spec: &TensorSpec| {
            let dims: Vec<i64> =
                spec.shape_or_minus_one().into_iter().skip(usize::from(batches)).collect();
            ConfiguredTensor {
                format: ImageFormat::of(&dims),
                name: spec.name.clone(),
                data_type: match spec.datatype.as_str() {
                    "BYTES" => "TYPE_STRING".to_owned(),
                    name => format!("TYPE_{name}"),
                },
                dims,
            }
        };
        Self {
            name: model.name().to_owned(),
            platform: settings.runtime.clone(),
            max_batch_size: if batches { settings.items_max() } else { 0 },
            input: signature.inputs.iter().map(tensor).collect(),
            output: signature.outputs.iter().map(tensor).collect(),
            workers: model.worker_target().1,
            gpu: settings.declared.gpu,
            max_queue_delay_us: settings.batch_delay.as_micros() as u64,
            stateful: settings.sequences().is_some(),
        }
    }

    /// As Triton writes it over REST.
    pub(crate) fn json(&self) -> Value {
        let tensor = |tensor: &ConfiguredTensor, is_input: bool| {
            let mut json = json!({
                "name": tensor.name,
                "data_type": tensor.data_type,
                "dims": tensor.dims,
                "is_shape_tensor": false,
            });
            if is_input {
                json["format"] = tensor.format.as_str().into();
                json["allow_ragged_batch"] = false.into();
                json["optional"] = false.into();
            } else {
                json["label_filename"] = "".into();
            }
            json
        };
        let kind = if self.gpu { "KIND_GPU" } else { "KIND_CPU" };
        let mut json = json!({
            "name": self.name,
            "platform": self.platform,
            "backend": self.platform,
            "version_policy": {"all": {}},
            "max_batch_size": self.max_batch_size,
            "input": self.input.iter().map(|it| tensor(it, true)).collect::<Vec<_>>(),
            "output": self.output.iter().map(|it| tensor(it, false)).collect::<Vec<_>>(),
            "instance_group": [{"name": self.name, "kind": kind, "count": self.workers}],
            "default_model_filename": "",
            "parameters": {},
            "model_warmup": [],
        });
        if self.stateful {
            json["sequence_batching"] = json!({});
        } else if self.max_batch_size > 1 {
            json["dynamic_batching"] = json!({
                "preferred_batch_size": [self.max_batch_size],
                "max_queue_delay_microseconds": self.max_queue_delay_us,
                "preserve_ordering": false,
            });
        }
        json
    }
}
