//! Numbers as Java writes them, which is how TorchServe's page and log lines show every value.

use std::fmt::{self, Display, Formatter};

/// A value in the form of Java's `Double.toString`: `1.0`, `0.001`, `1.0E-4`, `1.2345678E7`.
/// Infinities are spelled as Prometheus wants them.
pub(crate) struct JavaDouble(pub(crate) f64);

impl Display for JavaDouble {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.0;
        let size = value.abs();
        if value.is_nan() {
            f.write_str("NaN")
        } else if value.is_infinite() {
            f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if size == 0.0 || (1e-3..1e7).contains(&size) {
            write!(f, "{value:?}")
        } else {
            let text = format!("{value:E}");
            let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
            let point = if digits.contains('.') { "" } else { ".0" };
            write!(f, "{digits}{point}E{exponent}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_does() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
            (1e-4, "1.0E-4"),
            (123.456, "123.456"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.999, "9999999.999"),
            (1e7, "1.0E7"),
            (12_345_678.0, "1.2345678E7"),
            (-12_345_678.5, "-1.23456785E7"),
            (1e12, "1.0E12"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(JavaDouble(value).to_string(), expected);
        }
    }
}
