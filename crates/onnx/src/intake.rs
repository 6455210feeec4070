//! The door of an ONNX model: decides per request, before any batch, whether it fits the model.
//!
//! Whatever passes here can be joined with its neighbours without a further question, so everything
//! that could spoil a batch is refused here, with a sentence that says what was expected and what
//! came. It never runs the model and never waits.

use std::sync::Arc;

use bytes::Bytes;

use super::body::{self, Body, Given};
use super::bucket::Ticket;
use super::card::InputKind;
use super::features::FileBytes;
use super::fit::{self, Fitted};
use super::hint;
use super::model::OnnxModel;
use super::numbers::Numbers;
use super::refusal::BadInput;
use super::request::{Form, Request, TensorInput};
use super::tensor::{Data, Tensor};
use jitney_engine::call::Input;
use jitney_engine::local::{Dim, OPEN_INFERENCE_HEADER, Signature};

/// A request that fits the model.
#[derive(Debug)]
pub struct Accepted {
    /// What the worker is given.
    pub tensors: TensorInput,
    /// How many items it brings.
    pub items: u32,
    /// Requests of different buckets must not meet in a batch: their shapes differ.
    pub bucket: u16,
    /// How long its items are, for a model that pads them.
    pub length: Option<u64>,
}

/// What a request says about its answer.
struct Asked {
    form: Form,
    id: Option<String>,
    outputs: Vec<usize>,
}

impl Asked {
    fn plainly() -> Self {
        Self { form: Form::Plain, id: None, outputs: Vec::new() }
    }
}

impl OnnxModel {
    /// Decodes and checks one request.
    ///
    /// # Errors
    /// When the request does not fit the model; the message is meant for the client.
    pub fn accept(&self, input: Input) -> Result<Accepted, BadInput> {
        let protocol = is_open_inference(&input);
        match &self.card().input {
            InputKind::FileBytes(features) if !protocol => self.accept_file(features, &input),
            InputKind::FileBytes(_) | InputKind::Tensors if self.in_parts(&input) => {
                self.accept_parts(&input)
            }
            InputKind::FileBytes(_) | InputKind::Tensors => {
                let body = body_of(&input).filter(|body| !body.is_empty());
                self.accept_json(body.ok_or(BadInput::NoBody)?, protocol)
            }
        }
    }

    fn accept_file(&self, features: &FileBytes, input: &Input) -> Result<Accepted, BadInput> {
        let file = body_of(input).filter(|file| !file.is_empty()).ok_or(BadInput::NoBody)?;
        let row = Data::I32(features.row(file));
        // The card was checked against the model at load: one input of whole numbers, this wide.
        let datatype = self.signature().inputs[0].datatype;
        let tensor = Tensor::new(datatype, vec![1, features.width()], row);
        let tensors = vec![tensor.expect("a row is as wide as its features say")];
        self.accepted(Fitted { tensors, items: 1, bare: true }, Asked::plainly())
    }

    /// Whether the request is a form with one part per input, as multipart and gRPC clients send it.
    fn in_parts(&self, input: &Input) -> bool {
        let whole = |name: &str| ["body", "data"].contains(&name);
        match input.parameters.as_slice() {
            [] => false,
            [only] => !whole(&only.name) && self.signature().input(&only.name).is_some(),
            parts => parts.iter().all(|part| self.signature().input(&part.name).is_some()),
        }
    }

    fn accept_json(&self, json: &Bytes, protocol: bool) -> Result<Accepted, BadInput> {
        let signature = self.signature();
        match body::read(json, signature, protocol).map_err(|error| unreadable(&error))? {
            Body::OpenInference { id, given, outputs } => {
                let outputs = self.outputs_of(&outputs)?;
                let fitted = fit::stated(signature, given)?;
                self.accepted(fitted, Asked { form: Form::OpenInference, id, outputs })
            }
            Body::Named { .. } | Body::List(_) if protocol => Err(BadInput::NotTheProtocol),
            Body::Named { given, unknown } => {
                fit::nothing_unknown(signature, &unknown)?;
                self.accepted(fit::plain(signature, given)?, Asked::plainly())
            }
            Body::List(numbers) => self.accept_list(numbers),
        }
    }

    fn accept_list(&self, numbers: Numbers) -> Result<Accepted, BadInput> {
        let signature = self.signature();
        let [port] = signature.inputs.as_slice() else {
            return Err(BadInput::ListForMany { known: hint::names(&signature.inputs) });
        };
        let given = vec![given(port.name.clone(), numbers)];
        self.accepted(fit::plain(signature, given)?, Asked::plainly())
    }

    fn accept_parts(&self, input: &Input) -> Result<Accepted, BadInput> {
        let parts = input.parameters.iter().map(|part| {
            let numbers = serde_json::from_slice(&part.value)
                .map_err(|error| unreadable(&format!("input {:?}: {error}", part.name)))?;
            Ok(given(part.name.to_string(), numbers))
        });
        let parts = parts.collect::<Result<_, _>>()?;
        self.accepted(fit::plain(self.signature(), parts)?, Asked::plainly())
    }

    fn outputs_of(&self, names: &[String]) -> Result<Vec<usize>, BadInput> {
        let signature = self.signature();
        let place = |name: &String| {
            signature.outputs.iter().position(|port| port.name == *name).ok_or_else(|| {
                BadInput::UnknownOutput {
                    name: hint::clip(name),
                    known: hint::names(&signature.outputs),
                }
            })
        };
        names.iter().map(place).collect()
    }

    fn accepted(&self, fitted: Fitted, asked: Asked) -> Result<Accepted, BadInput> {
        let Fitted { tensors, items, bare } = fitted;
        let max = if self.splits() { None } else { self.max_batch() }.unwrap_or(u32::MAX);
        let count = u32::try_from(items).ok().filter(|items| *items <= max);
        let items = count.ok_or(BadInput::TooManyItems { items, max })?;
        let ticket = self.claim(&tensors)?;
        let bucket = ticket.as_ref().map_or(0, Ticket::id);
        let pads = self.card().padding.as_ref();
        let length = pads.map(|pads| pads.length(self.signature(), &tensors) as u64);
        let Asked { form, id, outputs } = asked;
        let request = Request { tensors, items, form, bare, id, outputs, _ticket: ticket };
        let tensors = TensorInput { shared: Arc::new(request), portion: None };
        Ok(Accepted { tensors, items, bucket, length })
    }

    /// A bucket for the sizes that the model leaves open; none where it leaves none open.
    fn claim(&self, tensors: &[Tensor]) -> Result<Option<Ticket>, BadInput> {
        let padded = self.card().padding.as_ref().map(|pads| pads.dimension.as_str());
        let open = open_sizes(self.signature(), tensors, padded);
        if open.is_empty() {
            return Ok(None);
        }
        self.buckets().claim(&open).map(Some).ok_or(BadInput::TooManyShapes)
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

fn given(name: String, numbers: Numbers) -> Given {
    Given { name, shape: None, datatype: None, data: Some(numbers) }
}

fn unreadable(reason: &str) -> BadInput {
    BadInput::Json(hint::clip(reason))
}

fn is_open_inference(input: &Input) -> bool {
    let name = OPEN_INFERENCE_HEADER.as_bytes();
    input.headers.iter().any(|(header, value)| header == name && value == b"True")
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
