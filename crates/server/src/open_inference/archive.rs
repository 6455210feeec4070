//! Requests for models that take no tensors, TorchServe's archives above all, and their answers.
//!
//! A handler behind the envelope `kservev2`, or one that speaks the protocol itself, gets its JSON as the
//! body and answers in JSON, as under TorchServe. To any other handler a request is one body: an input
//! of BYTES has one for each of its elements, and each answer becomes an element of the output.

use bytes::Bytes;
use jitney_engine::Model;
use jitney_engine::call::Answer;
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::{Datatype, NamedTensor, strings};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::answer::{AnswerTensor, OpenInferenceAnswer};
use super::elements::{self, BytesForm, JsonList};
use super::request::{
    OpenInferenceRequest, ParameterMap, RequestTensor, from_json, sizes, unknown_datatype,
};
use crate::errors::{ErrorCode, Problem};

/// The input of a model that declares none.
pub(crate) const INPUT: &str = "data";
/// The output of a model that declares none.
pub(crate) const OUTPUT: &str = "output";
/// Bodies that one request may bring.
pub(crate) const BODIES_MAX: usize = 4096;

/// What a handler without tensors takes and gives, as far as anybody can know.
pub(crate) fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Bytes,
        shape: Some(vec![Dim::Open("n".to_owned())]),
    };
    Signature { inputs: vec![spec(INPUT)], outputs: vec![spec(OUTPUT)] }
}

/// The bodies that a request brings for a handler that does not read the protocol: the elements of
/// its only input, which is of BYTES. None where the handler is to read the protocol's JSON.
///
/// # Errors
/// A sentence when there are too many.
pub(crate) fn bodies(
    request: &OpenInferenceRequest,
    model: &Model,
) -> Result<Option<Vec<Bytes>>, String> {
    let [input] = request.inputs.as_slice() else { return Ok(None) };
    let protocol = model.settings().declared.envelope.is_some() || model.api().is_some();
    if protocol || input.tensor.datatype() != Datatype::Bytes {
        return Ok(None);
    }
    let data = input.tensor.data();
    let bodies: Vec<Bytes> = strings(data).map(|element| data.slice_ref(element)).collect();
    if !(1..=BODIES_MAX).contains(&bodies.len()) {
        let (name, count) = (model.name(), bodies.len());
        return Err(format!(
            "Model {name:?} takes 1 to {BODIES_MAX} elements in a request, and {count} came."
        ));
    }
    Ok(Some(bodies))
}

/// The answers to such bodies as one output.
///
/// # Errors
/// A sentence when the answers do not fill it, which does not happen.
pub(crate) fn output(answers: &[Bytes]) -> Result<AnswerTensor, String> {
    let mut raw = Vec::with_capacity(answers.iter().map(|answer| answer.len() + 4).sum());
    answers.iter().for_each(|answer| elements::put_text(answer, &mut raw));
    let tensor = NamedTensor::new(OUTPUT, Datatype::Bytes, [answers.len()], raw.into())?;
    Ok(tensor.into())
}

/// The answer, unless its handler reports a failure with its status.
pub(crate) fn checked(answer: Answer) -> Result<Answer, Problem> {
    let status = answer.output.status.as_ref().map(|(status, _)| *status);
    let Some(status) = status.filter(|status| *status >= 400) else { return Ok(answer) };
    let message = String::from_utf8_lossy(&answer.output.body);
    Err(Problem { status, ..Problem::new(ErrorCode::Prediction, message) })
}

/// Parameters that say how tensors travel, which is over when a handler reads them.
const TRANSPORT: [&str; 6] = [
    "binary_data",
    "binary_data_size",
    "binary_data_output",
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
];

#[derive(Serialize)]
struct HandlerRequestJson<'a> {
    id: &'a str,
    model_name: &'a str,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    parameters: ParameterMap,
    inputs: Vec<HandlerInputJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<HandlerOutputName<'a>>,
}

#[derive(Serialize)]
struct HandlerInputJson<'a> {
    name: &'a str,
    shape: &'a [usize],
    datatype: &'a str,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    parameters: ParameterMap,
    data: JsonList<'a>,
}

#[derive(Serialize)]
struct HandlerOutputName<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    parameters: ParameterMap,
}

/// The request as the protocol's JSON.
///
/// # Errors
/// A sentence when JSON has no place for an input.
pub(crate) fn write(
    request: &OpenInferenceRequest,
    model: &str,
    form: BytesForm,
) -> Result<Bytes, String> {
    let kept = |parameters: &ParameterMap| -> ParameterMap {
        let kept = parameters.iter().filter(|(name, _)| !TRANSPORT.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let input = |input: &RequestTensor| kept(&input.parameters);
    let json = HandlerRequestJson {
        id: &request.id,
        model_name: model,
        parameters: kept(&request.parameters),
        inputs: request
            .inputs
            .iter()
            .map(|it| HandlerInputJson {
                name: it.tensor.name(),
                shape: it.tensor.shape(),
                datatype: it.tensor.datatype().as_str(),
                parameters: input(it),
                data: JsonList(&it.tensor, form),
            })
            .collect(),
        outputs: request
            .outputs
            .iter()
            .map(|it| HandlerOutputName { name: &it.name, parameters: kept(&it.parameters) })
            .collect(),
    };
    serde_json::to_vec(&json).map(Bytes::from).map_err(|error| format!("Input {error}."))
}

#[derive(Deserialize)]
struct HandlerAnswerJson<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model_name: Option<String>,
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    parameters: Option<ParameterMap>,
    #[serde(borrow)]
    outputs: Vec<HandlerTensorJson<'a>>,
}

#[derive(Deserialize)]
struct HandlerTensorJson<'a> {
    name: String,
    datatype: String,
    #[serde(default)]
    shape: Vec<i64>,
    #[serde(default)]
    parameters: Option<ParameterMap>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// A handler's answer in the protocol's JSON. What it leaves out, the request knows.
///
/// # Errors
/// A sentence when it is no such answer.
pub(crate) fn read(
    json: &[u8],
    request: &OpenInferenceRequest,
    model: &Model,
) -> Result<OpenInferenceAnswer, String> {
    let read: HandlerAnswerJson<'_> =
        serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let outputs = read.outputs.into_iter().map(|output| {
        let name = output.name.clone();
        tensor(output).map_err(|why| format!("output {name:?}: {why}"))
    });
    let outputs = outputs.collect::<Result<_, _>>()?;
    let mut answer = OpenInferenceAnswer::new(request, model, outputs);
    let said = |field: &mut String, said: Option<String>| {
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            *field = said;
        }
    };
    said(&mut answer.id, read.id);
    said(&mut answer.model_name, read.model_name);
    said(&mut answer.model_version, read.model_version);
    answer.parameters = read.parameters.unwrap_or_default();
    Ok(answer)
}

fn tensor(output: HandlerTensorJson<'_>) -> Result<AnswerTensor, String> {
    let HandlerTensorJson { name, datatype, shape, parameters, data } = output;
    let datatype = Datatype::parse(&datatype).ok_or_else(|| unknown_datatype(&datatype))?;
    let tensor = match from_json(name.clone(), datatype, sizes(&shape)?, data) {
        Ok(tensor) => tensor,
        // Handlers are easily wrong about their shapes, and their elements say enough.
        Err(_) => {
            let (raw, count) = elements::read(datatype, data.get())?;
            NamedTensor::new(name, datatype, [count], raw)?
        }
    };
    Ok(AnswerTensor { tensor, parameters: parameters.unwrap_or_default() })
}
