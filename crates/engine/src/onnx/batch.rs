//! Joins the requests of a batch along the first dimension, runs the model once, and takes the
//! outputs apart again. Nobody may get another's row: an output whose first dimension is not the sum
//! of the items fails the batch, and so do neighbours of different shapes.

use std::borrow::Cow;

use rten::RunOptions;

use super::model::OnnxModel;
use super::request::Request;
use super::tensor::Tensor;
use crate::outcome::{Cause, ModelFailure};

/// The outputs of each request, in order. Models that do not batch run once per request.
pub(super) fn run(
    model: &OnnxModel,
    requests: &[&Request],
    options: &RunOptions,
) -> Result<Vec<Vec<Tensor>>, ModelFailure> {
    if !model.signature().batches() {
        let alone = |request: &&Request| {
            let tensors: Vec<_> = request.tensors.iter().map(Cow::Borrowed).collect();
            model.run(&tensors, options.clone()).map_err(raised)
        };
        return requests.iter().map(alone).collect();
    }
    let inputs = joined(requests, model.signature().inputs.len())?;
    let outputs = model.run(&inputs, options.clone()).map_err(raised)?;
    drop(inputs);
    apart(model, requests, &outputs)
}

/// One tensor per input of the model, over all requests.
fn joined<'a>(
    requests: &[&'a Request],
    inputs: usize,
) -> Result<Vec<Cow<'a, Tensor>>, ModelFailure> {
    let column = |input| {
        let tensors: Vec<&Tensor> =
            requests.iter().map(|request| &request.tensors[input]).collect();
        concat(&tensors).ok_or_else(|| raised("requests of different shapes met".to_owned()))
    };
    (0..inputs).map(column).collect()
}

/// Each request's share of every output.
fn apart(
    model: &OnnxModel,
    requests: &[&Request],
    outputs: &[Tensor],
) -> Result<Vec<Vec<Tensor>>, ModelFailure> {
    let items: Vec<usize> = requests.iter().map(|request| request.items as usize).collect();
    let mut answers: Vec<Vec<Tensor>> = requests.iter().map(|_| Vec::new()).collect();
    for (output, port) in outputs.iter().zip(&model.signature().outputs) {
        let Some(shares) = split(output, &items) else {
            let (name, rows, total) = (&port.name, output.shape(), items.iter().sum::<usize>());
            let message =
                format!("output {name:?} has shape {rows:?} for a batch of {total} items");
            return Err(ModelFailure { cause: Cause::WrongLength, status: None, message });
        };
        answers.iter_mut().zip(shares).for_each(|(answer, share)| answer.push(share));
    }
    Ok(answers)
}

fn raised(message: String) -> ModelFailure {
    ModelFailure { cause: Cause::Raised, status: None, message }
}

/// Tensors joined along their first dimension; `None` when they differ in anything else. A tensor
/// alone is not copied.
pub(super) fn concat<'a>(tensors: &[&'a Tensor]) -> Option<Cow<'a, Tensor>> {
    let (&first, rest) = tensors.split_first()?;
    if rest.is_empty() {
        return Some(Cow::Borrowed(first));
    }
    let row = first.shape().get(1..)?;
    let elements = tensors.iter().map(|tensor| tensor.data().len()).sum();
    let (mut rows, mut data) = (0, first.data().empty_like(elements));
    for tensor in tensors {
        let (items, other_row) = tensor.shape().split_first()?;
        if tensor.datatype() != first.datatype() || other_row != row || !data.append(tensor.data())
        {
            return None;
        }
        rows += items;
    }
    Tensor::new(first.datatype(), [&[rows], row].concat(), data).map(Cow::Owned)
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
    use crate::onnx::tensor::{Data, Datatype};

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
            let together = concat(&tensors.iter().collect::<Vec<_>>()).expect("alike");
            prop_assert_eq!(split(&together, &items), Some(tensors));
        }
    }

    #[test]
    fn tensors_of_different_rows_or_types_are_not_joined() {
        let floats = tensor(Datatype::Fp32, 1, &[2], 0);
        let wider = tensor(Datatype::Fp32, 1, &[3], 0);
        let whole = tensor(Datatype::Int32, 1, &[2], 0);
        assert_eq!(concat(&[&floats, &wider]), None);
        assert_eq!(concat(&[&floats, &whole]), None);
        assert_eq!(concat(&[]), None);
    }

    #[test]
    fn a_tensor_of_another_length_than_its_parts_is_not_split() {
        assert_eq!(split(&tensor(Datatype::Fp32, 3, &[2], 0), &[1, 1]), None);
        let scalar = Tensor::new(Datatype::Fp32, vec![], Data::F32(vec![1.0]));
        assert_eq!(split(&scalar.expect("one element"), &[1]), None);
    }
}
