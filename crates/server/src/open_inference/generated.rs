//! Triton's generate extension: a request is one JSON object whose fields are inputs by their names, and so is an
//! answer with its outputs. A field that is no input is a parameter of the request.

use std::collections::BTreeMap;

use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::tensors::NamedTensor;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::answer::OpenInferenceAnswer;
use super::elements::{self, BytesForm, JsonList};
use super::request::{OpenInferenceRequest, ParameterMap, RequestTensor, filled};

type GeneratedFields<'a> = BTreeMap<String, &'a RawValue>;

/// Reads a request for a model that takes this.
///
/// # Errors
/// A sentence about the field that does not fit.
pub(crate) fn read(body: &[u8], signature: &Signature) -> Result<OpenInferenceRequest, String> {
    let fields: GeneratedFields<'_> = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not a JSON object of inputs: {error}."))?;
    let mut request = OpenInferenceRequest::default();
    for (name, value) in fields {
        let inner: Option<GeneratedFields<'_>> = serde_json::from_str(value.get()).ok();
        let own = signature.input(&name).is_none();
        match (name.as_str(), inner) {
            ("id", _) if own => {
                let id = serde_json::from_str(value.get());
                request.id = id.map_err(|_| "\"id\" must be a text.")?;
            }
            ("parameters", Some(inner)) if own => {
                for (name, value) in inner {
                    add(&mut request, signature, name, value)?;
                }
            }
            _ => add(&mut request, signature, name, value)?,
        }
    }
    Ok(request)
}

