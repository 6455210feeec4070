//! Decodes a request and checks it against the model, before it waits for a batch.
//!
//! Whatever passes can be joined with other requests without a further check, so everything that could
//! spoil a batch is rejected here, with a sentence that names what was expected and what came.

use base64::Engine as _;
use bytes::Bytes;
use serde::Deserialize;

use super::bad_input::BadInput;
use super::body::{self, JsonBody, NamedNumbers};
use super::card::InputKind;
use super::file_bytes::FileBytes;
use super::fit::{self, Fitted};
use super::hint;
use super::model::OnnxModel;
use super::request::{BodyForm, DecodedRequest, TensorInput};
use super::tensor::Tensor;
use jitney_engine::call::{Input, Parameter};
use jitney_engine::local::{Dim, LocalModel, Signature};
use jitney_engine::tensors::Datatype;

/// Decodes and checks one request.
pub(super) fn decode(model: &OnnxModel, input: &Input) -> Result<TensorInput, BadInput> {
    let (signature, padding) = (&model.signature, model.card.padding.as_ref());
    let protocol = input.route.open_inference;
    let (fitted, form) = match &model.card.input {
        _ if let Some(request) = &input.tensors => {
            let outputs = request.outputs.iter().map(|name| output(signature, name));
            let form = BodyForm::Tensors { outputs: outputs.collect::<Result<_, _>>()? };
            (fit::tensors(signature, &request.inputs)?, form)
        }
        InputKind::Image(_) | InputKind::Text(_)
            if !protocol
                && !has_named_parts(signature, input)
                && let Some(body) = to_prepare(&model.card.input, input)? =>
        {
            return Ok(raw(model, body).into());
        }
        InputKind::FileBytes(features) if !protocol => {
            (file(signature, features, body_of(input)?.value.whole()), BodyForm::Plain)
        }
        _ if has_named_parts(signature, input) => (named_parts(signature, input)?, BodyForm::Plain),
        InputKind::Tensors | InputKind::FileBytes(_) | InputKind::Image(_) | InputKind::Text(_) => {
            json(signature, body_of(input)?.value.whole(), protocol)?
        }
    };
    let Fitted { tensors, items, bare } = fitted;
    let max = if model.splits() { None } else { model.max_batch_size() }.unwrap_or(u32::MAX);
    let count = u32::try_from(items).ok().filter(|items| *items <= max);
    let items = count.ok_or(BadInput::TooManyItems { items, max })?;
    let open = open_sizes(signature, &tensors, padding.map(|padding| padding.dimension.as_str()));
    let claim = if open.is_empty() {
        None
    } else {
        Some(model.shape_groups.claim(&open).ok_or(BadInput::TooManyShapes)?)
    };
    let length = padding.map(|padding| padding.length(signature, &tensors) as u64);
    Ok(DecodedRequest { tensors, raw: None, items, length, form, bare, claim }.into())
}

/// A body that the worker prepares.
fn raw(model: &OnnxModel, body: Bytes) -> DecodedRequest {
    // How many tokens a text has is known only there; four bytes make one, about.
    let length = model.card.padding.as_ref().map(|_| body.len() as u64 / 4 + 2);
    DecodedRequest { length, ..DecodedRequest::raw(body) }
}

/// The image or text of a request: its body, or what stands in a body of JSON. `None` where it brings
/// tensors instead.
fn to_prepare(kind: &InputKind, input: &Input) -> Result<Option<Bytes>, BadInput> {
    let parameter = body_of(input)?;
    let body = parameter.value.whole();
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = match kind {
        // No image begins so.
        InputKind::Image(_) => matches!(first, Some(b'{' | b'[' | b'"')),
        InputKind::Tensors | InputKind::FileBytes(_) | InputKind::Text(_) => {
            parameter.content_type.ends_with("json")
        }
    };
    if !is_json {
        return Ok(Some(body.clone()));
    }
    let value = match serde_json::from_slice::<PreparedJson>(body) {
        Ok(
            PreparedJson::Whole(value)
            | PreparedJson::Text { text: value }
            | PreparedJson::Image { image: value },
        ) => value,
        Err(_) => return Ok(None),
    };
    match (value, kind) {
        (JsonValue::Text(text), InputKind::Text(_)) => Ok(Some(text.into())),
        (JsonValue::Text(b64) | JsonValue::Base64 { b64 }, _) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(b64.trim());
            let bytes = bytes.map_err(|error| unreadable(&format!("it is not base64: {error}")))?;
            if bytes.is_empty() { Err(BadInput::NoBody) } else { Ok(Some(bytes.into())) }
        }
    }
}

