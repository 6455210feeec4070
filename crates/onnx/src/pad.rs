//! Requests of different length in one batch, for a model whose card says that it may be padded.
//!
//! Inputs are filled up behind along one open dimension to the longest of the batch, and outputs that
//! have this dimension are cut back, so that every client sees the length that it sent. Whether a
//! model may be padded at all is its author's word; here it is only checked that the word fits the
//! model. Nothing is padded that the card does not name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use super::batch;
use super::tensor::Tensor;
use jitney_engine::local::Datatype;
use jitney_engine::local::{Dim, Signature, TensorSpec};

/// What a card says about padding.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Pads {
    /// The open dimension along which items may differ.
    pub dimension: String,
    /// What inputs are filled up with; 0 for those that are not named.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
}

impl Pads {
    /// Whether this can be done to the model; a sentence if not.
    pub(super) fn suit(&self, signature: &Signature) -> Result<(), String> {
        let name = &self.dimension;
        if !signature.batches() {
            return Err("padding: the model does not batch, so that nothing is padded".to_owned());
        }
        let padded: Vec<_> = signature.inputs.iter().filter(|it| self.axis(it).is_some()).collect();
        if padded.is_empty() {
            return Err(format!("padding.dimension: no input leaves a dimension {name:?} open"));
        }
        for (input, value) in &self.values {
            let port = padded.iter().find(|port| port.name == *input);
            let port =
                port.ok_or(format!("padding.values: {input:?} is no input with {name:?}"))?;
            if !holds(port.datatype, *value) {
                return Err(format!(
                    "padding.values: {value} is no {} for {input:?}",
                    port.datatype
                ));
            }
        }
        signature.outputs.iter().try_for_each(|port| self.suits_output(port))
    }

    /// An output may be as long as the inputs only under their dimension's name, or nobody would know
    /// what to cut.
    fn suits_output(&self, port: &TensorSpec) -> Result<(), String> {
        let unknown = |dim: &Dim| matches!(dim, Dim::Open(name) if *name != self.dimension);
        let clear = port.shape.as_ref().is_some_and(|shape| !shape.iter().skip(1).any(unknown));
        if clear {
            Ok(())
        } else {
            Err(format!(
                "padding: output {:?} ({port}) does not say which of its dimensions is {:?}; name it in \
             the model",
                port.name, self.dimension
            ))
        }
    }

    /// The place of the dimension, which is never the first.
    pub(super) fn axis(&self, port: &TensorSpec) -> Option<usize> {
        let shape = port.shape.as_ref()?.iter().enumerate().skip(1);
        let named = |dim: &Dim| matches!(dim, Dim::Open(name) if *name == self.dimension);
        shape.into_iter().find(|(_, dim)| named(dim)).map(|(place, _)| place)
    }

    /// The length of a request with these tensors.
    pub(super) fn length(&self, signature: &Signature, tensors: &[Tensor]) -> usize {
        let ports = signature.inputs.iter().zip(tensors);
        let sizes = ports.filter_map(|(port, tensor)| tensor.shape().get(self.axis(port)?));
        sizes.copied().max().unwrap_or(0)
    }

    /// The value of an input.
    pub(super) fn value(&self, port: &TensorSpec) -> f64 {
        self.values.get(&port.name).copied().unwrap_or(0.0)
    }
}

/// Rows of tensors joined along their first dimension, the shorter ones filled up; `None` when they
/// differ in anything else.
pub(super) fn join<'a>(
    pads: &Pads,
    port: &TensorSpec,
    tensors: &[(&'a Tensor, Range<usize>)],
) -> Option<Cow<'a, Tensor>> {
    let Some(axis) = pads.axis(port) else { return batch::concat(tensors) };
    let length = |tensor: &Tensor| tensor.shape().get(axis).copied();
    let longest = tensors.iter().filter_map(|(tensor, _)| length(tensor)).max()?;
    if tensors.iter().all(|(tensor, _)| length(tensor) == Some(longest)) {
        return batch::concat(tensors);
    }
    let filled = |(tensor, rows): &(&Tensor, Range<usize>)| {
        resized(tensor, rows.clone(), axis, longest, pads.value(port))
    };
    let filled: Vec<Tensor> = tensors.iter().map(filled).collect::<Option<_>>()?;
    let rows: Vec<_> = filled.iter().map(batch::all_rows).collect();
    batch::concat(&rows).map(|joined| Cow::Owned(joined.into_owned()))
}

/// Cuts an output of a batch back to a request's own length; false if it is not as long as the batch.
pub(super) fn cut(
    pads: &Pads,
    port: &TensorSpec,
    tensor: &mut Tensor,
    (own, longest): (usize, usize),
) -> bool {
    let Some(axis) = pads.axis(port) else { return true };
    if tensor.shape().get(axis) != Some(&longest) {
        return false;
    }
    if own < longest {
        let (_, rows) = batch::all_rows(tensor);
        let Some(short) = resized(tensor, rows, axis, own, 0.0) else { return false };
        *tensor = short;
    }
    true
}

