//! Tensors as requests bring them and answers carry them: raw elements in their declared type, joined
//! and taken apart along their first dimension. They belong to no engine. The data of a tensor always
//! fills its shape, and clones and rows of it share its memory.

use std::ops::Range;

use bytemuck::Pod;
use bytes::{Bytes, BytesMut};
use jitney_engine::tensors::{Datatype, NamedTensor, strings};

/// The least and the greatest value of a type of whole numbers; `None` for all others.
pub(super) fn whole_range(datatype: Datatype) -> Option<(i128, i128)> {
    match datatype {
        Datatype::Bool => Some((0, 1)),
        Datatype::Uint8 => Some((0, u8::MAX.into())),
        Datatype::Uint16 => Some((0, u16::MAX.into())),
        Datatype::Uint32 => Some((0, u32::MAX.into())),
        Datatype::Uint64 => Some((0, u64::MAX.into())),
        Datatype::Int8 => Some((i8::MIN.into(), i8::MAX.into())),
        Datatype::Int16 => Some((i16::MIN.into(), i16::MAX.into())),
        Datatype::Int32 => Some((i32::MIN.into(), i32::MAX.into())),
        Datatype::Int64 => Some((i64::MIN.into(), i64::MAX.into())),
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 | Datatype::Bytes => None,
    }
}

/// Raw elements with a shape, which they fill, always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    datatype: Datatype,
    shape: Vec<usize>,
    data: Bytes,
}

impl Tensor {
    /// A tensor, unless the data does not fill the shape.
    pub(super) fn new(datatype: Datatype, shape: Vec<usize>, data: Bytes) -> Option<Self> {
        let elements = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))?;
        let fills = match datatype.width() {
            Some(width) => elements.checked_mul(width)? == data.len(),
            None => {
                let whole = |(count, bytes), text: &[u8]| (count + 1, bytes + 4 + text.len());
                strings(&data).fold((0, 0), whole) == (elements, data.len())
            }
        };
        fills.then_some(Self { datatype, shape, data })
    }

    /// A tensor of numbers as they lie in memory, unless they do not fill the shape.
    pub(super) fn of<T: Pod>(datatype: Datatype, shape: Vec<usize>, numbers: &[T]) -> Option<Self> {
        Self::new(datatype, shape, Bytes::copy_from_slice(bytemuck::cast_slice(numbers)))
    }

    /// Zeros, or empty strings.
    pub(super) fn zeros(datatype: Datatype, shape: Vec<usize>) -> Option<Self> {
        let elements = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))?;
        let bytes = elements.checked_mul(datatype.width().unwrap_or(4))?;
        Self::new(datatype, shape, vec![0; bytes].into())
    }

    /// The type of its elements.
    pub(super) fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The size of each dimension.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub(super) fn data(&self) -> &Bytes {
        &self.data
    }

    /// The memory of the elements.
    pub(super) fn into_data(self) -> Bytes {
        self.data
    }

    /// How many elements there are.
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The same under a name.
    pub(super) fn named(self, name: &str) -> Result<NamedTensor, String> {
        NamedTensor::new(name, self.datatype, self.shape, self.data)
    }

    /// All rows.
    pub(super) fn all_rows(&self) -> Rows<'_> {
        (self, 0..self.shape.first().copied().unwrap_or(1))
    }

    /// Some rows, in the same memory; `None` when there are not as many.
    pub(super) fn rows(&self, rows: Range<usize>) -> Option<Self> {
        let (all, row) = self.shape.split_first()?;
        if rows.end > *all || rows.start > rows.end {
            return None;
        }
        if rows == (0..*all) {
            return Some(self.clone());
        }
        let shape = [&[rows.len()], row].concat();
        Some(Self { datatype: self.datatype, shape, data: self.data.slice(self.span(&rows)) })
    }

    /// Where rows lie in the data.
    fn span(&self, rows: &Range<usize>) -> Range<usize> {
        let row: usize = self.shape.iter().skip(1).product();
        let (start, end) = (rows.start * row, rows.end * row);
        match self.datatype.width() {
            Some(width) => start * width..end * width,
            None => {
                let mut places = strings(&self.data).scan(0, |place, text| {
                    *place += 4 + text.len();
                    Some(*place)
                });
                let begins = if start == 0 { 0 } else { places.nth(start - 1).unwrap_or(0) };
                let rest = (end - start).checked_sub(1).and_then(|last| places.nth(last));
                begins..rest.unwrap_or(begins)
            }
        }
    }

    /// The tensor taken apart along its first dimension, without a copy; `None` when the parts do not
    /// add up to it.
    pub(super) fn split(&self, items: &[usize]) -> Option<Vec<Self>> {
        if self.shape.first() != Some(&items.iter().sum()) {
            return None;
        }
        let mut start = 0;
        let part = |items: &usize| {
            let rows = start..start + items;
            start = rows.end;
            self.rows(rows)
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
        let (width, fill) = (self.datatype.width()?, filling(self.datatype, value)?);
        let before = *self.shape.get(axis)?;
        let inner = self.shape[axis + 1..].iter().product::<usize>() * width;
        let blocks: usize = self.shape.get(1..axis)?.iter().product();
        let (kept, missing) = (before.min(length) * inner, length.saturating_sub(before) * inner);
        let mut data = BytesMut::with_capacity(rows.len() * blocks * length * inner);
        for block in rows.start * blocks..rows.end * blocks {
            let start = block * before * inner;
            data.extend_from_slice(self.data.get(start..start + kept)?);
            (0..missing / width).for_each(|_| data.extend_from_slice(&fill[..width]));
        }
        let mut shape = self.shape.clone();
        (shape[0], shape[axis]) = (rows.len(), length);
        Self::new(self.datatype, shape, data.freeze())
    }
}

