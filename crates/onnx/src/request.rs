//! One accepted request on its way through a batch: its tensors and what its answer must look like.
//! Shared rather than copied between the request that may have to ride again and the thread that runs
//! it; nobody changes it after the intake made it.

use std::ops::Range;
use std::sync::Arc;

use super::bucket::Ticket;
use super::gather::Gather;
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
    /// None for the request as a whole.
    pub(super) portion: Option<Portion>,
}

/// The part of a request that rides by itself.
#[derive(Clone, Debug)]
pub(super) struct Portion {
    /// Its place among the portions.
    pub place: usize,
    /// The items it has of the request's.
    pub rows: Range<usize>,
    /// Where the portions' outputs come together.
    pub gather: Arc<Gather>,
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

    /// The items that ride here.
    pub(super) fn rows(&self) -> Range<usize> {
        self.portion.as_ref().map_or(0..self.shared.items as usize, |portion| portion.rows.clone())
    }

    /// The request in portions of at most so many items. They share its data, and one of them, the
    /// last to be answered, brings the answer to the whole.
    pub(super) fn split(self, items: u32) -> Vec<Self> {
        let (total, most) = (self.shared.items as usize, items.max(1) as usize);
        let gather = Arc::new(Gather::new(total.div_ceil(most)));
        let portion = |(place, start): (usize, usize)| {
            let rows = start..(start + most).min(total);
            let portion = Portion { place, rows, gather: Arc::clone(&gather) };
            Self { shared: Arc::clone(&self.shared), portion: Some(portion) }
        };
        (0..total).step_by(most).enumerate().map(portion).collect()
    }
}
