//! A request of the protocol, whichever way it came, and how REST's JSON and binary tensors become one.

use bytes::Bytes;
use jitney_engine::Model;
use jitney_engine::call::{Priority, SequenceRef};
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::{Datatype, NamedTensor, TensorRequest};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::{Duration, Instant};

use super::check;
use super::elements;
use super::shared_location::{REGION, SharedLocation};
use crate::request_options::RequestOptions;
use crate::shared_memory::SharedReader;

/// Parameters of a request, a tensor or an answer: texts, numbers and truth values by name.
pub(crate) type ParameterMap = Map<String, Value>;

/// A request as a client sent it, before it is compared with what its model takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OpenInferenceRequest {
    /// The client's own id of it; empty if there is none.
    pub(crate) id: String,
    pub(crate) parameters: ParameterMap,
    pub(crate) inputs: Vec<RequestTensor>,
    /// The outputs that it asks for; all of them if it names none.
    pub(crate) outputs: Vec<RequestedOutput>,
}

/// An input with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestTensor {
    pub(crate) tensor: NamedTensor,
    pub(crate) parameters: ParameterMap,
}

/// An output that a client asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestedOutput {
    pub(crate) name: String,
    pub(crate) parameters: ParameterMap,
}

impl RequestedOutput {
    /// How many of the best classes are wanted in place of the scores; none for the scores.
    ///
    /// # Errors
    /// A sentence when that is no such number.
    pub(crate) fn classes(&self) -> Result<Option<usize>, String> {
        let Some(value) = self.parameters.get("classification") else { return Ok(None) };
        let classes = value.as_u64().and_then(|number| usize::try_from(number).ok());
        match classes {
            Some(0) => Ok(None),
            Some(classes) => Ok(Some(classes)),
            None => Err(format!(
                "Output {:?}: parameter \"classification\" must be a whole number, not {value}.",
                self.name
            )),
        }
    }

    /// Whether it says that it comes raw, behind the JSON of the answer, or that it does not.
    pub(crate) fn binary(&self) -> Option<bool> {
        self.parameters.get("binary_data").and_then(Value::as_bool)
    }
}

impl OpenInferenceRequest {
    /// Whether outputs that do not say so themselves come raw.
    pub(crate) fn binary_output(&self) -> bool {
        let said = self.parameters.get("binary_data_output").and_then(Value::as_bool);
        said.unwrap_or(false)
    }

    /// Whether the answer may be nothing but the JSON that a handler gives.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = |output: &RequestedOutput| {
            output.binary() != Some(true)
                && !["classification", REGION].iter().any(|it| output.parameters.contains_key(*it))
        };
        !self.binary_output() && self.outputs.iter().all(plain)
    }

    /// Whether inputs of it lie in shared memory.
    pub(crate) fn is_shared(&self) -> bool {
        self.inputs.iter().any(|input| input.parameters.contains_key(REGION))
    }

    /// What the model gets: every input checked against what the model takes, in the type that it
    /// declares, and the outputs it is asked for.
    ///
    /// # Errors
    /// A sentence that names the model, what it takes and what came.
    pub(crate) fn tensors(&self, model: &Model) -> Result<TensorRequest, String> {
        let outputs = self.outputs.iter().map(|output| output.name.as_str().into()).collect();
        // A definition's endpoints differ in what they take; the engine checks it.
        let Some(signature) = model.signature().filter(|_| model.api().is_none()) else {
            let inputs = self.inputs.iter().map(|input| input.tensor.clone()).collect();
            return Ok(TensorRequest { inputs, outputs });
        };
        let given: Vec<&NamedTensor> = self.inputs.iter().map(|input| &input.tensor).collect();
        let inputs = check::inputs(model.name(), signature, &given)?;
        let asked: Vec<&str> = self.outputs.iter().map(|output| output.name.as_str()).collect();
        check::outputs(model.name(), signature, &asked)?;
        Ok(TensorRequest { inputs, outputs })
    }

    /// The endpoint of a definition that the request names, whose inputs are not those that the model's
    /// metadata tells.
    pub(crate) fn endpoint(&self, model: &Model) -> Option<&str> {
        let named = self.parameters.get("endpoint").and_then(Value::as_str);
        named.filter(|_| model.api().is_some())
    }

    /// Adds what the request's parameters say to its options: `timeout` in microseconds from its start,
    /// and `priority`, of which 1 is the highest. Larger numbers than that mean that it can wait.
    ///
    /// # Errors
    /// A sentence when one of them is no such number.
    pub(crate) fn apply(
        &self,
        started: Instant,
        options: &mut RequestOptions,
    ) -> Result<(), String> {
        let whole = |name: &str| match self.parameters.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                format!("Parameter {name:?} must be a whole number, and not below 0.")
            }),
        };
        if let Some(micros) = whole("timeout")?.filter(|micros| *micros > 0) {
            let deadline = started.checked_add(Duration::from_micros(micros));
            options.deadline = options.deadline.into_iter().chain(deadline).min();
        }
        if whole("priority")?.is_some_and(|priority| priority > 1) {
            options.priority = Priority::Bulk;
        }
        Ok(())
    }

    /// The sequence that the request's parameters name, by a number or a text.
    ///
    /// # Errors
    /// A sentence when they are of another type.
    pub(crate) fn sequence(&self) -> Result<Option<SequenceRef>, String> {
        let id = match self.parameters.get("sequence_id") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                return Err("Parameter \"sequence_id\" must be a number or a text.".to_owned());
            }
        };
        let said = |name: &str| self.parameters.get(name).and_then(Value::as_bool) == Some(true);
        let (starts, ends) = (said("sequence_start"), said("sequence_end"));
        let named = !id.is_empty() && id != "0";
        Ok(named.then_some(SequenceRef { id, starts, ends }))
    }
}

