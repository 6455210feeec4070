//! Tensors as a protocol brings them and a model takes them: named, typed, shaped, and raw.
//!
//! Elements are little-endian and row by row. Elements of BYTES are preceded by their length in four
//! bytes each. This is what the binary extension of the Open Inference Protocol and gRPC's raw contents
//! carry, what numpy and ONNX Runtime read in place, and what travels to workers: nobody on the way
//! looks at an element that does not have to. A tensor's data always fills its shape.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// An element type, named as the Open Inference Protocol names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Datatype {
    /// Truth values, a byte each.
    Bool,
    /// Bytes.
    Uint8,
    /// 16-bit numbers without a sign.
    Uint16,
    /// 32-bit numbers without a sign.
    Uint32,
    /// 64-bit numbers without a sign.
    Uint64,
    /// Signed bytes.
    Int8,
    /// 16-bit integers.
    Int16,
    /// 32-bit integers.
    Int32,
    /// 64-bit integers.
    Int64,
    /// Half precision.
    Fp16,
    /// The upper half of single precision.
    Bf16,
    /// Single precision.
    Fp32,
    /// Double precision.
    Fp64,
    /// Strings of any bytes, each with a length of its own.
    Bytes,
}

impl Datatype {
    const ALL: [(&str, Self, usize); 14] = [
        ("FP32", Self::Fp32, 4),
        ("INT64", Self::Int64, 8),
        ("INT32", Self::Int32, 4),
        ("BYTES", Self::Bytes, 0),
        ("BOOL", Self::Bool, 1),
        ("UINT8", Self::Uint8, 1),
        ("FP64", Self::Fp64, 8),
        ("FP16", Self::Fp16, 2),
        ("BF16", Self::Bf16, 2),
        ("INT8", Self::Int8, 1),
        ("INT16", Self::Int16, 2),
        ("UINT16", Self::Uint16, 2),
        ("UINT32", Self::Uint32, 4),
        ("UINT64", Self::Uint64, 8),
    ];

    /// The protocol's name.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, datatype, _)| *datatype == self).map_or("", |(name, ..)| name)
    }

    /// The type of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(_, datatype, _)| *datatype)
    }

    /// Bytes of one element; `None` where each has its own length.
    pub fn width(self) -> Option<usize> {
        let width = Self::ALL.iter().find(|(_, datatype, _)| *datatype == self);
        width.map(|(.., width)| *width).filter(|width| *width > 0)
    }

    /// Whether a client may send `sent` where the model declares `self`: the two may differ in
    /// width where the numbers mean the same.
    pub fn admits(self, sent: Self) -> bool {
        let family = |datatype| match datatype {
            Self::Bool => 0,
            Self::Uint8 => 1,
            Self::Int8 => 2,
            Self::Int32 | Self::Int64 => 3,
            Self::Fp16 | Self::Fp32 | Self::Fp64 => 4,
            Self::Uint16 => 5,
            Self::Uint32 => 6,
            Self::Uint64 => 7,
            Self::Int16 => 8,
            Self::Bf16 => 9,
            Self::Bytes => 10,
        };
        family(self) == family(sent)
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A tensor with its name. Clones share the data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedTensor {
    name: Box<str>,
    datatype: Datatype,
    shape: Box<[usize]>,
    data: Bytes,
}

impl NamedTensor {
    /// A tensor of raw elements.
    ///
    /// # Errors
    /// A sentence when the data does not fill the shape.
    pub fn new(
        name: impl Into<Box<str>>,
        datatype: Datatype,
        shape: impl Into<Box<[usize]>>,
        data: Bytes,
    ) -> Result<Self, String> {
        let tensor = Self { name: name.into(), datatype, shape: shape.into(), data };
        let elements = tensor.shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        let bytes = |width| elements.and_then(|elements| elements.checked_mul(width));
        let (expected, given, what) = match datatype.width() {
            Some(width) => (bytes(width), tensor.data.len(), "bytes"),
            None => (elements, count_strings(&tensor.data)?, "elements"),
        };
        match expected {
            Some(expected) if expected == given => Ok(tensor),
            Some(expected) => Err(format!(
                "{datatype} of shape {:?} has {expected} {what}, not {given}",
                tensor.shape
            )),
            None => Err(format!("the shape {:?} is too large", tensor.shape)),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Its shape, the batch dimension included.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its raw elements.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The elements of raw BYTES, one after the other. Data that is cut off ends the list.
pub fn strings(mut raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = raw.split_first_chunk::<4>()?;
        let (element, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        raw = rest;
        Some(element)
    })
}

fn count_strings(raw: &[u8]) -> Result<usize, String> {
    let (count, bytes) =
        strings(raw).fold((0, 0), |(count, bytes), element| (count + 1, bytes + 4 + element.len()));
    if bytes == raw.len() { Ok(count) } else { Err("a BYTES element is cut off".to_owned()) }
}

/// What a request in tensors brings and asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TensorRequest {
    /// Its inputs, in the client's order.
    pub inputs: Vec<NamedTensor>,
    /// The outputs that it asks for; empty for all of them.
    pub outputs: Vec<Box<str>>,
}

impl TensorRequest {
    /// The bytes of its elements.
    pub fn value_bytes(&self) -> u64 {
        self.inputs.iter().map(|tensor| tensor.data.len() as u64).sum()
    }

    /// The items that it brings to a model that batches: the first dimension of its first input.
    pub fn rows(&self) -> Option<usize> {
        self.inputs.first().and_then(|tensor| tensor.shape.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_and_a_width() {
        for (name, datatype, width) in Datatype::ALL {
            assert_eq!(Datatype::parse(name), Some(datatype));
            assert_eq!((datatype.as_str(), datatype.width().unwrap_or(0)), (name, width));
        }
        assert_eq!(Datatype::parse("fp32"), None);
    }

    #[test]
    fn data_fills_its_shape() {
        let tensor = |datatype, shape: &[usize], data: &'static [u8]| {
            NamedTensor::new("x", datatype, shape, Bytes::from_static(data))
        };
        let bytes = tensor(Datatype::Bytes, &[2], b"\x02\0\0\0hi\0\0\0\0").expect("two elements");
        assert!(strings(bytes.data()).eq([&b"hi"[..], &b""[..]]));
        assert_eq!(tensor(Datatype::Fp16, &[1, 2], &[0; 4]).map(|it| it.elements()), Ok(2));
        let wrong = [
            (tensor(Datatype::Fp32, &[2], &[0; 4]), "FP32 of shape [2] has 8 bytes, not 4"),
            (tensor(Datatype::Bytes, &[1], b"\x03\0\0\0hi"), "a BYTES element is cut off"),
            (tensor(Datatype::Bytes, &[1], b""), "BYTES of shape [1] has 1 elements, not 0"),
            (tensor(Datatype::Bool, &[usize::MAX, 2], b""), "too large"),
        ];
        for (tensor, expected) in wrong {
            assert!(tensor.expect_err("wrong").contains(expected), "{expected}");
        }
    }
}
