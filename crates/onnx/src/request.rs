//! A decoded request: its tensors, the form of its answer, and the parts that it may be run in.
//!
//! It is shared rather than copied between the model's task, which may have to run it again, and the
//! thread that runs it. The parts of a request run in different batches and in any order; the one that
//! completes the outputs takes them all and brings the answer. A part that runs twice changes nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use jitney_engine::call::DecodedInput;
use jitney_engine::outcome::{Cause, ModelFailure};

use super::shape_groups::GroupClaim;
use super::tensor::{self, Tensor};

/// How a request was written, and hence how it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// The Open Inference Protocol's JSON.
    OpenInference {
        /// The client's own id, repeated in the answer.
        id: Option<String>,
        /// The outputs asked for, by their position in the model; empty for all of them.
        outputs: Vec<usize>,
    },
    /// A list, an object of lists, or a file: answered with lists or labels.
    Plain,
    /// Tensors, answered with tensors.
    Tensors {
        /// The outputs asked for, by their position in the model; empty for all of them.
        outputs: Vec<usize>,
    },
}

/// A request, or a part of one, as a batch takes it. Clones share the data.
#[derive(Clone, Debug)]
pub(super) struct TensorInput {
    pub(super) shared: Arc<DecodedRequest>,
    /// `None` for the request as a whole.
    pub(super) part: Option<RequestPart>,
}

/// The part of a request that runs by itself.
#[derive(Clone, Debug)]
pub(super) struct RequestPart {
    /// Its position among the parts.
    pub position: usize,
    /// The items it has of the request's.
    pub rows: Range<usize>,
    /// Where the parts' outputs come together.
    pub outputs: Arc<PartOutputs>,
}

/// What the clones of a [`TensorInput`] share.
#[derive(Debug)]
pub(super) struct DecodedRequest {
    /// One tensor per input of the model, in the model's order, batch dimension included.
    pub tensors: Vec<Tensor>,
    /// The body of a request that the worker makes into tensors; there are none yet then.
    pub raw: Option<Bytes>,
    /// How many items it brings; 1 for models that do not batch.
    pub items: u32,
    /// How long its items are, for a model that pads them.
    pub length: Option<u64>,
    /// How it was written.
    pub form: BodyForm,
    /// Whether it brought one item without the batch dimension and is answered without it.
    pub bare: bool,
    /// Keeps the shape's group from being given to another shape while the request lives.
    pub claim: Option<GroupClaim>,
}

impl DecodedRequest {
    /// One item that the worker prepares.
    pub(super) fn raw(body: Bytes) -> Self {
        Self {
            tensors: Vec::new(),
            raw: Some(body),
            items: 1,
            length: None,
            form: BodyForm::Plain,
            bare: true,
            claim: None,
        }
    }
}

impl DecodedRequest {
    /// The same once its body has become tensors.
    pub(super) fn prepared(&self, tensors: Vec<Tensor>) -> Self {
        let Self { items, length, form, bare, .. } = self;
        let (form, raw, claim) = (form.clone(), None, None);
        Self { tensors, raw, items: *items, length: *length, form, bare: *bare, claim }
    }
}

impl From<DecodedRequest> for TensorInput {
    fn from(request: DecodedRequest) -> Self {
        Self { shared: Arc::new(request), part: None }
    }
}

/// What was decoded here; `None` for the input of another runtime.
pub(super) fn tensors_of(input: &dyn DecodedInput) -> Option<&TensorInput> {
    (input as &dyn std::any::Any).downcast_ref()
}

impl TensorInput {
    /// Requests of different groups must not share a batch: their shapes differ.
    pub(super) fn group(&self) -> u16 {
        self.shared.claim.as_ref().map_or(0, |claim| claim.id)
    }

    /// The items that are run here.
    pub(super) fn rows(&self) -> Range<usize> {
        self.part.as_ref().map_or(0..self.shared.items as usize, |part| part.rows.clone())
    }

    /// The request in parts of at most so many items. They share its data, and one of them, the
    /// last to be answered, brings the answer to the whole.
    pub(super) fn split(self, items: u32) -> Vec<Self> {
        let (total, most) = (self.shared.items as usize, items.max(1) as usize);
        let outputs = Arc::new(Mutex::new(vec![None; total.div_ceil(most)]));
        let part = |(position, start): (usize, usize)| {
            let rows = start..(start + most).min(total);
            let part = RequestPart { position, rows, outputs: Arc::clone(&outputs) };
            Self { shared: Arc::clone(&self.shared), part: Some(part) }
        };
        (0..total).step_by(most).enumerate().map(part).collect()
    }
}

/// The outputs that are there so far, by the position of their part.
type PartOutputs = Mutex<Vec<Option<Vec<Tensor>>>>;

/// Stores the outputs of neighbouring parts of a request; those of the whole request once none is
/// missing.
pub(super) fn gathered(
    parts: &[&TensorInput],
    outputs: &[Tensor],
) -> Result<Option<Vec<Tensor>>, ModelFailure> {
    let Some(first) = parts.first().and_then(|input| input.part.as_ref()) else {
        return Ok(None);
    };
    let rows: Vec<usize> = parts.iter().map(|input| input.rows().len()).collect();
    let columns = outputs.iter().map(|output| output.split(&rows).map(Vec::into_iter));
    let mut columns: Vec<_> = columns.collect::<Option<_>>().ok_or_else(uneven)?;
    // A list of outputs is whole between any two statements, so a poisoned lock is still good.
    let mut gathered = first.outputs.lock().unwrap_or_else(PoisonError::into_inner);
    for slot in gathered.iter_mut().skip(first.position).take(rows.len()) {
        *slot = columns.iter_mut().map(Iterator::next).collect();
    }
    let Some(all) = gathered.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let joined = (0..outputs.len()).map(|output| {
        let tensors: Vec<_> = all.iter().map(|part| part[output].all_rows()).collect();
        tensor::concat(&tensors, BytesMut::new())
    });
    joined.collect::<Option<_>>().map(Some).ok_or_else(uneven)
}

fn uneven() -> ModelFailure {
    let message =
        "the model's outputs have another shape in every batch, so that a request cannot \
                   be answered in parts; set \"split: false\" on its card"
            .to_owned();
    ModelFailure::new(Cause::UnsupportedOutput, message)
}
