//! Decodes a request and checks it against the model, before it waits for a batch.
//!
//! Whatever passes can be joined with other requests without a further check, so everything that could
//! spoil a batch is rejected here, with a sentence that names what was expected and what came.

use bytes::Bytes;

use super::bad_input::BadInput;
use super::body::{self, JsonBody, NamedNumbers};
use super::card::InputKind;
use super::file_bytes::FileBytes;
use super::fit::{self, Fitted};
use super::hint;
use super::model::OnnxModel;
use super::numbers::Numbers;
use super::request::{BodyForm, DecodedRequest, TensorInput};
use super::shape_groups::GroupClaim;
use super::tensor::{Tensor, TensorData};
use jitney_engine::call::Input;
use jitney_engine::local::{Dim, Signature};

/// What a request asks of its answer.
struct AnswerForm {
    form: BodyForm,
    id: Option<String>,
    outputs: Vec<usize>,
}

const PLAIN: AnswerForm = AnswerForm { form: BodyForm::Plain, id: None, outputs: Vec::new() };

/// Decodes and checks one request.
pub(super) fn decode(model: &OnnxModel, input: &Input) -> Result<TensorInput, BadInput> {
    let decoder = Decoder { model, signature: model.signature() };
    let protocol = input.route.open_inference;
    match &model.card().input {
        InputKind::FileBytes(features) if !protocol => decoder.file(features, input),
        InputKind::FileBytes(_) | InputKind::Tensors if decoder.has_named_parts(input) => {
            decoder.named_parts(input)
        }
        InputKind::FileBytes(_) | InputKind::Tensors => {
            let body = body_of(input).filter(|body| !body.is_empty());
            decoder.json(body.ok_or(BadInput::NoBody)?, protocol)
        }
    }
}

struct Decoder<'a> {
    model: &'a OnnxModel,
    signature: &'a Signature,
}

impl Decoder<'_> {
    fn file(&self, features: &FileBytes, input: &Input) -> Result<TensorInput, BadInput> {
        let file = body_of(input).filter(|file| !file.is_empty()).ok_or(BadInput::NoBody)?;
        let row = TensorData::I32(features.row(file));
        // The card was checked against the model at load: one input of whole numbers, this wide.
        let datatype = self.signature.inputs[0].datatype;
        let tensor = Tensor::new(datatype, vec![1, features.width()], row);
        let tensors = vec![tensor.expect("a row is as wide as its features say")];
        self.fitting(Fitted { tensors, items: 1, bare: true }, PLAIN)
    }

    /// Whether the request is a form with one part per input, as multipart and gRPC clients send it.
    fn has_named_parts(&self, input: &Input) -> bool {
        let whole = |name: &str| ["body", "data"].contains(&name);
        match input.parameters.as_slice() {
            [] => false,
            [only] => !whole(&only.name) && self.signature.input(&only.name).is_some(),
            parts => parts.iter().all(|part| self.signature.input(&part.name).is_some()),
        }
    }

    fn json(&self, json: &Bytes, protocol: bool) -> Result<TensorInput, BadInput> {
        match body::read(json, self.signature, protocol).map_err(|error| unreadable(&error))? {
            JsonBody::OpenInference { id, values, outputs } => {
                let outputs = self.outputs_of(&outputs)?;
                let fitted = fit::stated(self.signature, values)?;
                self.fitting(fitted, AnswerForm { form: BodyForm::OpenInference, id, outputs })
            }
            JsonBody::Named { .. } | JsonBody::List(_) if protocol => Err(BadInput::NotTheProtocol),
            JsonBody::Named { values, unknown } => {
                fit::nothing_unknown(self.signature, &unknown)?;
                self.fitting(fit::plain(self.signature, values)?, PLAIN)
            }
            JsonBody::List(numbers) => self.list(numbers),
        }
    }

    fn list(&self, numbers: Numbers) -> Result<TensorInput, BadInput> {
        let [spec] = self.signature.inputs.as_slice() else {
            return Err(BadInput::ListForMany { known: hint::names(&self.signature.inputs) });
        };
        let values = vec![named(spec.name.clone(), numbers)];
        self.fitting(fit::plain(self.signature, values)?, PLAIN)
    }

    fn named_parts(&self, input: &Input) -> Result<TensorInput, BadInput> {
        let parts = input.parameters.iter().map(|part| {
            let numbers = serde_json::from_slice(&part.value)
                .map_err(|error| unreadable(&format!("input {:?}: {error}", part.name)))?;
            Ok(named(part.name.to_string(), numbers))
        });
        let parts = parts.collect::<Result<_, _>>()?;
        self.fitting(fit::plain(self.signature, parts)?, PLAIN)
    }

    fn outputs_of(&self, names: &[String]) -> Result<Vec<usize>, BadInput> {
        let position = |name: &String| {
            self.signature.outputs.iter().position(|spec| spec.name == *name).ok_or_else(|| {
                BadInput::UnknownOutput {
                    name: hint::clip(name),
                    known: hint::names(&self.signature.outputs),
                }
            })
        };
        names.iter().map(position).collect()
    }

    fn fitting(&self, fitted: Fitted, form: AnswerForm) -> Result<TensorInput, BadInput> {
        let (model, Fitted { tensors, items, bare }) = (self.model, fitted);
        let max = if model.splits() { None } else { model.max_batch() }.unwrap_or(u32::MAX);
        let count = u32::try_from(items).ok().filter(|items| *items <= max);
        let items = count.ok_or(BadInput::TooManyItems { items, max })?;
        let claim = self.claim(&tensors)?;
        let padding = model.card().padding.as_ref();
        let length = padding.map(|padding| padding.length(self.signature, &tensors) as u64);
        let AnswerForm { form, id, outputs } = form;
        Ok(DecodedRequest { tensors, items, length, form, bare, id, outputs, claim }.into())
    }

    /// A group for the sizes that the model leaves open; none where it leaves none open.
    fn claim(&self, tensors: &[Tensor]) -> Result<Option<GroupClaim>, BadInput> {
        let padded = self.model.card().padding.as_ref().map(|padding| padding.dimension.as_str());
        let open = open_sizes(self.signature, tensors, padded);
        if open.is_empty() {
            return Ok(None);
        }
        self.model.shape_groups().claim(&open).map(Some).ok_or(BadInput::TooManyShapes)
    }
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

fn named(name: String, numbers: Numbers) -> NamedNumbers {
    NamedNumbers { name, shape: None, datatype: None, data: Some(numbers) }
}

fn unreadable(reason: &str) -> BadInput {
    BadInput::Json(hint::clip(reason))
}

/// The value that is the request as a whole: `body`, `data` as TorchServe's clients call it, or the
/// only one there is.
fn body_of(input: &Input) -> Option<&Bytes> {
    let parameters = &input.parameters;
    let named = |name| parameters.iter().find(|parameter| parameter.name == name);
    let body = named("body").or_else(|| named("data"));
    let body = body.or(if parameters.len() == 1 { parameters.first() } else { None });
    body.map(|parameter| &parameter.value)
}
