//! Requests of different length in one batch, for a model whose card allows padding.
//!
//! Inputs are filled up behind along one open dimension to the longest of the batch, and outputs that
//! have this dimension are cut back, so that every client sees the length that it sent. Whether a
//! model may be padded at all is for its author to decide; here it is only checked that the rule fits the
//! model. Nothing is padded that the card does not name.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde::Deserialize;

use super::tensor::{self, Rows, Tensor};
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::Datatype;

/// How a card allows padding.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PaddingRule {
    /// The open dimension along which items may differ.
    pub dimension: String,
    /// What inputs are filled up with; 0 for those that are not named.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
}

impl PaddingRule {
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
            let spec = padded.iter().find(|spec| spec.name == *input);
            let spec =
                spec.ok_or(format!("padding.values: {input:?} is no input with {name:?}"))?;
            if !holds(spec.datatype, *value) {
                return Err(format!(
                    "padding.values: {value} is no {} for {input:?}",
                    spec.datatype
                ));
            }
        }
        signature.outputs.iter().try_for_each(|spec| self.suits_output(spec))
    }

    /// An output may be as long as the inputs only under their dimension's name, or it would be unknown
    /// what to cut.
    fn suits_output(&self, spec: &TensorSpec) -> Result<(), String> {
        let unknown = |dim: &Dim| matches!(dim, Dim::Open(name) if *name != self.dimension);
        let clear = spec.shape.as_ref().is_some_and(|shape| !shape.iter().skip(1).any(unknown));
        if clear {
            Ok(())
        } else {
            Err(format!(
                "padding: output {:?} ({spec}) does not say which of its dimensions is {:?}; name it in \
             the model",
                spec.name, self.dimension
            ))
        }
    }

    /// The place of the dimension, which is never the first.
    pub(super) fn axis(&self, spec: &TensorSpec) -> Option<usize> {
        let shape = spec.shape.as_ref()?.iter().enumerate().skip(1);
        let named = |dim: &Dim| matches!(dim, Dim::Open(name) if *name == self.dimension);
        shape.into_iter().find(|(_, dim)| named(dim)).map(|(place, _)| place)
    }

    /// The length of a request with these tensors.
    pub(super) fn length(&self, signature: &Signature, tensors: &[Tensor]) -> usize {
        let specs = signature.inputs.iter().zip(tensors);
        let sizes = specs.filter_map(|(spec, tensor)| tensor.shape().get(self.axis(spec)?));
        sizes.copied().max().unwrap_or(0)
    }

    /// The value of an input.
    pub(super) fn value(&self, spec: &TensorSpec) -> f64 {
        self.values.get(&spec.name).copied().unwrap_or(0.0)
    }
}

/// Rows of tensors joined along their first dimension, the shorter ones filled up; `None` when they
/// differ in anything else.
pub(super) fn join(
    pads: &PaddingRule,
    spec: &TensorSpec,
    tensors: &[Rows<'_>],
    room: BytesMut,
) -> Option<Tensor> {
    let Some(axis) = pads.axis(spec) else { return tensor::concat(tensors, room) };
    let length = |tensor: &Tensor| tensor.shape().get(axis).copied();
    let longest = tensors.iter().filter_map(|(tensor, _)| length(tensor)).max()?;
    if tensors.iter().all(|(tensor, _)| length(tensor) == Some(longest)) {
        return tensor::concat(tensors, room);
    }
    let filled =
        |(tensor, rows): &Rows<'_>| tensor.resized(rows.clone(), axis, longest, pads.value(spec));
    let filled: Vec<Tensor> = tensors.iter().map(filled).collect::<Option<_>>()?;
    let rows: Vec<_> = filled.iter().map(Tensor::all_rows).collect();
    tensor::concat(&rows, room)
}

/// Cuts an output of a batch back to a request's own length; false if it is not as long as the batch.
pub(super) fn cut(
    pads: &PaddingRule,
    spec: &TensorSpec,
    tensor: &mut Tensor,
    (own, longest): (usize, usize),
) -> bool {
    let Some(axis) = pads.axis(spec) else { return true };
    if tensor.shape().get(axis) != Some(&longest) {
        return false;
    }
    if own < longest {
        let (_, rows) = tensor.all_rows();
        let Some(short) = tensor.resized(rows, axis, own, 0.0) else { return false };
        *tensor = short;
    }
    true
}

/// Whether a tensor of this type can hold the value as it is.
fn holds(datatype: Datatype, value: f64) -> bool {
    match tensor::whole_range(datatype) {
        Some((min, max)) => value.fract() == 0.0 && (min..=max).contains(&(value as i128)),
        None => value.is_finite() && datatype != Datatype::Bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_rejected_that_does_not_fit_the_model() {
        let open = |name: &str| Dim::Open(name.to_owned());
        let spec = |name: &str, shape| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Int64,
            shape: Some(shape),
        };
        let check = |pads: &PaddingRule, output: Vec<Dim>, expected: &str| {
            let inputs = vec![spec("ids", vec![open("n"), open("length")])];
            let signature = Signature { inputs, outputs: vec![spec("y", output)] };
            let told = pads.suit(&signature).err().unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{told}");
        };
        let pads = |dimension: &str, value: Option<(&str, f64)>| PaddingRule {
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
