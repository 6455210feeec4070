//! Tensors in the protocol's messages and as they are, both ways.
//!
//! Elements come raw, typed, or in shared memory. A request whose elements are typed is answered in typed
//! contents, any other one raw. Triton knows raw answers only, and its clients expect them, so a model that
//! takes tensors answers typed requests in both forms.

use std::collections::BTreeMap;

use bytes::Bytes;
use jitney_engine::admission::HeldBytes;
use jitney_engine::tensors::{Datatype, NamedTensor, strings};
use jitney_proto::kserve as pb;
use jitney_proto::kserve::infer_parameter::ParameterChoice;
use jitney_proto::kserve::model_infer_request::InferInputTensor;
use jitney_proto::kserve::model_infer_response::InferOutputTensor;
use serde_json::{Number, Value};

use crate::errors::Problem;
use crate::open_inference::answer::{AnswerTensor, OpenInferenceAnswer};
use crate::open_inference::elements;
use crate::open_inference::request::{
    OpenInferenceRequest, ParameterMap, RequestTensor, RequestedOutput, sizes, unknown_datatype,
};
use crate::open_inference::shared::SharedOutputs;
use crate::open_inference::shared_location::SharedLocation;
use crate::shared_memory::{SharedMemory, SharedReader};

type Parameters = BTreeMap<String, pb::InferParameter>;

/// A request as its message says it.
pub(super) struct InferMessage {
    pub(super) request: OpenInferenceRequest,
    /// Whether its elements are typed.
    pub(super) typed: bool,
    /// Where outputs are to be written.
    shared_outputs: SharedOutputs,
    /// The memory of what was read from shared memory.
    pub(super) held: Vec<HeldBytes>,
}

/// Which contents an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerForm {
    pub(super) raw: bool,
    pub(super) typed: bool,
}

impl InferMessage {
    /// # Errors
    /// The message contradicts itself, or shared memory does not have what it names.
    pub(super) fn read(
        message: &pb::ModelInferRequest,
        memory: Option<&SharedMemory>,
        mut reader: SharedReader<'_>,
    ) -> Result<Self, Problem> {
        let (mut raw, mut typed) = (message.raw_input_contents.iter(), false);
        let mut inputs = Vec::with_capacity(message.inputs.len());
        for input in &message.inputs {
            let wrong = |why: String| {
                let (model, name) = (&message.model_name, &input.name);
                Problem::bad_request(format!("Model {model:?}: input {name:?}: {why}."))
            };
            let parameters = parameters(&input.parameters);
            let elements = match SharedLocation::of(&parameters).map_err(wrong)? {
                Some(place) => {
                    Elements::Raw(reader.read(place.region, place.offset, place.size)?)
                }
                None if message.raw_input_contents.is_empty() => Elements::Typed,
                None => match raw.next() {
                    Some(raw) => Elements::Raw(raw.clone()),
                    None => return Err(wrong("raw_input_contents has no entry for it".to_owned())),
                },
            };
            typed |= matches!(elements, Elements::Typed);
            if matches!(elements, Elements::Raw(_)) && input.contents.is_some() {
                // In Triton's words, which clients look for.
                return Err(Problem::bad_request(format!(
                    "contents field must not be specified when using raw_input_contents for '{}' for \
                     model '{}'",
                    input.name, message.model_name
                )));
            }
            let tensor = tensor(input, elements).map_err(wrong)?;
            inputs.push(RequestTensor { tensor, parameters });
        }
        if raw.next().is_some() {
            let (raw, inputs) = (message.raw_input_contents.len(), message.inputs.len());
            return Err(Problem::bad_request(format!(
                "raw_input_contents has {raw} entries, which is too many for {inputs} inputs."
            )));
        }
        let output =
            |output: &pb::model_infer_request::InferRequestedOutputTensor| RequestedOutput {
                name: output.name.clone(),
                parameters: parameters(&output.parameters),
            };
        let request = OpenInferenceRequest {
            id: message.id.clone(),
            parameters: parameters(&message.parameters),
            inputs,
            outputs: message.outputs.iter().map(output).collect(),
        };
        let shared_outputs = SharedOutputs::of(&request, memory)?;
        Ok(Self { request, typed, shared_outputs, held: reader.into_held() })
    }

