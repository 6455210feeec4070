//! Ids of traces and spans, and their hexadecimal text.

use std::fmt;

/// The id of a trace; not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub(super) u128);

/// The id of a span; not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId(pub(super) u64);

/// Which span of which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanRef {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
}

impl TraceId {
    pub(super) fn fresh() -> Self {
        Self(fastrand::u128(1..))
    }
}

impl SpanId {
    pub(super) fn fresh() -> Self {
        Self(fastrand::u64(1..))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// A number from lower-case digits; upper-case ones are none here.
pub(super) fn read_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number.checked_mul(16)? | u128::from(value))
    })
}
