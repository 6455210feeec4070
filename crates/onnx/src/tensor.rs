//! Tensors as requests bring them and answers carry them, joined and taken apart along their first
//! dimension. They are not rten's, so that a change of rten changes one file. The data of a tensor
//! always fills its shape.

use std::borrow::Cow;
use std::ops::Range;

use jitney_engine::tensors::Datatype;

/// Elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TensorData {
    /// For `FP16`, `FP32` and `FP64`.
    F32(Vec<f32>),
    /// For `INT32`, `INT64` and `BOOL`.
    I32(Vec<i32>),
    /// For `INT8`.
    I8(Vec<i8>),
    /// For `UINT8`.
    U8(Vec<u8>),
}

impl TensorData {
    /// How many elements there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I32(data) => data.len(),
            Self::I8(data) => data.len(),
            Self::U8(data) => data.len(),
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

/// The least and the greatest value of a type of whole numbers; `None` for floating point.
pub(super) fn whole_range(datatype: Datatype) -> Option<(f64, f64)> {
    match datatype {
        Datatype::Bool => Some((0.0, 1.0)),
        Datatype::Uint8 => Some((0.0, u8::MAX.into())),
        Datatype::Int8 => Some((i8::MIN.into(), i8::MAX.into())),
        Datatype::Int32 | Datatype::Int64 => Some((i32::MIN.into(), i32::MAX.into())),
        Datatype::Fp16
        | Datatype::Fp32
        | Datatype::Fp64
        | Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int16
        | Datatype::Bf16
        | Datatype::Bytes => None,
    }
}

/// Elements with a shape; the product of the shape is the number of elements, always.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    datatype: Datatype,
    shape: Vec<usize>,
    data: TensorData,
}

impl Tensor {
    /// A tensor, unless the data does not fill the shape.
    pub(super) fn new(datatype: Datatype, shape: Vec<usize>, data: TensorData) -> Option<Self> {
        let elements = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))?;
        (elements == data.len()).then_some(Self { datatype, shape, data })
    }

    /// The element type that the model declares.
    pub(super) fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The size of each dimension.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub(super) fn data(&self) -> &TensorData {
        &self.data
    }

    /// All rows.
    pub(super) fn all_rows(&self) -> Rows<'_> {
        (self, 0..self.shape.first().copied().unwrap_or(1))
    }

    /// The tensor taken apart along its first dimension; `None` when the parts do not add up to it.
    pub(super) fn split(&self, items: &[usize]) -> Option<Vec<Self>> {
        if self.shape.first() != Some(&items.iter().sum()) {
            return None;
        }
        let mut start = 0;
        let part = |items: &usize| {
            let rows = start..start + items;
            start = rows.end;
            concat(&[(self, rows)]).map(Cow::into_owned)
        };
        items.iter().map(part).collect()
    }

    /// Some rows with another size of a dimension: filled up behind with `value`, or cut.
    pub(super) fn resized(
        &self,
        rows: Range<usize>,
        axis: usize,
        length: usize,
        value: f64,
    ) -> Option<Self> {
        let before = *self.shape.get(axis)?;
        let inner: usize = self.shape[axis + 1..].iter().product();
        let blocks: usize = self.shape.get(1..axis)?.iter().product();
        let (kept, missing) = (before.min(length) * inner, length.saturating_sub(before) * inner);
        let mut data = self.data.empty_like(rows.len() * blocks * length * inner);
        for block in rows.start * blocks..rows.end * blocks {
            let start = block * before * inner;
            if !data.append(&self.data, start..start + kept) {
                return None;
            }
            data.fill(missing, value);
        }
        let mut shape = self.shape.clone();
        (shape[0], shape[axis]) = (rows.len(), length);
        Self::new(self.datatype, shape, data)
    }
}

/// Some rows of a tensor.
pub(super) type Rows<'a> = (&'a Tensor, Range<usize>);

/// Rows of tensors joined along their first dimension; `None` when they differ in anything else. All
/// rows of a tensor alone are not copied.
pub(super) fn concat<'a>(tensors: &[Rows<'a>]) -> Option<Cow<'a, Tensor>> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tensor(datatype: Datatype, items: usize, row: &[usize], seed: usize) -> Tensor {
        let count = items * row.iter().product::<usize>();
        let data = if datatype == Datatype::Fp32 {
            TensorData::F32((0..count).map(|index| (seed + index) as f32).collect())
        } else {
            TensorData::I32((0..count).map(|index| (seed * 31 + index) as i32).collect())
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
            let together = concat(&tensors.iter().map(Tensor::all_rows).collect::<Vec<_>>()).expect("alike");
            prop_assert_eq!(together.split(&items), Some(tensors));
        }
    }

    #[test]
    fn tensors_of_different_rows_or_types_are_not_joined() {
        let floats = tensor(Datatype::Fp32, 1, &[2], 0);
        let wider = tensor(Datatype::Fp32, 1, &[3], 0);
        let whole = tensor(Datatype::Int32, 1, &[2], 0);
        assert_eq!(concat(&[&floats, &wider].map(Tensor::all_rows)), None);
        assert_eq!(concat(&[&floats, &whole].map(Tensor::all_rows)), None);
        assert_eq!(concat(&[]), None);
    }

    #[test]
    fn a_tensor_of_another_length_than_its_parts_is_not_split() {
        assert_eq!(tensor(Datatype::Fp32, 3, &[2], 0).split(&[1, 1]), None);
        let scalar = Tensor::new(Datatype::Fp32, vec![], TensorData::F32(vec![1.0]));
        assert_eq!(scalar.expect("one element").split(&[1]), None);
    }

    fn counted(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        let data = TensorData::I32((1..=count as i32).collect());
        Tensor::new(Datatype::Int64, shape.to_vec(), data).expect("shape and data agree")
    }

    fn numbers(tensor: &Tensor) -> &[i32] {
        let TensorData::I32(numbers) = tensor.data() else { panic!("whole numbers") };
        numbers
    }

    #[test]
    fn rows_are_filled_up_behind_and_cut_back() {
        let filled = counted(&[3, 2]).resized(1..3, 1, 4, -1.0).expect("filled");
        assert_eq!(filled.shape(), [2, 4]);
        assert_eq!(numbers(&filled), [3, 4, -1, -1, 5, 6, -1, -1]);
        let back = filled.resized(0..2, 1, 2, 0.0).expect("cut");
        assert_eq!((back.shape(), numbers(&back)), (&[2, 2][..], &[3, 4, 5, 6][..]));
        assert!(filled.resized(0..2, 2, 2, 0.0).is_none(), "no such dimension");
    }

    #[test]
    fn a_dimension_in_the_middle_is_padded_in_every_block() {
        let filled = counted(&[1, 2, 1, 2]).resized(0..1, 2, 2, 0.0).expect("filled");
        assert_eq!(filled.shape(), [1, 2, 2, 2]);
        assert_eq!(numbers(&filled), [1, 2, 0, 0, 3, 4, 0, 0]);
    }
}