    /// The message of an answer. Outputs that belong into shared memory are written there.
    ///
    /// # Errors
    /// An output does not fit where the request wants it.
    pub(super) fn reply(
        &self,
        mut answer: OpenInferenceAnswer,
        form: AnswerForm,
    ) -> Result<pb::ModelInferResponse, Problem> {
        answer.share(&self.shared_outputs)?;
        // What is in shared memory has an entry all the same: clients find the others by their place.
        let data = |output: &AnswerTensor| match output.is_shared() {
            true => Bytes::new(),
            false => output.tensor.data().clone(),
        };
        let raw = match form.raw || !self.shared_outputs.is_empty() {
            true => answer.outputs.iter().map(data).collect(),
            false => Vec::new(),
        };
        let outputs = answer.outputs.into_iter().map(|it| output(it, form)).collect();
        Ok(pb::ModelInferResponse {
            model_name: answer.model_name,
            model_version: answer.model_version,
            id: answer.id,
            parameters: written(answer.parameters),
            outputs,
            raw_output_contents: raw,
        })
    }
}

/// The elements of an input.
enum Elements {
    Raw(Bytes),
    Typed,
}

fn tensor(input: &InferInputTensor, elements: Elements) -> Result<NamedTensor, String> {
    let datatype =
        Datatype::parse(&input.datatype).ok_or_else(|| unknown_datatype(&input.datatype))?;
    let data = match elements {
        Elements::Raw(raw) => raw,
        Elements::Typed => {
            let contents = input.contents.as_ref();
            raw(datatype, contents.unwrap_or(&pb::InferTensorContents::default()))?
        }
    };
    NamedTensor::new(input.name.as_str(), datatype, sizes(&input.shape)?, data)
}

/// Typed contents as raw ones.
fn raw(datatype: Datatype, all: &pb::InferTensorContents) -> Result<Bytes, String> {
    macro_rules! put {
        ($from:ident, $to:ty) => {{
            let mut raw = Vec::with_capacity(all.$from.len() * size_of::<$to>());
            for value in &all.$from {
                let fits = <$to>::try_from(*value);
                let value = fits.map_err(|_| format!("{value} does not fit {datatype}"))?;
                raw.extend_from_slice(&value.to_le_bytes());
            }
            raw
        }};
    }
    Ok(Bytes::from(match datatype {
        Datatype::Bool => all.bool_contents.iter().map(|value| u8::from(*value)).collect(),
        Datatype::Int8 => put!(int_contents, i8),
        Datatype::Int16 => put!(int_contents, i16),
        Datatype::Int32 => put!(int_contents, i32),
        Datatype::Int64 => put!(int64_contents, i64),
        Datatype::Uint8 => put!(uint_contents, u8),
        Datatype::Uint16 => put!(uint_contents, u16),
        Datatype::Uint32 => put!(uint_contents, u32),
        Datatype::Uint64 => put!(uint64_contents, u64),
        Datatype::Fp32 => put!(fp32_contents, f32),
        Datatype::Fp64 => put!(fp64_contents, f64),
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(format!("{datatype} comes in raw_input_contents only"));
        }
        Datatype::Bytes => {
            let mut raw = Vec::new();
            all.bytes_contents.iter().for_each(|element| elements::put_text(element, &mut raw));
            raw
        }
    }))
}

