//! What a model is, as the protocol describes it: its metadata, and Triton's configuration of it.

use std::borrow::Cow;

use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::store::PackedTensor;
use jitney_engine::tensors::Datatype;
use jitney_engine::{Engine, Model};
use jitney_proto::kserve as pb;
use jitney_proto::kserve::model_config::SchedulingChoice;
use jitney_proto::kserve::model_input::Format;
use jitney_proto::kserve::model_instance_group::Kind;
use jitney_proto::kserve::model_metadata_response::TensorMetadata;
use jitney_proto::kserve::model_version_policy::{All, PolicyChoice};
use serde_json::{Value, json};

use super::archive;
use crate::errors::Problem;

/// What a model takes and gives; where nobody says so, a body and an answer.
pub(crate) fn signature(model: &Model) -> Cow<'_, Signature> {
    model.signature().map_or_else(|| Cow::Owned(archive::signature()), Cow::Borrowed)
}

/// A model's metadata.
///
/// # Errors
/// The model is gone.
pub(crate) fn metadata(
    engine: &Engine,
    model: &Model,
) -> Result<pb::ModelMetadataResponse, Problem> {
    let versions = engine.versions(model.name())?;
    let tensor = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.as_str().to_owned(),
        shape: spec.shape_or_minus_one(),
    };
    let signature = signature(model);
    Ok(pb::ModelMetadataResponse {
        name: model.name().to_owned(),
        versions: versions.iter().map(|model| model.version().to_owned()).collect(),
        platform: model.settings().runtime.clone(),
        inputs: signature.inputs.iter().map(tensor).collect(),
        outputs: signature.outputs.iter().map(tensor).collect(),
    })
}

/// The same as REST writes it.
pub(crate) fn metadata_json(of: &pb::ModelMetadataResponse) -> Value {
    let tensor = |it: &TensorMetadata| json!({ "name": it.name, "datatype": it.datatype, "shape": it.shape });
    json!({
        "name": of.name,
        "versions": of.versions,
        "platform": of.platform,
        "inputs": of.inputs.iter().map(tensor).collect::<Vec<_>>(),
        "outputs": of.outputs.iter().map(tensor).collect::<Vec<_>>(),
    })
}

/// Triton's configuration of a model, as far as this server has its like.
pub(crate) fn config(model: &Model) -> pb::ModelConfig {
    let (settings, signature) = (model.settings(), signature(model));
    let takes_batches = model.api().is_none_or(|api| !api.batch_sizes.is_empty());
    let batches = model.takes_tensors() && takes_batches && signature.batches();
    // Without the batch dimension, where the model batches.
    let dims = |spec: &TensorSpec| -> Vec<i64> {
        spec.shape_or_minus_one().into_iter().skip(usize::from(batches)).collect()
    };
    let input = |spec: &TensorSpec| {
        let declared = backend_input(model, &spec.name);
        pb::ModelInput {
            name: spec.name.clone(),
            data_type: data_type(spec.datatype),
            format: image_format(&dims(spec)).into(),
            dims: dims(spec),
            allow_ragged_batch: batches && declared.is_some_and(|input| !input.rows),
            optional: declared.is_some_and(|input| !input.required),
            ..pb::ModelInput::default()
        }
    };
    let output = |spec: &TensorSpec| pb::ModelOutput {
        name: spec.name.clone(),
        data_type: data_type(spec.datatype),
        dims: dims(spec),
        ..pb::ModelOutput::default()
    };
    // 0 for a model whose tensors have no batch dimension.
    let max_batch_size = if batches { settings.items_max() } else { 0 };
    let max_batch_size = i32::try_from(max_batch_size).unwrap_or(i32::MAX);
    let scheduling_choice = match (settings.sequences(), max_batch_size) {
        (Some(_), _) => Some(SchedulingChoice::SequenceBatching(Default::default())),
        (None, 2..) => Some(SchedulingChoice::DynamicBatching(pb::ModelDynamicBatching {
            preferred_batch_size: vec![max_batch_size],
            max_queue_delay_microseconds: settings.batch_delay.as_micros() as u64,
            ..pb::ModelDynamicBatching::default()
        })),
        (None, _) => None,
    };
    let kind = if settings.declared.gpu { Kind::Gpu } else { Kind::Cpu };
    let workers = pb::ModelInstanceGroup {
        name: model.name().to_owned(),
        kind: kind.into(),
        count: i32::try_from(model.worker_target().1).unwrap_or(i32::MAX),
        gpus: Vec::new(),
    };
    pb::ModelConfig {
        name: model.name().to_owned(),
        platform: settings.runtime.clone(),
        backend: settings.runtime.clone(),
        version_policy: Some(pb::ModelVersionPolicy {
            policy_choice: Some(PolicyChoice::All(All {})),
        }),
        max_batch_size,
        input: signature.inputs.iter().map(input).collect(),
        output: signature.outputs.iter().map(output).collect(),
        instance_group: vec![workers],
        scheduling_choice,
        ..pb::ModelConfig::default()
    }
}