#[derive(Deserialize)]
struct RequestJson<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Option<ParameterMap>,
    #[serde(borrow)]
    inputs: Vec<InputJson<'a>>,
    #[serde(default)]
    outputs: Option<Vec<RequestedOutputJson>>,
}

#[derive(Deserialize)]
struct InputJson<'a> {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    #[serde(default)]
    parameters: Option<ParameterMap>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RequestedOutputJson {
    name: String,
    #[serde(default)]
    parameters: Option<ParameterMap>,
}

/// Reads a body of REST: JSON, of which `json_length` says where raw tensors follow it.
///
/// # Errors
/// A sentence when it is not the protocol's, or contradicts itself.
pub(crate) fn read(
    body: &Bytes,
    json_length: Option<usize>,
    shared: &mut SharedReader<'_>,
) -> Result<OpenInferenceRequest, String> {
    let end = json_length.unwrap_or(body.len());
    let json = body.get(..end).ok_or_else(|| {
        let length = body.len();
        format!("Inference-Header-Content-Length is {end}, and the body has {length} bytes.")
    })?;
    let read: RequestJson<'_> = serde_json::from_slice(json).map_err(|error| {
        format!("the body is not JSON of the Open Inference Protocol: {error}.")
    })?;
    let mut raw = RawTensors { body, at: end };
    let inputs = read.inputs.into_iter().map(|input| {
        let name = input.name.clone();
        tensor(input, &mut raw, shared).map_err(|why| format!("input {name:?}: {why}."))
    });
    let inputs = inputs.collect::<Result<_, _>>()?;
    if raw.at < body.len() {
        let more = body.len() - raw.at;
        return Err(format!("{more} bytes follow the tensors that the request describes."));
    }
    let output = |output: RequestedOutputJson| RequestedOutput {
        name: output.name,
        parameters: output.parameters.unwrap_or_default(),
    };
    Ok(OpenInferenceRequest {
        id: read.id.unwrap_or_default(),
        parameters: read.parameters.unwrap_or_default(),
        inputs,
        outputs: read.outputs.unwrap_or_default().into_iter().map(output).collect(),
    })
}

/// The tensors behind the JSON, in the order of the inputs that come raw.
struct RawTensors<'a> {
    body: &'a Bytes,
    at: usize,
}

impl RawTensors<'_> {
    fn take(&mut self, bytes: u64) -> Result<Bytes, String> {
        let left = self.body.len() - self.at;
        let length = usize::try_from(bytes).ok().filter(|length| *length <= left);
        let length = length.ok_or_else(|| {
            format!("binary_data_size is {bytes}, and {left} bytes are left in the body")
        })?;
        let taken = self.body.slice(self.at..self.at + length);
        self.at += length;
        Ok(taken)
    }
}

