//! A model's JSON answer read into the protocol's message: typed contents, or raw ones for clients
//! that sent raw ones.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use jitney_proto::openinference::infer_parameter::ParameterChoice;
use jitney_proto::openinference::model_infer_response::InferOutputTensor;
use jitney_proto::openinference::{InferParameter, InferTensorContents, ModelInferResponse};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::datatype::TensorDatatype;
use super::json_elements::each;

#[derive(Deserialize)]
struct InferResponseJson<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model_name: Option<String>,
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
    #[serde(borrow)]
    outputs: Vec<OutputTensorJson<'a>>,
}

#[derive(Deserialize)]
struct OutputTensorJson<'a> {
    name: String,
    datatype: String,
    #[serde(default)]
    shape: Vec<i64>,
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The answer, or what is wrong with it.
pub(super) fn read(json: &[u8], raw: bool) -> Result<ModelInferResponse, String> {
    let reply: InferResponseJson<'_> =
        serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let mut response = ModelInferResponse {
        id: reply.id.unwrap_or_default(),
        model_name: reply.model_name.unwrap_or_default(),
        model_version: reply.model_version.unwrap_or_default(),
        parameters: parameters(reply.parameters),
        ..ModelInferResponse::default()
    };
    for tensor in reply.outputs {
        let name = tensor.name.clone();
        let (mut output, element) =
            output(tensor).map_err(|why| format!("output {name:?}: {why}"))?;
        if raw {
            let contents = output.contents.take().unwrap_or_default();
            response.raw_output_contents.push(bytes(element, &contents));
        }
        response.outputs.push(output);
    }
    Ok(response)
}

fn output(tensor: OutputTensorJson<'_>) -> Result<(InferOutputTensor, TensorDatatype), String> {
    let OutputTensorJson { name, mut datatype, shape, parameters: more, data } = tensor;
    let mut element = TensorDatatype::parse(&datatype)?;
    if [TensorDatatype::Fp16, TensorDatatype::Bf16].contains(&element) {
        // Typed contents cannot hold these; the wider type can.
        (element, datatype) = (TensorDatatype::Fp32, "FP32".to_owned());
    }
    let contents = Some(contents(element, data)?);
    let parameters = parameters(more);
    Ok((InferOutputTensor { name, datatype, shape, parameters, contents }, element))
}

fn contents(element: TensorDatatype, data: &RawValue) -> Result<InferTensorContents, String> {
    let mut all = InferTensorContents::default();
    each(data.get(), |value| {
        match element {
            TensorDatatype::Bool => all.bool_contents.push(value.boolean()?),
            TensorDatatype::Int8 => all.int_contents.push(value.whole::<i8>()?.into()),
            TensorDatatype::Int16 => all.int_contents.push(value.whole::<i16>()?.into()),
            TensorDatatype::Int32 => all.int_contents.push(value.whole()?),
            TensorDatatype::Int64 => all.int64_contents.push(value.whole()?),
            TensorDatatype::Uint8 => all.uint_contents.push(value.whole::<u8>()?.into()),
            TensorDatatype::Uint16 => all.uint_contents.push(value.whole::<u16>()?.into()),
            TensorDatatype::Uint32 => all.uint_contents.push(value.whole()?),
            TensorDatatype::Uint64 => all.uint64_contents.push(value.whole()?),
            TensorDatatype::Fp16 | TensorDatatype::Bf16 | TensorDatatype::Fp32 => {
                all.fp32_contents.push(value.float()? as f32);
            }
            TensorDatatype::Fp64 => all.fp64_contents.push(value.float()?),
            TensorDatatype::Bytes => all.bytes_contents.push(value.bytes().into()),
        }
        Ok(())
    })?;
    Ok(all)
}