/// What the configuration of a model of the Python backend says of an input.
fn backend_input<'a>(model: &'a Model, name: &str) -> Option<&'a PackedTensor> {
    let api = model.api().filter(|api| api.triton)?;
    api.tensors.values().flat_map(|tensors| &tensors.inputs).find(|input| input.name == name)
}

/// Triton's name of a type is `TYPE_FP32`.
fn data_type(datatype: Datatype) -> i32 {
    let name = match datatype.as_str() {
        "BYTES" => "TYPE_STRING".to_owned(),
        name => format!("TYPE_{name}"),
    };
    pb::DataType::from_str_name(&name).unwrap_or_default().into()
}

/// Where the channels of an image are, as the shape tells; clients that send images ask for it.
fn image_format(dims: &[i64]) -> Format {
    match dims {
        [1 | 3, _, _] => Format::Nchw,
        [_, _, 1 | 3] => Format::Nhwc,
        _ => Format::None,
    }
}

/// A configuration as Triton writes it over REST.
pub(crate) fn config_json(config: &pb::ModelConfig) -> Value {
    let type_name = |number| pb::DataType::try_from(number).unwrap_or_default().as_str_name();
    let input = |it: &pb::ModelInput| {
        json!({
            "name": it.name,
            "data_type": type_name(it.data_type),
            "dims": it.dims,
            "is_shape_tensor": false,
            "format": Format::try_from(it.format).unwrap_or_default().as_str_name(),
            "allow_ragged_batch": it.allow_ragged_batch,
            "optional": it.optional,
        })
    };
    let output = |it: &pb::ModelOutput| {
        json!({
            "name": it.name,
            "data_type": type_name(it.data_type),
            "dims": it.dims,
            "is_shape_tensor": false,
            "label_filename": "",
        })
    };
    let group = |it: &pb::ModelInstanceGroup| {
        let kind = Kind::try_from(it.kind).unwrap_or_default().as_str_name();
        json!({ "name": it.name, "kind": kind, "count": it.count })
    };
    let mut json = json!({
        "name": config.name,
        "platform": config.platform,
        "backend": config.backend,
        "version_policy": {"all": {}},
        "max_batch_size": config.max_batch_size,
        "input": config.input.iter().map(input).collect::<Vec<_>>(),
        "output": config.output.iter().map(output).collect::<Vec<_>>(),
        "instance_group": config.instance_group.iter().map(group).collect::<Vec<_>>(),
        "default_model_filename": "",
        "parameters": {},
        "model_warmup": [],
    });
    match &config.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(_)) => json["sequence_batching"] = json!({}),
        Some(SchedulingChoice::DynamicBatching(it)) => {
            json["dynamic_batching"] = json!({
                "preferred_batch_size": it.preferred_batch_size,
                "max_queue_delay_microseconds": it.max_queue_delay_microseconds,
                "preserve_ordering": false,
            });
        }
        None => {}
    }
    json
}
