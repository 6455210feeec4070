//! The elements of a JSON tensor, one after the other, however deeply they are nested.
//!
//! Read without a tree of values, which would cost many times the memory of the numbers.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

/// One element.
#[derive(Debug)]
pub(super) enum JsonElement<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(&'a str),
}

/// Reads a JSON list and hands each element to `take`.
pub(super) fn each(
    json: &str,
    mut take: impl FnMut(JsonElement<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = TensorVisitor(&mut take).deserialize(&mut deserializer);
    read.and_then(|()| deserializer.end()).map_err(|error| error.to_string())
}

impl JsonElement<'_> {
    /// A boolean, or 0 or 1.
    pub(super) fn boolean(&self) -> Result<bool, String> {
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Int(0) | Self::Uint(0) => Ok(false),
            Self::Int(1) | Self::Uint(1) => Ok(true),
            Self::Null | Self::Int(_) | Self::Uint(_) | Self::Float(_) | Self::Text(_) => {
                Err(self.not_a("boolean"))
            }
        }
    }

    /// A whole number that fits.
    pub(super) fn whole<T: TryFrom<i128>>(&self) -> Result<T, String> {
        let value = match self {
            Self::Bool(value) => i128::from(*value),
            Self::Int(value) => i128::from(*value),
            Self::Uint(value) => i128::from(*value),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(64) => {
                *value as i128
            }
            Self::Null | Self::Float(_) | Self::Text(_) => return Err(self.not_a("whole number")),
        };
        T::try_from(value).map_err(|_| format!("{value} does not fit its datatype"))
    }

    /// A number; `null` stands for NaN.
    pub(super) fn float(&self) -> Result<f64, String> {
        match self {
            Self::Null => Ok(f64::NAN),
            Self::Int(value) => Ok(*value as f64),
            Self::Uint(value) => Ok(*value as f64),
            Self::Float(value) => Ok(*value),
            Self::Bool(_) | Self::Text(_) => Err(self.not_a("number")),
        }
    }

    /// The bytes of a text, or of what JSON writes for anything else.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Null => b"null".to_vec(),
            Self::Bool(value) => value.to_string().into_bytes(),
            Self::Int(value) => value.to_string().into_bytes(),
            Self::Uint(value) => value.to_string().into_bytes(),
            Self::Float(value) => value.to_string().into_bytes(),
            Self::Text(value) => value.as_bytes().to_vec(),
        }
    }

    fn not_a(&self, what: &str) -> String {
        format!("{self:?} is not a {what}")
    }
}

struct TensorVisitor<'a, F>(&'a mut F);

impl<F: FnMut(JsonElement<'_>) -> Result<(), String>> TensorVisitor<'_, F> {
    fn take<E: Error>(self, element: JsonElement<'_>) -> Result<(), E> {
        (self.0)(element).map_err(E::custom)
    }
}

impl<'de, F: FnMut(JsonElement<'_>) -> Result<(), String>> DeserializeSeed<'de>
    for TensorVisitor<'_, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(JsonElement<'_>) -> Result<(), String>> Visitor<'de> for TensorVisitor<'_, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of plain values")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.take(JsonElement::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.take(JsonElement::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.take(JsonElement::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.take(JsonElement::Uint(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.take(JsonElement::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.take(JsonElement::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(TensorVisitor(&mut *self.0))?.is_some() {}
        Ok(())
    }
}