/// Adds a field as what it is.
fn add(
    request: &mut OpenInferenceRequest,
    signature: &Signature,
    name: String,
    value: &RawValue,
) -> Result<(), String> {
    if let Some((_, spec)) = signature.input(&name) {
        let tensor = tensor(spec, signature.batches(), value.get())
            .map_err(|why| format!("input {name:?}: {why}."))?;
        request.inputs.push(RequestTensor { tensor, parameters: ParameterMap::new() });
        return Ok(());
    }
    match serde_json::from_str(value.get()) {
        Ok(Value::Null) => Ok(()),
        Ok(one @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => {
            request.parameters.insert(name, one);
            Ok(())
        }
        Ok(Value::Array(_) | Value::Object(_)) | Err(_) => {
            let inputs: Vec<_> = signature.inputs.iter().map(|spec| spec.name.as_str()).collect();
            let inputs = inputs.join(", ");
            Err(format!("{name:?} is no input (those are {inputs}), and no parameter is a list."))
        }
    }
}

/// The elements of a field in the shape in which they are nested, or else in the one that they fill.
fn tensor(spec: &TensorSpec, batches: bool, json: &str) -> Result<NamedTensor, String> {
    let (raw, count) = elements::read(spec.datatype, json)?;
    let nested = nested(json, spec.shape.as_ref().map_or(1, Vec::len));
    let shape = match &spec.shape {
        Some(dims) if dims.len() != nested.len() => filled(spec, batches, count),
        Some(_) | None => Some(nested),
    };
    let shape = shape.ok_or_else(|| format!("it is {spec}, and {count} elements came"))?;
    NamedTensor::new(spec.name.as_str(), spec.datatype, shape, raw)
        .map_err(|_| format!("it is {spec}, and {count} elements came"))
}

/// How lists are nested, as deep as anybody asks.
fn nested(json: &str, rank: usize) -> Vec<usize> {
    let (mut shape, mut inner) = (Vec::new(), Some(json));
    while let Some(json) = inner.filter(|_| shape.len() < rank) {
        let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(json) else { break };
        shape.push(list.len());
        inner = list.first().map(|first| first.get());
    }
    shape
}

/// Writes an answer: an output of one element as that element, any other as a list.
///
/// # Errors
/// A sentence when JSON has no place for an output.
pub(crate) fn write(answer: &OpenInferenceAnswer) -> Result<Vec<u8>, String> {
    let failed = |error: serde_json::Error| format!("Output {error}.");
    let mut fields: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    for (name, value) in &answer.parameters {
        fields.insert(name, to_raw_value(value).map_err(failed)?);
    }
    let told = [
        ("id", &answer.id),
        ("model_name", &answer.model_name),
        ("model_version", &answer.model_version),
    ];
    for (name, text) in told.into_iter().filter(|(_, text)| !text.is_empty()) {
        fields.insert(name, to_raw_value(text).map_err(failed)?);
    }
    for output in &answer.outputs {
        let tensor = &output.tensor;
        let list = serde_json::to_string(&JsonList(tensor, BytesForm::Text)).map_err(failed)?;
        let is_one = tensor.shape().iter().product::<usize>() == 1;
        let text = if is_one { list[1..list.len() - 1].to_owned() } else { list };
        fields.insert(tensor.name(), RawValue::from_string(text).map_err(failed)?);
    }
    serde_json::to_vec(&fields).map_err(failed)
}

#[cfg(test)]
mod tests {
    use jitney_engine::local::Dim;
    use jitney_engine::tensors::Datatype;

    use super::*;

    fn signature() -> Signature {
        let spec = |name: &str, datatype, sizes: &[usize]| {
            let size = |size: &usize| match size {
                0 => Dim::Open("n".to_owned()),
                size => Dim::Fixed(*size),
            };
            let shape = Some(sizes.iter().map(size).collect());
            TensorSpec { name: name.to_owned(), datatype, shape }
        };
        let inputs = vec![
            spec("text", Datatype::Bytes, &[0, 1]),
            spec("x", Datatype::Fp32, &[0, 2]),
            spec("any", Datatype::Int32, &[0, 0]),
        ];
        Signature { inputs, outputs: Vec::new() }
    }

    #[test]
    fn fields_are_inputs_or_parameters() {
        let body = br#"{"text": "hello", "x": [[1, 2], [3, 4]], "id": "7", "seed": 5, "note": null,
            "parameters": {"any": [1, 2, 3], "stream": true}}"#;
        let request = read(body, &signature()).expect("fits");
        let shapes: Vec<_> =
            request.inputs.iter().map(|it| (it.tensor.name(), it.tensor.shape())).collect();
        let expected: [(&str, &[usize]); 3] = [("any", &[1, 3]), ("text", &[1, 1]), ("x", &[2, 2])];
        assert_eq!(shapes, expected);
        assert_eq!((request.id.as_str(), request.parameters.len()), ("7", 2));
        assert_eq!(
            (&request.parameters["seed"], &request.parameters["stream"]),
            (&5.into(), &true.into())
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (body, expected) in [
            ("[]", "the body is not a JSON object of inputs"),
            (r#"{"text": 5}"#, "input \"text\": 5 is not an element of BYTES"),
            (r#"{"x": [1, 2, 3]}"#, "input \"x\": it is FP32 of shape [n, 2], and 3 elements came"),
            (
                r#"{"x": [[1, 2], [3]]}"#,
                "input \"x\": it is FP32 of shape [n, 2], and 3 elements came",
            ),
            (r#"{"more": [1]}"#, "\"more\" is no input (those are text, x, any)"),
            (r#"{"id": 5}"#, "\"id\" must be a text"),
        ] {
            let why = read(body.as_bytes(), &signature()).expect_err(body);
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn an_output_of_one_element_is_that_element() {
        let output = |name, datatype, json| {
            let (raw, count) = elements::read(datatype, json).expect("elements");
            NamedTensor::new(name, datatype, [1, count], raw).expect("fills its shape").into()
        };
        let outputs = vec![
            output("text", Datatype::Bytes, r#"["a \"b\""]"#),
            output("y", Datatype::Fp32, "[0.1, 2]"),
        ];
        let mut answer = OpenInferenceAnswer { outputs, ..OpenInferenceAnswer::default() };
        answer.model_name = "m".to_owned();
        answer.parameters.insert("finish".to_owned(), "stop".into());
        let written = String::from_utf8(write(&answer).expect("JSON")).expect("text");
        let expected = r#"{"finish":"stop","model_name":"m","text":"a \"b\"","y":[0.1,2.0]}"#;
        assert_eq!(written, expected);
    }
}