/// An image or a text in JSON: by itself or under its name.
#[derive(Deserialize)]
#[serde(untagged)]
enum PreparedJson {
    Whole(JsonValue),
    Text { text: JsonValue },
    Image { image: JsonValue },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonValue {
    Text(String),
    Base64 { b64: String },
}

fn file(signature: &Signature, features: &FileBytes, file: &Bytes) -> Fitted {
    let (row, shape) = (features.row(file), vec![1, features.width()]);
    // The card was checked against the model at load: one input of whole numbers, this wide.
    let tensor = if signature.inputs[0].datatype == Datatype::Int64 {
        let row: Vec<i64> = row.into_iter().map(i64::from).collect();
        Tensor::of(Datatype::Int64, shape, &row)
    } else {
        Tensor::of(Datatype::Int32, shape, &row)
    };
    let tensors = vec![tensor.expect("a row is as wide as its features say")];
    Fitted { tensors, items: 1, bare: true }
}

/// Whether the request is a form with one part per input, as multipart and gRPC clients send it.
fn has_named_parts(signature: &Signature, input: &Input) -> bool {
    let whole = |name: &str| ["body", "data"].contains(&name);
    match input.parameters.as_slice() {
        [] => false,
        [only] => !whole(&only.name) && signature.input(&only.name).is_some(),
        parts => parts.iter().all(|part| signature.input(&part.name).is_some()),
    }
}

fn named_parts(signature: &Signature, input: &Input) -> Result<Fitted, BadInput> {
    let parts = input.parameters.iter().map(|part| {
        let numbers = serde_json::from_slice(&part.value)
            .map_err(|error| unreadable(&format!("input {:?}: {error}", part.name)))?;
        Ok(NamedNumbers::plain(part.name.to_string(), numbers))
    });
    fit::plain(signature, parts.collect::<Result<_, _>>()?)
}

fn json(
    signature: &Signature,
    json: &Bytes,
    protocol: bool,
) -> Result<(Fitted, BodyForm), BadInput> {
    let values = match body::read(json, signature, protocol).map_err(|error| unreadable(&error))? {
        JsonBody::OpenInference { id, values, outputs } => {
            let outputs = outputs.iter().map(|name| output(signature, name));
            let form = BodyForm::OpenInference { id, outputs: outputs.collect::<Result<_, _>>()? };
            return Ok((fit::stated(signature, values)?, form));
        }
        JsonBody::Named { .. } | JsonBody::List(_) if protocol => {
            return Err(BadInput::NotTheProtocol);
        }
        JsonBody::Named { values, unknown } => match unknown.first() {
            Some(name) => return Err(fit::unknown_input(signature, name)),
            None => values,
        },
        JsonBody::List(numbers) => match signature.inputs.as_slice() {
            [spec] => vec![NamedNumbers::plain(spec.name.clone(), numbers)],
            inputs => return Err(BadInput::ListForMany(hint::names(inputs))),
        },
    };
    Ok((fit::plain(signature, values)?, BodyForm::Plain))
}

/// The position of an output that a client asks for.
fn output(signature: &Signature, name: &str) -> Result<usize, BadInput> {
    let position = signature.outputs.iter().position(|spec| spec.name == name);
    position.ok_or_else(|| BadInput::UnknownOutput {
        name: hint::clip(name),
        known: hint::names(&signature.outputs),
    })
}

/// The sizes that the model leaves open beside the batch and a dimension that is padded: what must
/// agree within a batch.
fn open_sizes(signature: &Signature, tensors: &[Tensor], padded: Option<&str>) -> Vec<usize> {
    if !signature.batches() {
        return Vec::new();
    }
    let shapes = signature.inputs.iter().filter_map(|spec| spec.shape.as_deref()).zip(tensors);
    shapes
        .flat_map(|(shape, tensor)| shape.iter().zip(tensor.shape()).skip(1))
        .filter_map(|(dim, size)| match dim {
            Dim::Open(name) if padded != Some(name) => Some(*size),
            Dim::Open(_) | Dim::Fixed(_) => None,
        })
        .collect()
}

fn unreadable(reason: &str) -> BadInput {
    BadInput::Json(hint::clip(reason))
}

/// The value that is the request as a whole: `body`, `data` as TorchServe's clients call it, or the
/// only one there is. It must not be empty.
fn body_of(input: &Input) -> Result<&Parameter, BadInput> {
    let parameters = &input.parameters;
    let named = |name| parameters.iter().find(|parameter| parameter.name == name);
    let body = named("body").or_else(|| named("data"));
    let body = body.or(if parameters.len() == 1 { parameters.first() } else { None });
    body.filter(|body| !body.value.whole().is_empty()).ok_or(BadInput::NoBody)
}
