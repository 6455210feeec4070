//! The protocol's element types: their names, their widths and how raw bytes are read as numbers.
//!
//! Raw tensors are little-endian; elements of BYTES are preceded by their length in four bytes.

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorDatatype {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    /// Comes raw only, since the protocol's typed contents have no place for it.
    Fp16,
    /// Comes raw only, as well.
    Bf16,
    Fp32,
    Fp64,
    Bytes,
}

impl TensorDatatype {
    const ALL: [(&'static str, Self, usize); 14] = [
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

    /// The type of this name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(known, ..)| *known == name);
        found.map(|(_, element, _)| element).ok_or_else(|| format!("unknown datatype {name:?}"))
    }

    /// Bytes of one raw element; 0 where each has its own length.
    pub(super) fn width(self) -> usize {
        let found = Self::ALL.into_iter().find(|(_, element, _)| *element == self);
        found.map_or(0, |(_, _, width)| width)
    }
}

/// Elements of BYTES, one after the other.
pub(super) fn split(mut raw: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut parts = Vec::new();
    while !raw.is_empty() {
        let cut = || "a BYTES element is cut off".to_owned();
        let (length, rest) = raw.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (part, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        parts.push(part);
        raw = rest;
    }
    Ok(parts)
}

/// Half precision as single.
pub(super) fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// The upper half of a single as single.
pub(super) fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_exactly() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), value, "{bits:x}");
        }
        assert!(half(0x7e00).is_nan());
        assert_eq!((brain(0x3f80), brain(0xc040)), (1.0, -3.0));
    }

    #[test]
    fn elements_of_bytes_have_their_own_length() {
        assert_eq!(split(b"\x02\0\0\0hi\0\0\0\0").unwrap(), [&b"hi"[..], &b""[..]]);
        assert!(split(b"\x03\0\0\0hi").is_err());
        assert!(split(b"\x03\0").is_err());
    }

    #[test]
    fn every_type_has_a_name_and_a_width() {
        for (name, element, width) in TensorDatatype::ALL {
            assert_eq!((TensorDatatype::parse(name), element.width()), (Ok(element), width));
        }
        assert_eq!(TensorDatatype::parse("fp32"), Err("unknown datatype \"fp32\"".to_owned()));
    }
}