impl From<&NamedTensor> for Tensor {
    fn from(tensor: &NamedTensor) -> Self {
        let (datatype, data) = (tensor.datatype(), tensor.data().clone());
        Self { datatype, shape: tensor.shape().to_vec(), data }
    }
}

/// One element of this value, in the first bytes.
fn filling(datatype: Datatype, value: f64) -> Option<[u8; 8]> {
    let mut raw = [0; 8];
    let bytes: &[u8] = match datatype {
        Datatype::Bool => &[u8::from(value != 0.0)],
        Datatype::Fp16 => &half::f16::from_f64(value).to_le_bytes(),
        Datatype::Bf16 => &half::bf16::from_f64(value).to_le_bytes(),
        Datatype::Fp32 => &(value as f32).to_le_bytes(),
        Datatype::Fp64 => &value.to_le_bytes(),
        Datatype::Uint64 => &(value as u64).to_le_bytes(),
        Datatype::Uint8
        | Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Int8
        | Datatype::Int16
        | Datatype::Int32
        // Narrower types are the lower bytes of this one.
        | Datatype::Int64 => &(value as i64).to_le_bytes(),
        Datatype::Bytes => return None,
    };
    raw[..bytes.len()].copy_from_slice(bytes);
    Some(raw)
}

/// Some rows of a tensor.
pub(super) type Rows<'a> = (&'a Tensor, Range<usize>);

