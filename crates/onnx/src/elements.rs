//! Single elements of raw tensors: read as numbers, written from numbers, and changed from one type into
//! another where a client's type and the model's mean the same.

use std::borrow::Cow;

use bytes::Bytes;
use jitney_engine::tensors::Datatype;

use super::tensor::{Tensor, whole_range};

/// One number of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// A truth value.
    Truth(bool),
    /// A whole number.
    Whole(i128),
    /// Half or single precision.
    Single(f32),
    /// Double precision.
    Double(f64),
}

impl Number {
    /// Reads one element; `raw` is as wide as the type. There are no numbers in BYTES.
    pub(super) fn read(datatype: Datatype, raw: &[u8]) -> Option<Self> {
        Some(match datatype {
            Datatype::Bool => Self::Truth(*raw.first()? != 0),
            Datatype::Uint8 => Self::Whole((*raw.first()?).into()),
            Datatype::Uint16 => Self::Whole(u16::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Uint32 => Self::Whole(u32::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Uint64 => Self::Whole(u64::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Int8 => Self::Whole(i8::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Int16 => Self::Whole(i16::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Int32 => Self::Whole(i32::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Int64 => Self::Whole(i64::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Fp16 => Self::Single(half::f16::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Bf16 => Self::Single(half::bf16::from_le_bytes(raw.try_into().ok()?).into()),
            Datatype::Fp32 => Self::Single(f32::from_le_bytes(raw.try_into().ok()?)),
            Datatype::Fp64 => Self::Double(f64::from_le_bytes(raw.try_into().ok()?)),
            Datatype::Bytes => return None,
        })
    }

    /// Appends it as an element of this type, or says why it is none.
    pub(super) fn write(self, datatype: Datatype, out: &mut Vec<u8>) -> Result<(), String> {
        if let Some(range) = whole_range(datatype) {
            let whole = self.whole(datatype, range)?.to_le_bytes();
            out.extend_from_slice(&whole[..datatype.width().unwrap_or(0)]);
            return Ok(());
        }
        let value = self.double();
        let (narrow, bytes): (f64, &[u8]) = match datatype {
            Datatype::Fp16 => {
                let half = half::f16::from_f64(value);
                (half.into(), &half.to_le_bytes())
            }
            Datatype::Bf16 => {
                let half = half::bf16::from_f64(value);
                (half.into(), &half.to_le_bytes())
            }
            Datatype::Fp32 => ((value as f32).into(), &(value as f32).to_le_bytes()),
            Datatype::Bytes => return Err("numbers are not BYTES values".to_owned()),
            Datatype::Fp64
            | Datatype::Bool
            | Datatype::Uint8
            | Datatype::Uint16
            | Datatype::Uint32
            | Datatype::Uint64
            | Datatype::Int8
            | Datatype::Int16
            | Datatype::Int32
            | Datatype::Int64 => (value, &value.to_le_bytes()),
        };
        if value.is_finite() && !narrow.is_finite() {
            return Err(format!("{value:e} is too large for {datatype}"));
        }
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn whole(self, datatype: Datatype, (min, max): (i128, i128)) -> Result<i128, String> {
        let whole = match self {
            Self::Truth(truth) => truth.into(),
            Self::Whole(whole) => whole,
            Self::Single(_) | Self::Double(_) => {
                let value = self.double();
                if value.fract() != 0.0 || !value.is_finite() {
                    return Err(format!(
                        "{value} is not a whole number, but {datatype} is expected"
                    ));
                }
                value as i128
            }
        };
        if (min..=max).contains(&whole) {
            Ok(whole)
        } else {
            Err(format!("{whole} is outside {min}..{max}, the values of {datatype}"))
        }
    }

    /// The nearest number of double precision.
    pub(super) fn double(self) -> f64 {
        match self {
            Self::Truth(truth) => u8::from(truth).into(),
            Self::Whole(whole) => whole as f64,
            Self::Single(value) => value.into(),
            Self::Double(value) => value,
        }
    }
}

/// The numbers of a tensor; none for BYTES.
pub(super) fn numbers(tensor: &Tensor) -> impl Iterator<Item = Number> {
    let datatype = tensor.datatype();
    let width = datatype.width();
    let raw = tensor.data().chunks_exact(width.unwrap_or(usize::MAX));
    raw.filter_map(move |raw| Number::read(datatype, raw))
}

/// The elements in single precision; `None` for BYTES.
pub(super) fn floats(tensor: &Tensor) -> Option<Cow<'_, [f32]>> {
    tensor.datatype().width()?;
    if tensor.datatype() != Datatype::Fp32 {
        return Some(numbers(tensor).map(|number| number.double() as f32).collect());
    }
    Some(match bytemuck::try_cast_slice(&tensor.data()[..]) {
        Ok(floats) => Cow::Borrowed(floats),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(&tensor.data()[..])),
    })
}

/// The tensor in another type, or a sentence about the first element that does not fit.
pub(super) fn convert(tensor: Tensor, datatype: Datatype) -> Result<Tensor, String> {
    if tensor.datatype() == datatype {
        return Ok(tensor);
    }
    let mut data = Vec::with_capacity(tensor.elements() * datatype.width().unwrap_or(0));
    numbers(&tensor).try_for_each(|number| number.write(datatype, &mut data))?;
    let converted = Tensor::new(datatype, tensor.shape().to_vec(), Bytes::from(data));
    converted.ok_or_else(|| format!("{} cannot be read as {datatype}", tensor.datatype()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_change_their_type_or_say_why_not() {
        let wide = Tensor::of(Datatype::Int64, vec![2], &[1i64, -2]).expect("filled");
        let narrow = convert(wide.clone(), Datatype::Int32).expect("they fit");
        assert_eq!(narrow, Tensor::of(Datatype::Int32, vec![2], &[1i32, -2]).expect("filled"));
        assert_eq!(convert(narrow, Datatype::Int64), Ok(wide));
        let large = Tensor::of(Datatype::Int64, vec![1], &[1i64 << 40]).expect("filled");
        let error = convert(large, Datatype::Int32).expect_err("too large");
        assert!(error.contains("1099511627776 is outside"), "{error}");
        let floats = Tensor::of(Datatype::Fp32, vec![2], &[1.0f32, 70000.0]).expect("filled");
        let error = convert(floats.clone(), Datatype::Fp16).expect_err("too large");
        assert_eq!(error, "7e4 is too large for FP16");
        assert_eq!(convert(floats, Datatype::Fp64).expect("fits").data().len(), 16);
        let text = Tensor::zeros(Datatype::Bytes, vec![1]).expect("filled");
        assert_eq!(
            convert(text.clone(), Datatype::Fp32),
            Err("BYTES cannot be read as FP32".into())
        );
        assert_eq!(self::floats(&text), None);
    }

    #[test]
    fn numbers_are_read_in_every_type() {
        for (datatype, raw, expected) in [
            (Datatype::Bool, &[1u8][..], Number::Truth(true)),
            (Datatype::Uint64, &[0xff; 8], Number::Whole(u64::MAX.into())),
            (Datatype::Int16, &[0xfe, 0xff], Number::Whole(-2)),
            (Datatype::Fp16, &[0, 0x3c], Number::Single(1.0)),
            (Datatype::Bf16, &[0x80, 0x3f], Number::Single(1.0)),
            (Datatype::Fp64, &1.5f64.to_le_bytes(), Number::Double(1.5)),
        ] {
            assert_eq!(Number::read(datatype, raw), Some(expected));
            let mut written = Vec::new();
            expected.write(datatype, &mut written).expect("it fits");
            assert_eq!(written, raw);
        }
    }
}
