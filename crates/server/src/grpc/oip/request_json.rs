//! A request's tensors written as the protocol's JSON, straight from the message's own bytes.
//!
//! BYTES are base64, as TorchServe writes them. Numbers that JSON cannot hold (NaN, infinities)
//! become `null`. Raw contents are checked against the shape first.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jitney_proto::openinference::infer_parameter::ParameterChoice;
use jitney_proto::openinference::model_infer_request::InferInputTensor;
use jitney_proto::openinference::{InferParameter, InferTensorContents, ModelInferRequest};
use serde::{Serialize, Serializer};

use super::datatype::{TensorDatatype, brain, half, split};

#[derive(Serialize)]
struct InferRequestJson<'a> {
    id: &'a str,
    model_name: &'a str,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: Parameters<'a>,
    inputs: Vec<InputTensorJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<RequestedTensor<'a>>,
}

#[derive(Serialize)]
struct InputTensorJson<'a> {
    name: &'a str,
    shape: &'a [i64],
    datatype: &'a str,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: Parameters<'a>,
    data: Elements<'a>,
}

#[derive(Serialize)]
struct RequestedTensor<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: Parameters<'a>,
}

/// The request as JSON, or what is wrong with it.
pub(super) fn write(request: &ModelInferRequest) -> Result<Bytes, String> {
    let raw = &request.raw_input_contents;
    if !raw.is_empty() && raw.len() != request.inputs.len() {
        let (raw, inputs) = (raw.len(), request.inputs.len());
        return Err(format!("raw_input_contents has {raw} entries for {inputs} inputs"));
    }
    let inputs = request.inputs.iter().enumerate().map(|(place, input)| {
        tensor(input, raw.get(place)).map_err(|why| format!("input {:?}: {why}", input.name))
    });
    let request_json = InferRequestJson {
        id: &request.id,
        model_name: &request.model_name,
        parameters: Parameters(&request.parameters),
        inputs: inputs.collect::<Result<_, _>>()?,
        outputs: request
            .outputs
            .iter()
            .map(|output| RequestedTensor {
                name: &output.name,
                parameters: Parameters(&output.parameters),
            })
            .collect(),
    };
    serde_json::to_vec(&request_json).map(Bytes::from).map_err(|error| error.to_string())
}

fn tensor<'a>(
    input: &'a InferInputTensor,
    raw: Option<&'a Bytes>,
) -> Result<InputTensorJson<'a>, String> {
    let element = TensorDatatype::parse(&input.datatype)?;
    let data = match (raw, &input.contents) {
        (Some(_), Some(_)) => return Err("it has both contents and raw contents".to_owned()),
        (Some(raw), None) => Elements::raw(element, raw, &input.shape)?,
        (None, _) if [TensorDatatype::Fp16, TensorDatatype::Bf16].contains(&element) => {
            return Err(format!("{} comes in raw_input_contents only", input.datatype));
        }
        (None, Some(contents)) => Elements::Typed(element, contents),
        (None, None) => Elements::None,
    };
    let parameters = Parameters(&input.parameters);
    Ok(InputTensorJson {
        name: &input.name,
        shape: &input.shape,
        datatype: &input.datatype,
        parameters,
        data,
    })
}

/// A tensor's elements where they came.
enum Elements<'a> {
    None,
    Typed(TensorDatatype, &'a InferTensorContents),
    Raw(TensorDatatype, &'a [u8]),
    Parts(Vec<&'a [u8]>),
}

impl<'a> Elements<'a> {
    fn raw(element: TensorDatatype, raw: &'a [u8], shape: &[i64]) -> Result<Self, String> {
        let elements = shape.iter().try_fold(1usize, |product, size| {
            usize::try_from(*size).ok().and_then(|size| product.checked_mul(size))
        });
        let elements = elements.ok_or_else(|| format!("{shape:?} is not a valid shape"))?;
        if element == TensorDatatype::Bytes {
            let parts = split(raw)?;
            let found = parts.len();
            return fits(found, elements, "elements").map(|()| Self::Parts(parts));
        }
        let bytes = elements.saturating_mul(element.width());
        fits(raw.len(), bytes, "bytes").map(|()| Self::Raw(element, raw))
    }
}

fn fits(found: usize, expected: usize, what: &str) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found} {what} came raw, its shape and datatype make {expected}"))
}

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => to.collect_seq::<[u8; 0]>([]),
            Self::Typed(element, contents) => typed(*element, contents, to),
            Self::Raw(element, raw) => numbers(*element, raw, to),
            Self::Parts(parts) => to.collect_seq(parts.iter().map(|part| STANDARD.encode(part))),
        }
    }
}

fn typed<S: Serializer>(
    element: TensorDatatype,
    contents: &InferTensorContents,
    to: S,
) -> Result<S::Ok, S::Error> {
    match element {
        TensorDatatype::Bool => to.collect_seq(&contents.bool_contents),
        TensorDatatype::Int8 | TensorDatatype::Int16 | TensorDatatype::Int32 => {
            to.collect_seq(&contents.int_contents)
        }
        TensorDatatype::Int64 => to.collect_seq(&contents.int64_contents),
        TensorDatatype::Uint8 | TensorDatatype::Uint16 | TensorDatatype::Uint32 => {
            to.collect_seq(&contents.uint_contents)
        }
        TensorDatatype::Uint64 => to.collect_seq(&contents.uint64_contents),
        TensorDatatype::Fp16 | TensorDatatype::Bf16 | TensorDatatype::Fp32 => {
            to.collect_seq(&contents.fp32_contents)
        }
        TensorDatatype::Fp64 => to.collect_seq(&contents.fp64_contents),
        TensorDatatype::Bytes => {
            to.collect_seq(contents.bytes_contents.iter().map(|part| STANDARD.encode(part)))
        }
    }
}

fn numbers<S: Serializer>(element: TensorDatatype, raw: &[u8], to: S) -> Result<S::Ok, S::Error> {
    macro_rules! each {
        ($number:ty, $read:expr) => {{
            let (numbers, _) = raw.as_chunks();
            to.collect_seq(numbers.iter().map(|bytes| $read(<$number>::from_le_bytes(*bytes))))
        }};
        ($number:ty) => {
            each!($number, std::convert::identity)
        };
    }
    match element {
        TensorDatatype::Bool => to.collect_seq(raw.iter().map(|byte| *byte != 0)),
        TensorDatatype::Int8 => each!(i8),
        TensorDatatype::Int16 => each!(i16),
        TensorDatatype::Int32 => each!(i32),
        TensorDatatype::Int64 => each!(i64),
        TensorDatatype::Uint8 => each!(u8),
        TensorDatatype::Uint16 => each!(u16),
        TensorDatatype::Uint32 => each!(u32),
        TensorDatatype::Uint64 => each!(u64),
        TensorDatatype::Fp16 => each!(u16, half),
        TensorDatatype::Bf16 => each!(u16, brain),
        TensorDatatype::Fp32 => each!(f32),
        TensorDatatype::Fp64 => each!(f64),
        // Split before it gets here.
        TensorDatatype::Bytes => to.collect_seq::<[u8; 0]>([]),
    }
}

struct Parameters<'a>(&'a BTreeMap<String, InferParameter>);

impl Parameters<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, Choice(value))))
    }
}

struct Choice<'a>(&'a InferParameter);

impl Serialize for Choice<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => to.serialize_bool(*value),
            Some(ParameterChoice::Int64Param(value)) => to.serialize_i64(*value),
            Some(ParameterChoice::StringParam(value)) => to.serialize_str(value),
            None => to.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests;
