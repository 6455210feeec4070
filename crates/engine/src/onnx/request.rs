//! One accepted request on its way through a batch: its tensors and what its answer must look like.
//! Shared rather than copied between the rider that may have to ride again and the thread that runs
//! it; nobody changes it after the intake made it.

use std::sync::Arc;

use super::bucket::Ticket;
use super::tensor::Tensor;

/// How a request asked, and hence how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The Open Inference Protocol's JSON.
    OpenInference,
    /// A list, an object of lists, or a file: answered with lists or labels.
    Plain,
}

/// One request's decoded and checked tensors with what is needed to word its answer.
///
/// Made by [`OnnxModel::accept`](super::OnnxModel::accept) only. Clones share the data.
#[derive(Clone, Debug)]
pub struct TensorInput {
    pub(super) shared: Arc<Request>,
}

/// What the clones of a [`TensorInput`] share.
#[derive(Debug)]
pub(super) struct Request {
    /// One tensor per input of the model, in the model's order, batch dimension included.
    pub tensors: Vec<Tensor>,
    /// How many items it brings; 1 for models that do not batch.
    pub items: u32,
    /// How it asked.
    pub form: Form,
    /// Whether it brought one item without the batch dimension and is answered without it.
    pub bare: bool,
    /// The client's own id, repeated in the answer.
    pub id: Option<String>,
    /// The outputs asked for by their place in the model; empty for all of them.
    pub outputs: Vec<usize>,
    /// Keeps the shape's bucket from being given to another shape while the request lives.
    pub _ticket: Option<Ticket>,
}

impl TensorInput {
    /// The tensors, in the order of the model's inputs.
    pub fn tensors(&self) -> &[Tensor] {
        &self.shared.tensors
    }

    /// How many items the request brings.
    pub fn items(&self) -> u32 {
        self.shared.items
    }
}
