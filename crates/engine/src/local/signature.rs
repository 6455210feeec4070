//! What a local model takes and gives: names, element types, shapes, and which dimension is the batch.
//!
//! A model batches only if every input has an open first dimension and no output closes it; guessing
//! more would give a client the rows of another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An element type, named as the Open Inference Protocol names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Datatype {
    /// Truth values, held as 32-bit integers.
    Bool,
    /// Bytes.
    Uint8,
    /// Signed bytes.
    Int8,
    /// 32-bit integers.
    Int32,
    /// 64-bit integers, held as 32-bit ones: values beyond that are rejected.
    Int64,
    /// Half precision, held as single.
    Fp16,
    /// Single precision.
    Fp32,
    /// Double precision, held as single.
    Fp64,
}

impl Datatype {
    const NAMES: [(&str, Self); 8] = [
        ("BOOL", Self::Bool),
        ("UINT8", Self::Uint8),
        ("INT8", Self::Int8),
        ("INT32", Self::Int32),
        ("INT64", Self::Int64),
        ("FP16", Self::Fp16),
        ("FP32", Self::Fp32),
        ("FP64", Self::Fp64),
    ];

    /// The protocol's name.
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, datatype)| *datatype == self).map_or("", |(name, _)| name)
    }

    /// The type of this name, if it is one that can be served.
    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, datatype)| *datatype)
    }

    /// Whether a client may send `sent` where the model declares `self`: the two may differ in
    /// width where both are held in the same width anyway.
    pub fn admits(self, sent: Self) -> bool {
        let family = |datatype| match datatype {
            Self::Bool => 0,
            Self::Uint8 => 1,
            Self::Int8 => 2,
            Self::Int32 | Self::Int64 => 3,
            Self::Fp16 | Self::Fp32 | Self::Fp64 => 4,
        };
        family(self) == family(sent)
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One dimension of an input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// Always this size.
    Fixed(usize),
    /// Any size; dimensions of one name have the same size within a request.
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
    /// Whether requests can be joined along the first dimension.
    pub fn batches(&self) -> bool {
        let open = |spec: &TensorSpec| matches!(spec.first(), Some(Dim::Open(_)));
        let may_be_open =
            |spec: &TensorSpec| spec.shape.is_none() || matches!(spec.first(), Some(Dim::Open(_)));
        !self.inputs.is_empty()
            && self.inputs.iter().all(open)
            && self.outputs.iter().all(may_be_open)
    }

    /// The input of this name, with its position.
    pub fn input(&self, name: &str) -> Option<(usize, &TensorSpec)> {
        self.inputs.iter().enumerate().find(|(_, spec)| spec.name == name)
    }
}