/// Rows of tensors joined along their first dimension; `None` when they differ in anything else. Rows
/// of one tensor alone are not copied; others are, into `room`.
pub(super) fn concat(tensors: &[Rows<'_>], mut room: BytesMut) -> Option<Tensor> {
    let ((first, rows), rest) = tensors.split_first()?;
    if rest.is_empty() {
        let all = first.shape().first().is_none_or(|all| *rows == (0..*all));
        return if all { Some((*first).clone()) } else { first.rows(rows.clone()) };
    }
    let row = first.shape().get(1..)?;
    let total: usize = tensors.iter().map(|(_, rows)| rows.len()).sum();
    if let Some(width) = first.datatype.width() {
        room.reserve(total * row.iter().product::<usize>() * width);
    }
    for (tensor, rows) in tensors {
        let (items, other_row) = tensor.shape().split_first()?;
        let alike = tensor.datatype == first.datatype && other_row == row;
        if !alike || rows.end > *items {
            return None;
        }
        room.extend_from_slice(&tensor.data[tensor.span(rows)]);
    }
    Tensor::new(first.datatype, [&[total], row].concat(), room.freeze())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tensor(datatype: Datatype, items: usize, row: &[usize], seed: usize) -> Tensor {
        let count = items * row.iter().product::<usize>();
        let shape = [&[items], row].concat();
        let numbers: Vec<i64> = (0..count).map(|index| (seed * 31 + index) as i64).collect();
        let tensor = if datatype == Datatype::Int64 {
            Tensor::of(datatype, shape, &numbers)
        } else if datatype == Datatype::Fp32 {
            let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
            Tensor::of(datatype, shape, &numbers)
        } else {
            let mut raw = Vec::new();
            for number in numbers {
                let text = "x".repeat(number as usize % 7);
                raw.extend((text.len() as u32).to_le_bytes());
                raw.extend(text.bytes());
            }
            Tensor::new(Datatype::Bytes, shape, raw.into())
        };
        tensor.expect("shape and data agree")
    }

    fn join(tensors: &[Rows<'_>]) -> Option<Tensor> {
        concat(tensors, BytesMut::new())
    }

    proptest! {
        #[test]
        fn what_was_joined_comes_apart_again(
            items in prop::collection::vec(1usize..5, 1..9),
            row in prop::collection::vec(1usize..4, 0..4),
            kind in 0usize..3,
        ) {
            let datatype = [Datatype::Int64, Datatype::Fp32, Datatype::Bytes][kind];
            let tensors: Vec<Tensor> = items
                .iter()
                .enumerate()
                .map(|(seed, items)| tensor(datatype, *items, &row, seed * 1000))
                .collect();
            let together = join(&tensors.iter().map(Tensor::all_rows).collect::<Vec<_>>()).expect("alike");
            prop_assert_eq!(together.split(&items), Some(tensors));
        }
    }

    #[test]
    fn tensors_of_different_rows_or_types_are_not_joined() {
        let floats = tensor(Datatype::Fp32, 1, &[2], 0);
        let wider = tensor(Datatype::Fp32, 1, &[3], 0);
        let whole = tensor(Datatype::Int64, 1, &[2], 0);
        assert_eq!(join(&[&floats, &wider].map(Tensor::all_rows)), None);
        assert_eq!(join(&[&floats, &whole].map(Tensor::all_rows)), None);
        assert_eq!(join(&[]), None);
    }

    #[test]
    fn one_tensor_alone_is_not_copied() {
        let whole = tensor(Datatype::Fp32, 3, &[2], 0);
        let same = join(&[whole.all_rows()]).expect("alone");
        assert_eq!(same.data().as_ptr(), whole.data().as_ptr());
        let rows = join(&[(&whole, 1..3)]).expect("alone");
        assert_eq!((rows.shape(), rows.data()), (&[2, 2][..], &whole.data().slice(8..24)));
        assert_eq!(rows.data().as_ptr(), whole.data()[8..].as_ptr());
    }

    #[test]
    fn a_tensor_of_another_length_than_its_parts_is_not_split() {
        assert_eq!(tensor(Datatype::Fp32, 3, &[2], 0).split(&[1, 1]), None);
        let scalar = Tensor::of(Datatype::Fp32, vec![], &[1.0f32]);
        assert_eq!(scalar.expect("one element").split(&[1]), None);
    }

    fn counted(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        let numbers: Vec<i64> = (1..=count as i64).collect();
        Tensor::of(Datatype::Int64, shape.to_vec(), &numbers).expect("shape and data agree")
    }

    fn numbers(tensor: &Tensor) -> Vec<i64> {
        bytemuck::pod_collect_to_vec(&tensor.data()[..])
    }

    #[test]
    fn rows_are_filled_up_behind_and_cut_back() {
        let filled = counted(&[3, 2]).resized(1..3, 1, 4, -1.0).expect("filled");
        assert_eq!(filled.shape(), [2, 4]);
        assert_eq!(numbers(&filled), [3, 4, -1, -1, 5, 6, -1, -1]);
        let back = filled.resized(0..2, 1, 2, 0.0).expect("cut");
        assert_eq!((back.shape(), numbers(&back)), (&[2, 2][..], vec![3, 4, 5, 6]));
        assert!(filled.resized(0..2, 2, 2, 0.0).is_none(), "no such dimension");
    }

    #[test]
    fn a_dimension_in_the_middle_is_padded_in_every_block() {
        let filled = counted(&[1, 2, 1, 2]).resized(0..1, 2, 2, 0.0).expect("filled");
        assert_eq!(filled.shape(), [1, 2, 2, 2]);
        assert_eq!(numbers(&filled), [1, 2, 0, 0, 3, 4, 0, 0]);
    }

    #[test]
    fn every_type_is_filled_with_its_own_elements() {
        let fill = |datatype| {
            let tensor = Tensor::zeros(datatype, vec![1, 1]).expect("one element");
            tensor
                .resized(0..1, 1, 2, 1.0)
                .map(|filled| filled.data()[tensor.data().len()..].to_vec())
        };
        assert_eq!(fill(Datatype::Fp16), Some(vec![0, 0x3c]));
        assert_eq!(fill(Datatype::Bf16), Some(vec![0x80, 0x3f]));
        assert_eq!(fill(Datatype::Fp32), Some(1f32.to_le_bytes().to_vec()));
        assert_eq!(fill(Datatype::Uint16), Some(vec![1, 0]));
        assert_eq!(fill(Datatype::Bool), Some(vec![1]));
        assert_eq!(fill(Datatype::Bytes), None);
    }
}
