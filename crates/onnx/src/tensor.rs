//! Tensors as requests bring them and answers carry them, in the words of the Open Inference
//! Protocol. Kept apart from the engine's own tensors so that a change of engine changes one file.
//! Nothing here copies data that could be shared, and no tensor exists whose shape and data differ.

use std::ops::Range;

use jitney_engine::local::Datatype;

/// Elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// For `FP16`, `FP32` and `FP64`.
    F32(Vec<f32>),
    /// For `INT32`, `INT64` and `BOOL`.
    I32(Vec<i32>),
    /// For `INT8`.
    I8(Vec<i8>),
    /// For `UINT8`.
    U8(Vec<u8>),
}

impl Data {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I32(data) => data.len(),
            Self::I8(data) => data.len(),
            Self::U8(data) => data.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of some of the elements.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        match self {
            Self::F32(data) => Self::F32(data[range].to_vec()),
            Self::I32(data) => Self::I32(data[range].to_vec()),
            Self::I8(data) => Self::I8(data[range].to_vec()),
            Self::U8(data) => Self::U8(data[range].to_vec()),
        }
    }

    /// Adds some of the elements of another; false when it is of another type.
    #[must_use]
    pub(super) fn append(&mut self, other: &Self, range: Range<usize>) -> bool {
        match (self, other) {
            (Self::F32(all), Self::F32(more)) => all.extend_from_slice(&more[range]),
            (Self::I32(all), Self::I32(more)) => all.extend_from_slice(&more[range]),
            (Self::I8(all), Self::I8(more)) => all.extend_from_slice(&more[range]),
            (Self::U8(all), Self::U8(more)) => all.extend_from_slice(&more[range]),
            (Self::F32(_) | Self::I32(_) | Self::I8(_) | Self::U8(_), _) => return false,
        }
        true
    }

    /// Adds a value so many times.
    pub(super) fn fill(&mut self, count: usize, value: f64) {
        match self {
            Self::F32(all) => all.resize(all.len() + count, value as f32),
            Self::I32(all) => all.resize(all.len() + count, value as i32),
            Self::I8(all) => all.resize(all.len() + count, value as i8),
            Self::U8(all) => all.resize(all.len() + count, value as u8),
        }
    }

    /// No elements yet, of the same type and with room for so many.
    pub(super) fn empty_like(&self, capacity: usize) -> Self {
        match self {
            Self::F32(_) => Self::F32(Vec::with_capacity(capacity)),
            Self::I32(_) => Self::I32(Vec::with_capacity(capacity)),
            Self::I8(_) => Self::I8(Vec::with_capacity(capacity)),
            Self::U8(_) => Self::U8(Vec::with_capacity(capacity)),
        }
    }
}

/// Elements with a shape; the product of the shape is the number of elements, always.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    datatype: Datatype,
    shape: Vec<usize>,
    data: Data,
}

impl Tensor {
    /// A tensor, unless the data does not fill the shape.
    pub fn new(datatype: Datatype, shape: Vec<usize>, data: Data) -> Option<Self> {
        let elements = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))?;
        (elements == data.len()).then_some(Self { datatype, shape, data })
    }

    /// The element type that the model declares.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }
}