fn tensor(
    input: InputJson<'_>,
    raw: &mut RawTensors<'_>,
    shared: &mut SharedReader<'_>,
) -> Result<RequestTensor, String> {
    let InputJson { name, shape, datatype, parameters, data } = input;
    let parameters = parameters.unwrap_or_default();
    let datatype = Datatype::parse(&datatype).ok_or_else(|| unknown_datatype(&datatype))?;
    let shape = sizes(&shape)?;
    let size = match parameters.get("binary_data_size") {
        None => None,
        Some(size) => {
            Some(size.as_u64().ok_or("binary_data_size must be a whole number".to_owned())?)
        }
    };
    let tensor = match (size, SharedLocation::of(&parameters)?, data) {
        (Some(bytes), None, None) => NamedTensor::new(name, datatype, shape, raw.take(bytes)?)?,
        (None, Some(SharedLocation { region, offset, size }), None) => {
            let data = shared.read(region, offset, size).map_err(|problem| problem.message)?;
            NamedTensor::new(name, datatype, shape, data)?
        }
        (None, None, Some(data)) => from_json(name, datatype, shape, data)?,
        (None, None, None) => return Err("it has no data".to_owned()),
        _ => {
            let forms = "data, binary_data_size and shared_memory_region";
            return Err(format!("it has more than one of {forms}"));
        }
    };
    Ok(RequestTensor { tensor, parameters })
}

/// A tensor whose elements are a JSON list, nested or not.
pub(super) fn from_json(
    name: String,
    datatype: Datatype,
    shape: Vec<usize>,
    data: &RawValue,
) -> Result<NamedTensor, String> {
    if !data.get().starts_with('[') {
        return Err("\"data\" must be a list".to_owned());
    }
    let (raw, count) = elements::read(datatype, data.get())?;
    let expected = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
    if expected != Some(count) {
        let expected = expected.map_or_else(|| "too many".to_owned(), |it| it.to_string());
        return Err(format!(
            "{datatype} of shape {shape:?} has {expected} elements, and {count} came"
        ));
    }
    NamedTensor::new(name, datatype, shape, raw)
}

/// A sentence about a type that the protocol does not have.
pub(crate) fn unknown_datatype(name: &str) -> String {
    format!("unknown datatype {name:?}")
}

/// A shape whose sizes are sizes.
///
/// # Errors
/// A sentence when one is negative.
pub(crate) fn sizes(shape: &[i64]) -> Result<Vec<usize>, String> {
    let sizes = shape.iter().map(|size| usize::try_from(*size)).collect::<Result<_, _>>();
    sizes.map_err(|_| format!("the shape {shape:?} has a size below 0"))
}

/// A request whose body is nothing but the elements of the model's only input.
///
/// # Errors
/// A sentence when the model has several, or the bytes do not fit it.
pub(crate) fn raw(
    model: &str,
    signature: &Signature,
    body: &Bytes,
) -> Result<OpenInferenceRequest, String> {
    let [spec] = signature.inputs.as_slice() else {
        let count = signature.inputs.len();
        return Err(format!(
            "Model {model:?} has {count} inputs; a body without JSON is for models with one."
        ));
    };
    let (count, data) = match spec.datatype.width() {
        Some(width) => (body.len() / width, body.clone()),
        None => {
            let mut element = Vec::with_capacity(body.len() + 4);
            elements::put_text(body, &mut element);
            (1, Bytes::from(element))
        }
    };
    let shape = filled(spec, signature.batches(), count).ok_or_else(|| {
        let bytes = body.len();
        format!("Model {model:?}: input {:?} is {spec}, and {bytes} bytes came.", spec.name)
    })?;
    let tensor = NamedTensor::new(spec.name.as_str(), spec.datatype, shape, data)
        .map_err(|why| format!("Model {model:?}: input {:?}: {why}.", spec.name))?;
    let inputs = vec![RequestTensor { tensor, parameters: ParameterMap::new() }];
    Ok(OpenInferenceRequest { inputs, ..OpenInferenceRequest::default() })
}

/// The shape that so many elements have: one open size is as large as they make it.
pub(super) fn filled(spec: &TensorSpec, batches: bool, count: usize) -> Option<Vec<usize>> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Open(_) => None,
    };
    let mut shape: Vec<Option<usize>> = spec.shape.as_deref()?.iter().map(size).collect();
    if batches && shape.iter().filter(|size| size.is_none()).count() > 1 {
        shape[0] = Some(1);
    }
    let fixed = shape.iter().flatten().try_fold(1usize, |all, size| all.checked_mul(*size))?;
    let open = shape.iter().filter(|size| size.is_none()).count();
    let free = count.checked_div(fixed)?;
    (open <= 1).then(|| shape.into_iter().map(|size| size.unwrap_or(free)).collect())
}

#[cfg(test)]
mod tests;
