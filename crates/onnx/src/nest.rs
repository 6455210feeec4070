//! Writes a tensor's elements as JSON lists, flat or nested, straight from its memory. It builds no
//! tree of values on the way, since outputs can be large.

use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::tensor::{Tensor, TensorData};
use jitney_engine::local::Datatype;

/// A part of a tensor that is written as nested lists of this shape.
#[derive(Clone, Copy)]
pub(super) struct NestedLists<'a> {
    tensor: &'a Tensor,
    shape: Shape<'a>,
    start: usize,
}

#[derive(Clone, Copy)]
enum Shape<'a> {
    Nested(&'a [usize]),
    Flat,
}

impl<'a> NestedLists<'a> {
    /// All elements in one list.
    pub(super) fn flat(tensor: &'a Tensor) -> Self {
        Self { tensor, shape: Shape::Flat, start: 0 }
    }

    /// Lists as deep as the tensor, or one less where the tensor is a single item that came bare.
    pub(super) fn of(tensor: &'a Tensor, bare: bool) -> Self {
        let shape = match tensor.shape() {
            [1, item @ ..] if bare => item,
            shape => shape,
        };
        Self { tensor, shape: Shape::Nested(shape), start: 0 }
    }

    fn list<S: Serializer>(
        self,
        serializer: S,
        length: usize,
        below: &'a [usize],
    ) -> Result<S::Ok, S::Error> {
        let width: usize = below.iter().product();
        let mut list = serializer.serialize_seq(Some(length))?;
        for place in 0..length {
            let start = self.start + place * width;
            list.serialize_element(&Self { shape: Shape::Nested(below), start, ..self })?;
        }
        list.end()
    }

    fn element<S: Serializer>(self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.tensor.data() {
            TensorData::F32(data) => serializer.serialize_f32(data[self.start]),
            TensorData::I32(data) if self.tensor.datatype() == Datatype::Bool => {
                serializer.serialize_bool(data[self.start] != 0)
            }
            TensorData::I32(data) => serializer.serialize_i32(data[self.start]),
            TensorData::I8(data) => serializer.serialize_i8(data[self.start]),
            TensorData::U8(data) => serializer.serialize_u8(data[self.start]),
        }
    }
}

impl Serialize for NestedLists<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.shape {
            Shape::Flat => self.list(serializer, self.tensor.data().len(), &[]),
            Shape::Nested([length, below @ ..]) => self.list(serializer, *length, below),
            Shape::Nested([]) => self.element(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nest: NestedLists<'_>, expected: &str) {
        assert_eq!(serde_json::to_string(&nest).expect("numbers"), expected);
    }

    #[test]
    fn elements_are_written_flat_nested_or_without_the_batch() {
        let data = TensorData::F32(vec![1.0, 2.5, f32::NAN, -0.1]);
        let tensor = Tensor::new(Datatype::Fp32, vec![1, 2, 2], data).expect("four elements");
        check(NestedLists::flat(&tensor), "[1.0,2.5,null,-0.1]");
        check(NestedLists::of(&tensor, false), "[[[1.0,2.5],[null,-0.1]]]");
        check(NestedLists::of(&tensor, true), "[[1.0,2.5],[null,-0.1]]");
    }

    #[test]
    fn truth_values_are_written_as_such() {
        let tensor = Tensor::new(Datatype::Bool, vec![2], TensorData::I32(vec![0, 1]));
        check(NestedLists::of(&tensor.expect("two elements"), false), "[false,true]");
    }

    #[test]
    fn a_single_number_needs_no_list() {
        let tensor = Tensor::new(Datatype::Int64, vec![], TensorData::I32(vec![7]));
        check(NestedLists::of(&tensor.expect("one element"), true), "7");
    }
}