/// The contents in the raw form; what was read as its type fits its width.
fn bytes(element: TensorDatatype, all: &InferTensorContents) -> Bytes {
    let mut raw = BytesMut::new();
    match element {
        TensorDatatype::Bool => raw.extend(all.bool_contents.iter().map(|value| u8::from(*value))),
        TensorDatatype::Int8 => all.int_contents.iter().for_each(|value| raw.put_i8(*value as i8)),
        TensorDatatype::Int16 => {
            all.int_contents.iter().for_each(|value| raw.put_i16_le(*value as i16))
        }
        TensorDatatype::Int32 => all.int_contents.iter().for_each(|value| raw.put_i32_le(*value)),
        TensorDatatype::Int64 => all.int64_contents.iter().for_each(|value| raw.put_i64_le(*value)),
        TensorDatatype::Uint8 => {
            all.uint_contents.iter().for_each(|value| raw.put_u8(*value as u8))
        }
        TensorDatatype::Uint16 => {
            all.uint_contents.iter().for_each(|value| raw.put_u16_le(*value as u16))
        }
        TensorDatatype::Uint32 => all.uint_contents.iter().for_each(|value| raw.put_u32_le(*value)),
        TensorDatatype::Uint64 => {
            all.uint64_contents.iter().for_each(|value| raw.put_u64_le(*value))
        }
        TensorDatatype::Fp16 | TensorDatatype::Bf16 | TensorDatatype::Fp32 => {
            all.fp32_contents.iter().for_each(|value| raw.put_f32_le(*value));
        }
        TensorDatatype::Fp64 => all.fp64_contents.iter().for_each(|value| raw.put_f64_le(*value)),
        TensorDatatype::Bytes => all.bytes_contents.iter().for_each(|part| {
            raw.put_u32_le(part.len() as u32);
            raw.put_slice(part);
        }),
    }
    raw.freeze()
}

fn parameters(json: BTreeMap<String, Value>) -> BTreeMap<String, InferParameter> {
    let choice = |value: Value| match value {
        Value::Null => None,
        Value::Bool(value) => Some(ParameterChoice::BoolParam(value)),
        Value::String(value) => Some(ParameterChoice::StringParam(value)),
        Value::Number(value) => Some(match value.as_i64() {
            Some(whole) => ParameterChoice::Int64Param(whole),
            None => ParameterChoice::StringParam(value.to_string()),
        }),
        other @ (Value::Array(_) | Value::Object(_)) => {
            Some(ParameterChoice::StringParam(other.to_string()))
        }
    };
    let parameter = |value| InferParameter { parameter_choice: choice(value) };
    json.into_iter().map(|(name, value)| (name, parameter(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(datatype: &str, data: &str, raw: bool) -> Result<ModelInferResponse, String> {
        let json = format!(
            r#"{{"id": "7", "model_name": "m", "model_version": "1.0", "parameters": {{"a": 1}},
                "outputs": [{{"name": "y", "shape": [2], "datatype": "{datatype}", "data": {data}}}]}}"#
        );
        read(json.as_bytes(), raw)
    }

    #[test]
    fn an_answer_becomes_typed_contents() {
        let response = answer("FP32", "[[0.5], [null]]", false).unwrap();
        assert_eq!((response.id.as_str(), response.model_version.as_str()), ("7", "1.0"));
        let contents = response.outputs[0].contents.as_ref().unwrap();
        assert_eq!(contents.fp32_contents[0], 0.5);
        assert!(contents.fp32_contents[1].is_nan());
        assert!(response.raw_output_contents.is_empty());
        let texts = answer("BYTES", r#"["a\n", 1, true]"#, false).unwrap();
        let contents = texts.outputs[0].contents.as_ref().unwrap();
        assert_eq!(contents.bytes_contents, ["a\n", "1", "true"]);
    }

    #[test]
    fn who_sent_raw_contents_gets_raw_contents() {
        for (datatype, data, expected) in [
            ("BOOL", "[true, 0]", &b"\x01\0"[..]),
            ("INT16", "[-2, 3.0]", b"\xfe\xff\x03\0"),
            ("UINT8", "[255, 0]", b"\xff\0"),
            ("FP32", "[0.5, 1]", b"\0\0\0\x3f\0\0\x80\x3f"),
            ("BYTES", r#"["hi", ""]"#, b"\x02\0\0\0hi\0\0\0\0"),
        ] {
            let response = answer(datatype, data, true).unwrap();
            assert_eq!(response.raw_output_contents[0], expected, "{datatype}");
            assert!(response.outputs[0].contents.is_none());
        }
    }

    #[test]
    fn what_a_message_has_no_place_for_is_widened_or_refused() {
        assert_eq!(answer("FP16", "[1, 2]", false).unwrap().outputs[0].datatype, "FP32");
        for (datatype, data) in [
            ("INT8", "[128]"),
            ("UINT64", "[-1]"),
            ("INT32", "[1.5]"),
            ("INT32", "[\"1\"]"),
            ("BOOL", "[2]"),
            ("FP32", "[{}]"),
            ("TEXT", "[]"),
        ] {
            assert!(answer(datatype, data, false).is_err(), "{datatype} {data}");
        }
        assert!(read(b"[1]", false).is_err() && read(b"{}", false).is_err());
    }
}
