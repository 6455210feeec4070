//! Elements of tensors in JSON and raw, both ways and exactly.
//!
//! Numbers are read from their digits straight into the type that they are to have, so that none is
//! rounded twice and none passes through a double that cannot hold it. Lists are read without a tree of
//! values, which would cost many times the memory of the numbers, and at any depth without recursion.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes};
use jitney_engine::tensors::{Datatype, NamedTensor, strings};
use serde::ser::{Error as _, Serialize, Serializer};

/// Reads the elements of a JSON list, however deeply they are nested. `json` is valid JSON.
///
/// # Errors
/// A sentence when an element does not have the type.
pub(crate) fn read(datatype: Datatype, json: &str) -> Result<(Bytes, usize), String> {
    let mut raw = Vec::with_capacity(json.len() / 4);
    let (mut rest, mut count) = (json, 0);
    while let Some(first) = rest.bytes().next() {
        let end = match first {
            b'[' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' => {
                rest = &rest[1..];
                continue;
            }
            b'{' => return Err(format!("an object is not an element of {datatype}")),
            b'"' => text_end(rest),
            _ => rest.find([',', ']', ' ', '\t', '\n', '\r']).unwrap_or(rest.len()),
        };
        let (element, more) = rest.split_at(end);
        put(datatype, element, &mut raw)?;
        count += 1;
        rest = more;
    }
    Ok((Bytes::from(raw), count))
}

