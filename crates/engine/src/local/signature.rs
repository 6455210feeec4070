//! What a local model takes and gives: names, element types, shapes, and which dimension is the batch.
//!
//! A model batches only if every input has an open first dimension and no output closes it; guessing
//! more would give a client the rows of another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tensors::Datatype;

/// One dimension of an input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// Always this size.
    Fixed(usize),
    /// Any size; dimensions of one name have the same size within a request. One without a name is
    /// related to no other, nor to the batch.
    Open(String),
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// The element type that the file declares.
    pub datatype: Datatype,
    /// Its dimensions; `None` when the file does not tell.
    pub shape: Option<Vec<Dim>>,
}

impl TensorSpec {
    /// The shape in the protocol's notation, -1 for an open dimension.
    pub fn shape_or_minus_one(&self) -> Vec<i64> {
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            Dim::Open(_) => -1,
        };
        self.shape.iter().flatten().map(size).collect()
    }

    fn first(&self) -> Option<&Dim> {
        self.shape.as_ref().and_then(|shape| shape.first())
    }
}

/// As error messages have it: `INT32 of shape [n, 2048]`.
impl fmt::Display for TensorSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(shape) = &self.shape else {
            return write!(formatter, "{} of any shape", self.datatype);
        };
        let mut dims = shape.iter().enumerate().map(|(position, dim)| match dim {
            Dim::Fixed(size) => size.to_string(),
            Dim::Open(_) if position == 0 => "n".to_owned(),
            // Converters invent names such as `unk__214`; they would only puzzle a client.
            Dim::Open(name) if name.contains("unk__") || name.starts_with("unnamed_") => {
                "any".to_owned()
            }
            Dim::Open(name) => name.clone(),
        });
        let first = dims.next().unwrap_or_default();
        let shape = dims.fold(first, |text, dim| text + ", " + &dim);
        write!(formatter, "{} of shape [{shape}]", self.datatype)
    }
}

/// Everything that a model takes and gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// In the model's order.
    pub inputs: Vec<TensorSpec>,
    /// In the model's order.
    pub outputs: Vec<TensorSpec>,
}

impl Signature {
    /// Whether what a file declared is what its model turned out to be, as far as requests are read by it: the
    /// names, and the types of inputs. Shapes may differ, and the types of outputs that a file may leave unsaid.
    pub fn keeps_to(&self, declared: &Self) -> bool {
        let inputs = |it: &Self| -> Vec<_> {
            it.inputs.iter().map(|spec| (spec.name.clone(), spec.datatype)).collect()
        };
        let outputs =
            |it: &Self| -> Vec<_> { it.outputs.iter().map(|spec| spec.name.clone()).collect() };
        inputs(self) == inputs(declared) && outputs(self) == outputs(declared)
    }

    /// Whether requests can be joined along the first dimension.
    pub fn batches(&self) -> bool {
        let open =
            |spec: &TensorSpec| matches!(spec.first(), Some(Dim::Open(name)) if !name.is_empty());
        let may_be_open = |spec: &TensorSpec| spec.shape.is_none() || open(spec);
        !self.inputs.is_empty()
            && self.inputs.iter().all(open)
            && self.outputs.iter().all(may_be_open)
    }

    /// The input of this name, with its position.
    pub fn input(&self, name: &str) -> Option<(usize, &TensorSpec)> {
        self.inputs.iter().enumerate().find(|(_, spec)| spec.name == name)
    }
}