/// Some rows of a tensor with another size of a dimension: filled up behind, or cut.
pub(super) fn resized(
    tensor: &Tensor,
    rows: Range<usize>,
    axis: usize,
    length: usize,
    value: f64,
) -> Option<Tensor> {
    let before = *tensor.shape().get(axis)?;
    let inner: usize = tensor.shape()[axis + 1..].iter().product();
    let blocks: usize = tensor.shape().get(1..axis)?.iter().product();
    let (kept, missing) = (before.min(length) * inner, length.saturating_sub(before) * inner);
    let mut data = tensor.data().empty_like(rows.len() * blocks * length * inner);
    for block in rows.start * blocks..rows.end * blocks {
        let start = block * before * inner;
        if !data.append(tensor.data(), start..start + kept) {
            return None;
        }
        data.fill(missing, value);
    }
    let mut shape = tensor.shape().to_vec();
    (shape[0], shape[axis]) = (rows.len(), length);
    Tensor::new(tensor.datatype(), shape, data)
}

/// Whether a tensor of this type can hold the value as it is.
fn holds(datatype: Datatype, value: f64) -> bool {
    let whole = |least: f64, most: f64| value.fract() == 0.0 && (least..=most).contains(&value);
    match datatype {
        Datatype::Bool => whole(0.0, 1.0),
        Datatype::Uint8 => whole(0.0, 255.0),
        Datatype::Int8 => whole(-128.0, 127.0),
        Datatype::Int32 | Datatype::Int64 => whole(i32::MIN.into(), i32::MAX.into()),
        Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64 => value.is_finite(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Data;

    fn tensor(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        let data = Data::I32((1..=count as i32).collect());
        Tensor::new(Datatype::Int64, shape.to_vec(), data).expect("shape and data agree")
    }

    fn numbers(tensor: &Tensor) -> &[i32] {
        let Data::I32(numbers) = tensor.data() else { panic!("whole numbers") };
        numbers
    }

    #[test]
    fn rows_are_filled_up_behind_and_cut_back() {
        let filled = resized(&tensor(&[3, 2]), 1..3, 1, 4, -1.0).expect("filled");
        assert_eq!(filled.shape(), [2, 4]);
        assert_eq!(numbers(&filled), [3, 4, -1, -1, 5, 6, -1, -1]);
        let back = resized(&filled, 0..2, 1, 2, 0.0).expect("cut");
        assert_eq!((back.shape(), numbers(&back)), (&[2, 2][..], &[3, 4, 5, 6][..]));
        assert!(resized(&filled, 0..2, 2, 2, 0.0).is_none(), "no such dimension");
    }

    #[test]
    fn a_dimension_in_the_middle_is_padded_in_every_block() {
        let filled = resized(&tensor(&[1, 2, 1, 2]), 0..1, 2, 2, 0.0).expect("filled");
        assert_eq!(filled.shape(), [1, 2, 2, 2]);
        assert_eq!(numbers(&filled), [1, 2, 0, 0, 3, 4, 0, 0]);
    }

    #[test]
    fn a_card_is_refused_that_does_not_fit_the_model() {
        let open = |name: &str| Dim::Open(name.to_owned());
        let port = |name: &str, shape| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Int64,
            shape: Some(shape),
        };
        let check = |pads: &Pads, output: Vec<Dim>, expected: &str| {
            let inputs = vec![port("ids", vec![open("n"), open("length")])];
            let signature = Signature { inputs, outputs: vec![port("y", output)] };
            let told = pads.suit(&signature).err().unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{told}");
        };
        let pads = |dimension: &str, value: Option<(&str, f64)>| Pads {
            dimension: dimension.to_owned(),
            values: value.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
        };
        let as_long = || vec![open("n"), open("length")];
        check(&pads("length", Some(("ids", 7.0))), as_long(), "");
        check(&pads("length", None), vec![open("n"), Dim::Fixed(3)], "");
        check(&pads("width", None), as_long(), "no input leaves a dimension \"width\" open");
        check(&pads("n", None), as_long(), "no input leaves a dimension \"n\" open");
        check(&pads("length", Some(("mask", 0.0))), as_long(), "\"mask\" is no input with");
        check(&pads("length", Some(("ids", 0.5))), as_long(), "0.5 is no INT64 for \"ids\"");
        check(&pads("length", None), vec![open("n"), open("other")], "name it in the model");
        check(&pads("length", None), vec![Dim::Fixed(1)], "does not batch");
    }
}