fn output(answer: AnswerTensor, form: AnswerForm) -> InferOutputTensor {
    let is_shared = answer.is_shared();
    let AnswerTensor { tensor, mut parameters } = answer;
    if is_shared {
        // Triton's clients expect none then.
        parameters.clear();
    }
    let (mut datatype, mut contents) = (tensor.datatype(), None);
    if form.typed && !is_shared {
        (datatype, contents) = match (typed(&tensor), datatype, form.raw) {
            // Typed contents cannot hold these; the wider type can, if nobody reads them raw.
            (all, Datatype::Fp16 | Datatype::Bf16, false) => (Datatype::Fp32, Some(all)),
            (_, Datatype::Fp16 | Datatype::Bf16, true) => (datatype, None),
            (all, _, _) => (datatype, Some(all)),
        };
    }
    InferOutputTensor {
        name: tensor.name().to_owned(),
        datatype: datatype.as_str().to_owned(),
        shape: tensor.shape().iter().map(|size| *size as i64).collect(),
        parameters: written(parameters),
        contents,
    }
}

/// Raw contents as typed ones.
fn typed(tensor: &NamedTensor) -> pb::InferTensorContents {
    let (mut all, data) = (pb::InferTensorContents::default(), tensor.data());
    macro_rules! put {
        ($number:ty, $to:ident) => {{
            let (numbers, _) = data.as_chunks();
            all.$to = numbers.iter().map(|bytes| <$number>::from_le_bytes(*bytes).into()).collect();
        }};
    }
    match tensor.datatype() {
        Datatype::Bool => all.bool_contents = data.iter().map(|byte| *byte != 0).collect(),
        Datatype::Int8 => put!(i8, int_contents),
        Datatype::Int16 => put!(i16, int_contents),
        Datatype::Int32 => put!(i32, int_contents),
        Datatype::Int64 => put!(i64, int64_contents),
        Datatype::Uint8 => put!(u8, uint_contents),
        Datatype::Uint16 => put!(u16, uint_contents),
        Datatype::Uint32 => put!(u32, uint_contents),
        Datatype::Uint64 => put!(u64, uint64_contents),
        Datatype::Fp32 => put!(f32, fp32_contents),
        Datatype::Fp64 => put!(f64, fp64_contents),
        Datatype::Fp16 | Datatype::Bf16 => {
            let wide = elements::doubles(tensor);
            all.fp32_contents = wide.into_iter().map(|number| number as f32).collect();
        }
        Datatype::Bytes => {
            all.bytes_contents = strings(data).map(|element| data.slice_ref(element)).collect();
        }
    }
    all
}

/// A message's parameters as JSON has them.
fn parameters(from: &Parameters) -> ParameterMap {
    let value = |parameter: &pb::InferParameter| match &parameter.parameter_choice {
        None => Value::Null,
        Some(ParameterChoice::BoolParam(value)) => Value::Bool(*value),
        Some(ParameterChoice::Int64Param(value)) => Value::from(*value),
        Some(ParameterChoice::Uint64Param(value)) => Value::from(*value),
        Some(ParameterChoice::StringParam(value)) => Value::from(value.as_str()),
        Some(ParameterChoice::DoubleParam(value)) => {
            Number::from_f64(*value).map_or(Value::Null, Value::Number)
        }
    };
    from.iter().map(|(name, parameter)| (name.clone(), value(parameter))).collect()
}

/// Parameters as messages have them.
fn written(from: ParameterMap) -> Parameters {
    let choice = |value: Value| match value {
        Value::Null => None,
        Value::Bool(value) => Some(ParameterChoice::BoolParam(value)),
        Value::String(value) => Some(ParameterChoice::StringParam(value)),
        Value::Number(value) => Some(match (value.as_i64(), value.as_u64(), value.as_f64()) {
            (Some(whole), ..) => ParameterChoice::Int64Param(whole),
            (None, Some(whole), _) => ParameterChoice::Uint64Param(whole),
            (None, None, Some(number)) => ParameterChoice::DoubleParam(number),
            (None, None, None) => ParameterChoice::StringParam(value.to_string()),
        }),
        other @ (Value::Array(_) | Value::Object(_)) => {
            Some(ParameterChoice::StringParam(other.to_string()))
        }
    };
    let parameter = |value| pb::InferParameter { parameter_choice: choice(value) };
    from.into_iter().map(|(name, value)| (name, parameter(value))).collect()
}

#[cfg(test)]
mod tests;
