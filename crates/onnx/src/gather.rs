//! Where the outputs of a request's portions come together.
//!
//! Portions ride in different batches, on different threads, and in any order; whoever lays down the
//! last missing outputs takes them all and words the answer. A portion that has to ride again lays its
//! outputs down again, which changes nothing. It holds outputs only, never anybody's way back.

use std::sync::{Mutex, PoisonError};

use super::batch;
use super::request::TensorInput;
use super::tensor::Tensor;
use jitney_engine::outcome::{Cause, ModelFailure};

/// The outputs that are there so far, by the place of their portion.
#[derive(Debug)]
pub(super) struct Gather {
    outputs: Mutex<Vec<Option<Vec<Tensor>>>>,
}

/// Lays down what neighbouring portions of a request were given; the outputs of the whole request if
/// nothing is missing any more.
pub(super) fn gathered(
    portions: &[&TensorInput],
    outputs: &[Tensor],
) -> Result<Option<Vec<Tensor>>, ModelFailure> {
    let Some(first) = portions.first().and_then(|input| input.portion.as_ref()) else {
        return Ok(None);
    };
    let rows: Vec<usize> = portions.iter().map(|input| input.rows().len()).collect();
    let shares = outputs.iter().map(|output| batch::split(output, &rows));
    let shares: Vec<Vec<Tensor>> = shares.collect::<Option<_>>().ok_or_else(uneven)?;
    first.gather.lay(first.place, rows.len(), shares)
}

impl Gather {
    /// Room for so many portions.
    pub(super) fn new(portions: usize) -> Self {
        Self { outputs: Mutex::new(vec![None; portions]) }
    }

    /// `shares` are the portions' tensors for each output of the model.
    fn lay(
        &self,
        place: usize,
        portions: usize,
        shares: Vec<Vec<Tensor>>,
    ) -> Result<Option<Vec<Tensor>>, ModelFailure> {
        let mut columns: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
        // A list of outputs is whole between any two statements, so a poisoned lock is still good.
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in outputs.iter_mut().skip(place).take(portions) {
            *slot = columns.iter_mut().map(Iterator::next).collect();
        }
        let Some(all) = outputs.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        joined(&all, columns.len()).map(Some).ok_or_else(uneven)
    }
}

/// The portions' tensors, in order, as one tensor for each output.
fn joined(portions: &[&Vec<Tensor>], outputs: usize) -> Option<Vec<Tensor>> {
    let column = |output: usize| {
        let tensors: Vec<_> =
            portions.iter().map(|portion| batch::all_rows(&portion[output])).collect();
        batch::concat(&tensors).map(std::borrow::Cow::into_owned)
    };
    (0..outputs).map(column).collect()
}

fn uneven() -> ModelFailure {
    let message =
        "the model's outputs have another shape in every batch, so that a request cannot \
                   be answered in portions; say \"split: false\" on its card"
            .to_owned();
    ModelFailure { cause: Cause::UnsupportedOutput, status: None, message }
}
