//! Joins the legs of a batch along the first dimension, runs the model once, and takes the outputs
//! apart again. A leg is a request, or those of its portions that stand beside each other. Nobody may get another's row: an output whose first dimension is not the sum
//! of the items fails the batch, and so do neighbours of different shapes.

use std::borrow::Cow;
use std::ops::Range;

use rten::RunOptions;

use super::model::OnnxModel;
use super::pad::{self, Pads};
use super::request::{Request, TensorInput};
use super::tensor::Tensor;
use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::outcome::{Cause, ModelFailure};

/// Items of one request that ride side by side.
#[derive(Debug)]
pub(super) struct Leg<'a> {
    pub request: &'a Request,
    pub rows: Range<usize>,
    /// The inputs that they came in, by their place in the batch.
    pub inputs: Range<usize>,
}

impl Leg<'_> {
    /// Whether all items of the request are here.
    pub(super) fn is_whole(&self) -> bool {
        self.rows == (0..self.request.items as usize)
    }
}

/// The legs of a batch: portions that follow each other are joined again.
pub(super) fn legs<'a>(inputs: &[&'a TensorInput]) -> Vec<Leg<'a>> {
    let mut legs: Vec<Leg<'a>> = Vec::with_capacity(inputs.len());
    for (place, input) in inputs.iter().enumerate() {
        let (request, rows) = (&*input.shared, input.rows());
        match legs.last_mut() {
            Some(leg)
                if input.portion.is_some()
                    && std::ptr::eq(leg.request, request)
                    && leg.rows.end == rows.start =>
            {
                (leg.rows.end, leg.inputs.end) = (rows.end, place + 1);
            }
            _ => legs.push(Leg { request, rows, inputs: place..place + 1 }),
        }
    }
    legs
}

/// The outputs of each leg, in order. Models that do not batch run once per request.
pub(super) fn run(
    model: &OnnxModel,
    legs: &[Leg<'_>],
    options: &RunOptions,
) -> Result<Vec<Vec<Tensor>>, ModelFailure> {
    if !model.signature().batches() {
        let alone = |leg: &Leg<'_>| {
            let tensors: Vec<_> = leg.request.tensors.iter().map(Cow::Borrowed).collect();
            model.run(&tensors, options.clone()).map_err(raised)
        };
        return legs.iter().map(alone).collect();
    }
    let inputs = joined(model, legs)?;
    let outputs = model.run(&inputs, options.clone()).map_err(raised)?;
    drop(inputs);
    apart(model, legs, &outputs)
}

/// One tensor per input of the model, over all legs.
fn joined<'a>(model: &OnnxModel, legs: &[Leg<'a>]) -> Result<Vec<Cow<'a, Tensor>>, ModelFailure> {
    let column = |(input, port): (usize, &TensorSpec)| {
        let tensor = |leg: &Leg<'a>| (&leg.request.tensors[input], leg.rows.clone());
        let tensors: Vec<_> = legs.iter().map(tensor).collect();
        let joined = match model.card().padding.as_ref() {
            Some(pads) => pad::join(pads, port, &tensors),
            None => concat(&tensors),
        };
        joined.ok_or_else(|| raised("requests of different shapes met".to_owned()))
    };
    model.signature().inputs.iter().enumerate().map(column).collect()
}

