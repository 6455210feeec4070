//! What a model takes and gives: names, element types, shapes, and which dimension is the batch.
//!
//! The signature is read once at load; the door checks requests against it without touching the
//! engine. A model batches only if every input has an open first dimension and no output closes it;
//! guessing more would hand somebody another's row.

use std::fmt;

use super::tensor::{Datatype, Tensor};

/// One dimension of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Always this size.
    Fixed(usize),
    /// Any size; dimensions of one name have the same size within a request.
    Open(String),
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// The element type that the file declares.
    pub datatype: Datatype,
    /// Its dimensions; `None` when the file does not say.
    pub shape: Option<Vec<Dim>>,
}

impl Port {
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

/// As the sentences of refusals say it: `INT32 of shape [n, 2048]`.
impl fmt::Display for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(shape) = &self.shape else {
            return write!(formatter, "{} of any shape", self.datatype);
        };
        let mut dims = shape.iter().enumerate().map(|(place, dim)| match dim {
            Dim::Fixed(size) => size.to_string(),
            Dim::Open(_) if place == 0 => "n".to_owned(),
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// In the model's order.
    pub inputs: Vec<Port>,
    /// In the model's order.
    pub outputs: Vec<Port>,
}

impl Signature {
    /// Whether requests can be joined along the first dimension.
    pub fn batches(&self) -> bool {
        let open = |port: &Port| matches!(port.first(), Some(Dim::Open(_)));
        let may_be_open =
            |port: &Port| port.shape.is_none() || matches!(port.first(), Some(Dim::Open(_)));
        !self.inputs.is_empty()
            && self.inputs.iter().all(open)
            && self.outputs.iter().all(may_be_open)
    }

    /// The input of this name, with its place.
    pub fn input(&self, name: &str) -> Option<(usize, &Port)> {
        self.inputs.iter().enumerate().find(|(_, port)| port.name == name)
    }

    /// The sizes that the model leaves open beside the batch and a dimension that is padded: what
    /// must agree within a batch.
    pub(super) fn open_sizes(&self, tensors: &[Tensor], padded: Option<&str>) -> Vec<usize> {
        if !self.batches() {
            return Vec::new();
        }
        let ports = self.inputs.iter().filter_map(|port| port.shape.as_deref()).zip(tensors);
        ports
            .flat_map(|(shape, tensor)| shape.iter().zip(tensor.shape()).skip(1))
            .filter_map(|(dim, size)| match dim {
                Dim::Open(name) if padded != Some(name) => Some(*size),
                Dim::Open(_) | Dim::Fixed(_) => None,
            })
            .collect()
    }

    /// The names of the inputs, as sentences list them.
    pub(super) fn input_names(&self) -> String {
        list(self.inputs.iter().map(|port| port.name.as_str()))
    }

    /// The names of the outputs, as sentences list them.
    pub(super) fn output_names(&self) -> String {
        list(self.outputs.iter().map(|port| port.name.as_str()))
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