/// Where a JSON text that begins here ends.
fn text_end(json: &str) -> usize {
    let mut escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

fn put(datatype: Datatype, element: &str, raw: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || format!("{} is not an element of {datatype}", clipped(element));
    match datatype {
        Datatype::Bool => raw.push(match element {
            "true" | "1" => 1,
            "false" | "0" => 0,
            _ => return Err(wrong()),
        }),
        Datatype::Uint8 => raw.put_u8(whole(element).ok_or_else(wrong)?),
        Datatype::Uint16 => raw.put_u16_le(whole(element).ok_or_else(wrong)?),
        Datatype::Uint32 => raw.put_u32_le(whole(element).ok_or_else(wrong)?),
        Datatype::Uint64 => raw.put_u64_le(whole(element).ok_or_else(wrong)?),
        Datatype::Int8 => raw.put_i8(whole(element).ok_or_else(wrong)?),
        Datatype::Int16 => raw.put_i16_le(whole(element).ok_or_else(wrong)?),
        Datatype::Int32 => raw.put_i32_le(whole(element).ok_or_else(wrong)?),
        Datatype::Int64 => raw.put_i64_le(whole(element).ok_or_else(wrong)?),
        Datatype::Fp16 => {
            let bits = to_half(real(element).ok_or_else(wrong)?);
            raw.put_u16_le(bits);
        }
        Datatype::Bf16 => raw.put_u16_le(to_brain(real(element).ok_or_else(wrong)?)),
        Datatype::Fp32 => raw.put_f32_le(real(element).ok_or_else(wrong)?),
        Datatype::Fp64 => raw.put_f64_le(real(element).ok_or_else(wrong)?),
        Datatype::Bytes => {
            if !element.starts_with('"') {
                return Err(wrong());
            }
            let inner = &element[1..element.len().saturating_sub(1).max(1)];
            if inner.contains('\\') {
                let text: String = serde_json::from_str(element).map_err(|_| wrong())?;
                put_text(text.as_bytes(), raw);
            } else {
                put_text(inner.as_bytes(), raw);
            }
        }
    }
    Ok(())
}

/// Appends an element of BYTES.
pub(crate) fn put_text(text: &[u8], raw: &mut Vec<u8>) {
    raw.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
    raw.extend_from_slice(text);
}

/// A whole number; `3.0` is one too, as some languages write all numbers so.
fn whole<T: FromStr + TryFrom<i128>>(element: &str) -> Option<T> {
    if let Ok(number) = element.parse() {
        return Some(number);
    }
    let number: f64 = element.parse().ok()?;
    let is_whole = number.fract() == 0.0 && number.abs() < 2f64.powi(64);
    T::try_from(number as i128).ok().filter(|_| is_whole)
}

/// A number that the type has; `null` stands for NaN.
fn real<T: FromStr + Real>(element: &str) -> Option<T> {
    match element.as_bytes().first()? {
        b'n' => Some(T::NOT_A_NUMBER),
        b'-' | b'0'..=b'9' => element.parse().ok().filter(|number: &T| number.is_finite()),
        _ => None,
    }
}

trait Real {
    const NOT_A_NUMBER: Self;
    fn is_finite(&self) -> bool;
}

impl Real for f32 {
    const NOT_A_NUMBER: Self = Self::NAN;
    fn is_finite(&self) -> bool {
        Self::is_finite(*self)
    }
}

impl Real for f64 {
    const NOT_A_NUMBER: Self = Self::NAN;
    fn is_finite(&self) -> bool {
        Self::is_finite(*self)
    }
}

fn clipped(element: &str) -> &str {
    &element[..element.floor_char_boundary(40)]
}

/// Half precision as single.
pub(crate) fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// Single precision as half: the nearest one, and of two the even one.
pub(crate) fn to_half(number: f32) -> u16 {
    let sign = (number.to_bits() >> 16 & 0x8000) as u16;
    let size = number.abs();
    if size.is_nan() {
        return 0x7e00;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // Normal numbers of half precision have ten bits behind the point; smaller ones are multiples of
    // the smallest.
    let exponent = (size.to_bits() >> 23).cast_signed() - 127;
    let unit = 2f32.powi(exponent.max(-14) - 10);
    let units = (size / unit).round_ties_even() as u16;
    let biased = (exponent.max(-14) + 14) as u16;
    sign | ((biased << 10) + units)
}

/// The upper half of a single as single.
pub(crate) fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Single precision as its upper half: the nearest one, and of two the even one.
pub(crate) fn to_brain(number: f32) -> u16 {
    let bits = number.to_bits();
    if number.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The elements of a tensor as numbers of one type, for whoever compares or converts them.
pub(crate) fn doubles(tensor: &NamedTensor) -> Vec<f64> {
    macro_rules! each {
        ($number:ty, $read:expr) => {{
            let (numbers, _) = tensor.data().as_chunks();
            numbers.iter().map(|bytes| $read(<$number>::from_le_bytes(*bytes))).collect()
        }};
    }
    match tensor.datatype() {
        Datatype::Bool | Datatype::Uint8 => each!(u8, f64::from),
        Datatype::Uint16 => each!(u16, f64::from),
        Datatype::Uint32 => each!(u32, f64::from),
        Datatype::Uint64 => each!(u64, |number| number as f64),
        Datatype::Int8 => each!(i8, f64::from),
        Datatype::Int16 => each!(i16, f64::from),
        Datatype::Int32 => each!(i32, f64::from),
        Datatype::Int64 => each!(i64, |number| number as f64),
        Datatype::Fp16 => each!(u16, |bits| f64::from(half(bits))),
        Datatype::Bf16 => each!(u16, |bits| f64::from(brain(bits))),
        Datatype::Fp32 => each!(f32, f64::from),
        Datatype::Fp64 => each!(f64, std::convert::identity),
        Datatype::Bytes => Vec::new(),
    }
}

/// The tensor with the elements that a model declares, where [`Datatype::admits`] lets a client send
/// others.
///
/// # Errors
/// A sentence when a number does not fit.
pub(crate) fn convert(tensor: &NamedTensor, to: Datatype) -> Result<NamedTensor, String> {
    let data = tensor.data();
    let mut raw = Vec::new();
    match (tensor.datatype(), to) {
        (Datatype::Int64, Datatype::Int32) => {
            for bytes in data.as_chunks().0 {
                let number = i64::from_le_bytes(*bytes);
                let number = i32::try_from(number);
                raw.put_i32_le(number.map_err(|_| format!("a number does not fit {to}"))?);
            }
        }
        (Datatype::Int32, Datatype::Int64) => {
            data.as_chunks().0.iter().for_each(|it| raw.put_i64_le(i32::from_le_bytes(*it).into()));
        }
        (Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64, Datatype::Fp32) => {
            doubles(tensor).into_iter().for_each(|number| raw.put_f32_le(number as f32));
        }
        (Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64, Datatype::Fp64) => {
            doubles(tensor).into_iter().for_each(|number| raw.put_f64_le(number));
        }
        (Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64, Datatype::Fp16) => {
            doubles(tensor).into_iter().for_each(|it| raw.put_u16_le(to_half(it as f32)));
        }
        (given, _) if given == to => return Ok(tensor.clone()),
        (given, _) => return Err(format!("{given} is no {to}")),
    }
    NamedTensor::new(tensor.name(), to, tensor.shape(), Bytes::from(raw))
}

/// How strings of bytes are written in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesForm {
    /// As text, which they must be.
    Text,
    /// In base64, as TorchServe writes what comes over gRPC.
    Base64,
}

/// The elements of a tensor as a flat JSON list. Numbers that JSON does not have (NaN, infinities)
/// become `null`.
pub(crate) struct JsonList<'a>(pub(crate) &'a NamedTensor, pub(crate) BytesForm);

impl Serialize for JsonList<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(tensor, form) = self;
        let raw = tensor.data();
        macro_rules! each {
            ($number:ty, $read:expr) => {{
                let (numbers, _) = raw.as_chunks();
                to.collect_seq(numbers.iter().map(|bytes| $read(<$number>::from_le_bytes(*bytes))))
            }};
            ($number:ty) => {
                each!($number, std::convert::identity)
            };
        }
        match tensor.datatype() {
            Datatype::Bool => to.collect_seq(raw.iter().map(|byte| *byte != 0)),
            Datatype::Int8 => each!(i8),
            Datatype::Int16 => each!(i16),
            Datatype::Int32 => each!(i32),
            Datatype::Int64 => each!(i64),
            Datatype::Uint8 => each!(u8),
            Datatype::Uint16 => each!(u16),
            Datatype::Uint32 => each!(u32),
            Datatype::Uint64 => each!(u64),
            Datatype::Fp16 => each!(u16, half),
            Datatype::Bf16 => each!(u16, brain),
            Datatype::Fp32 => each!(f32),
            Datatype::Fp64 => each!(f64),
            Datatype::Bytes if *form == BytesForm::Base64 => {
                to.collect_seq(strings(raw).map(|element| STANDARD.encode(element)))
            }
            Datatype::Bytes => {
                let texts: Result<Vec<&str>, _> = strings(raw).map(std::str::from_utf8).collect();
                let texts = texts.map_err(|_| {
                    let name = tensor.name();
                    S::Error::custom(format!(
                        "{name:?} holds bytes that are no UTF-8 text, which JSON has no place for; \
                         send and ask for binary tensors"
                    ))
                })?;
                to.collect_seq(texts)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(datatype: Datatype, json: &str) -> NamedTensor {
        let (raw, count) = read(datatype, json).expect(json);
        NamedTensor::new("x", datatype, [count], raw).expect("fills its shape")
    }

    fn written(tensor: &NamedTensor) -> String {
        serde_json::to_string(&JsonList(tensor, BytesForm::Text)).expect("JSON")
    }

    #[test]
    fn every_type_comes_back_as_it_was_sent() {
        for (datatype, json) in [
            (Datatype::Bool, "[true,false]"),
            (Datatype::Int8, "[-128,127]"),
            (Datatype::Uint8, "[0,255]"),
            (Datatype::Int16, "[-32768,32767]"),
            (Datatype::Uint16, "[65535]"),
            (Datatype::Int32, "[-2147483648]"),
            (Datatype::Uint32, "[4294967295]"),
            (Datatype::Int64, "[9007199254740993,-9223372036854775808]"),
            (Datatype::Uint64, "[18446744073709551615]"),
            (Datatype::Fp16, "[1.0,0.33325195,-65504.0,null]"),
            (Datatype::Bf16, "[1.0,-3.0]"),
            (Datatype::Fp32, "[0.1,3.4028235e+38,1e-45,null]"),
            (Datatype::Fp64, "[0.1,2.2250738585072014e-308,1.7976931348623157e+308,-0.0]"),
            (Datatype::Bytes, r#"["","a, \"b\"]","ü\n"]"#),
        ] {
            assert_eq!(written(&tensor(datatype, json)), json);
        }
    }

    #[test]
    fn numbers_are_rounded_once() {
        // Rounded to a double first, this would become the single below.
        let number = "1.00000017881393432617187499";
        assert_eq!(written(&tensor(Datatype::Fp32, number)), "[1.0000001]");
        assert_eq!(written(&tensor(Datatype::Fp64, "9007199254740993.0")), "[9007199254740992.0]");
    }

    #[test]
    fn nested_lists_are_flat_lists() {
        assert_eq!(written(&tensor(Datatype::Int8, "[ [1, 2] ,\n[[3], [] ]]")), "[1,2,3]");
        let deep = format!("{}7{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(written(&tensor(Datatype::Int64, &deep)), "[7]");
        assert_eq!(written(&tensor(Datatype::Int32, "3.0")), "[3]");
    }

    #[test]
    fn what_is_not_of_the_type_is_named() {
        for (datatype, json) in [
            (Datatype::Int8, "[128]"),
            (Datatype::Uint64, "[-1]"),
            (Datatype::Int32, "[1.5]"),
            (Datatype::Int32, "[\"1\"]"),
            (Datatype::Int64, "[1e300]"),
            (Datatype::Bool, "[2]"),
            (Datatype::Fp32, "[true]"),
            (Datatype::Fp32, "[1e39]"),
            (Datatype::Fp64, "[1e999]"),
            (Datatype::Fp32, "[{}]"),
            (Datatype::Bytes, "[1]"),
        ] {
            let why = read(datatype, json).expect_err(json);
            assert!(why.contains(datatype.as_str()), "{why}");
        }
    }

    #[test]
    fn halves_are_read_and_written_exactly() {
        for bits in 0..=u16::MAX {
            let number = half(bits);
            if number.is_nan() {
                assert!(half(to_half(number)).is_nan());
            } else {
                assert_eq!(to_half(number), bits, "{number}");
            }
            let number = brain(bits);
            assert!(number.is_nan() || to_brain(number) == bits, "{number}");
        }
        assert_eq!([to_half(65519.0), to_half(65520.0), to_half(1e-9)], [0x7bff, 0x7c00, 0]);
        assert_eq!([to_half(1.000_488_3), to_half(1.001_464_8)], [0x3c00, 0x3c02], "ties to even");
        assert!(brain(to_brain(f32::NAN)).is_nan());
    }

    #[test]
    fn numbers_are_converted_where_they_mean_the_same() {
        let wide = tensor(Datatype::Int64, "[1,-2]");
        let narrow = convert(&wide, Datatype::Int32).expect("fits");
        assert_eq!((written(&narrow).as_str(), narrow.datatype()), ("[1,-2]", Datatype::Int32));
        assert_eq!(convert(&narrow, Datatype::Int64), Ok(wide));
        let large = tensor(Datatype::Int64, "[4294967296]");
        assert_eq!(convert(&large, Datatype::Int32), Err("a number does not fit INT32".to_owned()));
        let double = tensor(Datatype::Fp64, "[0.5,null]");
        for to in [Datatype::Fp16, Datatype::Fp32, Datatype::Fp64] {
            assert_eq!(written(&convert(&double, to).expect("converts")), "[0.5,null]");
        }
        assert!(convert(&double, Datatype::Bool).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_have_no_place_in_json() {
        let raw = Bytes::from_static(b"\x01\0\0\0\xff");
        let tensor = NamedTensor::new("x", Datatype::Bytes, [1], raw).expect("one element");
        let why = serde_json::to_string(&JsonList(&tensor, BytesForm::Text)).expect_err("no text");
        assert!(why.to_string().contains("\"x\" holds bytes that are no UTF-8 text"), "{why}");
        let base64 = serde_json::to_string(&JsonList(&tensor, BytesForm::Base64));
        assert_eq!(base64.expect("JSON"), r#"["/w=="]"#);
    }
}