/// Each leg's share of every output.
fn apart(
    model: &OnnxModel,
    legs: &[Leg<'_>],
    outputs: &[Tensor],
) -> Result<Vec<Vec<Tensor>>, ModelFailure> {
    let items: Vec<usize> = legs.iter().map(|leg| leg.rows.len()).collect();
    let mut answers: Vec<Vec<Tensor>> = legs.iter().map(|_| Vec::new()).collect();
    for (output, port) in outputs.iter().zip(&model.signature().outputs) {
        let Some(shares) = split(output, &items) else {
            let (name, rows, total) = (&port.name, output.shape(), items.iter().sum::<usize>());
            let message =
                format!("output {name:?} has shape {rows:?} for a batch of {total} items");
            return Err(ModelFailure { cause: Cause::WrongLength, status: None, message });
        };
        answers.iter_mut().zip(shares).for_each(|(answer, share)| answer.push(share));
    }
    if let Some(pads) = &model.card().padding {
        cut_back(model.signature(), pads, legs, &mut answers)?;
    }
    Ok(answers)
}

/// Gives every leg outputs of its own length.
fn cut_back(
    signature: &Signature,
    pads: &Pads,
    legs: &[Leg<'_>],
    answers: &mut [Vec<Tensor>],
) -> Result<(), ModelFailure> {
    let length = |leg: &Leg<'_>| pads.length(signature, &leg.request.tensors);
    let longest = legs.iter().map(length).max().unwrap_or(0);
    for (leg, answer) in legs.iter().zip(answers) {
        for (tensor, port) in answer.iter_mut().zip(&signature.outputs) {
            if !pad::cut(pads, port, tensor, (length(leg), longest)) {
                let (name, shape) = (&port.name, tensor.shape());
                let message =
                    format!("output {name:?} has shape {shape:?} for items of length {longest}");
                return Err(ModelFailure { cause: Cause::WrongLength, status: None, message });
            }
        }
    }
    Ok(())
}

fn raised(message: String) -> ModelFailure {
    ModelFailure { cause: Cause::Raised, status: None, message }
}

/// Rows of tensors joined along their first dimension; `None` when they differ in anything else. All
/// rows of a tensor alone are not copied.
pub(super) fn concat<'a>(tensors: &[(&'a Tensor, Range<usize>)]) -> Option<Cow<'a, Tensor>> {
    let ((first, rows), rest) = tensors.split_first()?;
    if rest.is_empty() && first.shape().first().is_none_or(|all| *rows == (0..*all)) {
        return Some(Cow::Borrowed(first));
    }
    let row = first.shape().get(1..)?;
    let width: usize = row.iter().product();
    let total: usize = tensors.iter().map(|(_, rows)| rows.len()).sum();
    let mut data = first.data().empty_like(total * width);
    for (tensor, rows) in tensors {
        let (items, other_row) = tensor.shape().split_first()?;
        let alike = tensor.datatype() == first.datatype() && other_row == row;
        let range = rows.start * width..rows.end * width;
        if !alike || rows.end > *items || !data.append(tensor.data(), range) {
            return None;
        }
    }
    Tensor::new(first.datatype(), [&[total], row].concat(), data).map(Cow::Owned)
}

/// All rows of a tensor.
pub(super) fn all_rows(tensor: &Tensor) -> (&Tensor, Range<usize>) {
    (tensor, 0..tensor.shape().first().copied().unwrap_or(1))
}

/// A tensor taken apart along its first dimension; `None` when the parts do not add up to it.
pub(super) fn split(tensor: &Tensor, items: &[usize]) -> Option<Vec<Tensor>> {
    let (rows, row) = tensor.shape().split_first()?;
    if items.iter().sum::<usize>() != *rows {
        return None;
    }
    let width: usize = row.iter().product();
    let mut start = 0;
    let part = |items: &usize| {
        let range = start..start + items * width;
        start = range.end;
        Tensor::new(tensor.datatype(), [&[*items], row].concat(), tensor.data().part(range))
    };
    items.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tensor::Data;
    use jitney_engine::local::Datatype;

    fn tensor(datatype: Datatype, items: usize, row: &[usize], seed: usize) -> Tensor {
        let count = items * row.iter().product::<usize>();
        let data = if datatype == Datatype::Fp32 {
            Data::F32((0..count).map(|index| (seed + index) as f32).collect())
        } else {
            Data::I32((0..count).map(|index| (seed * 31 + index) as i32).collect())
        };
        Tensor::new(datatype, [&[items], row].concat(), data).expect("shape and data agree")
    }

    proptest! {
        #[test]
        fn what_was_joined_comes_apart_again(
            items in prop::collection::vec(1usize..5, 1..9),
            row in prop::collection::vec(1usize..4, 0..4),
            whole in any::<bool>(),
        ) {
            let datatype = if whole { Datatype::Int64 } else { Datatype::Fp32 };
            let tensors: Vec<Tensor> = items
                .iter()
                .enumerate()
                .map(|(seed, items)| tensor(datatype, *items, &row, seed * 1000))
                .collect();
            let together = concat(&tensors.iter().map(all_rows).collect::<Vec<_>>()).expect("alike");
            prop_assert_eq!(split(&together, &items), Some(tensors));
        }
    }

    #[test]
    fn tensors_of_different_rows_or_types_are_not_joined() {
        let floats = tensor(Datatype::Fp32, 1, &[2], 0);
        let wider = tensor(Datatype::Fp32, 1, &[3], 0);
        let whole = tensor(Datatype::Int32, 1, &[2], 0);
        assert_eq!(concat(&[&floats, &wider].map(all_rows)), None);
        assert_eq!(concat(&[&floats, &whole].map(all_rows)), None);
        assert_eq!(concat(&[]), None);
    }

    #[test]
    fn a_tensor_of_another_length_than_its_parts_is_not_split() {
        assert_eq!(split(&tensor(Datatype::Fp32, 3, &[2], 0), &[1, 1]), None);
        let scalar = Tensor::new(Datatype::Fp32, vec![], Data::F32(vec![1.0]));
        assert_eq!(split(&scalar.expect("one element"), &[1]), None);
    }
}
