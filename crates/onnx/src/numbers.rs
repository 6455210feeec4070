//! Numbers and texts out of JSON: nested lists are flattened while they are read, and their shape with
//! them.
//!
//! A tree of JSON values would cost eight times the memory of the numbers, and
//! clients decide how much comes. Ragged nests, nulls and endless lists end the reading at once. Nothing here knows a model; the types it can narrow to are the protocol's.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::elements::Number;
use jitney_engine::tensors::Datatype;

/// Elements that one input of a request may bring.
pub(super) const ELEMENTS_MAX: usize = 1 << 25;
/// Dimensions that a tensor may have.
const RANK_MAX: usize = 16;
/// Whole numbers up to this have a 64-bit float of their own.
const EXACT_MAX: u64 = 1 << 53;

/// A regular nest of numbers, or of texts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// The nest's shape; empty for a single element.
    pub shape: Vec<usize>,
    values: Vec<f64>,
    /// Whole numbers that a 64-bit float does not hold, by their position.
    exact: Vec<(usize, i128)>,
    /// Texts, each with its length in front, as a tensor of BYTES has them.
    texts: Vec<u8>,
    text_count: usize,
    /// Whether `true` or `false` was among the values.
    booleans: bool,
}

impl Numbers {
    /// How many elements there are.
    pub(super) fn len(&self) -> usize {
        self.values.len() + self.text_count
    }

    /// The elements, raw, in the type that the model wants, or a sentence about why not.
    pub(super) fn narrow(&self, datatype: Datatype) -> Result<Vec<u8>, String> {
        if datatype == Datatype::Bytes {
            return if self.values.is_empty() {
                Ok(self.texts.clone())
            } else {
                Err("numbers are not BYTES values: send texts".to_owned())
            };
        }
        if self.text_count > 0 {
            return Err(format!("texts are not {datatype} values"));
        }
        if self.booleans && datatype != Datatype::Bool {
            return Err(format!("true and false are not {datatype} values"));
        }
        let mut raw = Vec::with_capacity(self.values.len() * datatype.width().unwrap_or(0));
        let mut exact = self.exact.iter().peekable();
        for (position, value) in self.values.iter().enumerate() {
            let number = match exact.next_if(|(place, _)| *place == position) {
                Some((_, whole)) => Number::Whole(*whole),
                None => Number::Double(*value),
            };
            number.write(datatype, &mut raw)?;
        }
        Ok(raw)
    }

    fn push_whole<E: Error>(&mut self, depth: usize, value: i128) -> Result<(), E> {
        if value.unsigned_abs() > EXACT_MAX.into() {
            self.exact.push((self.values.len(), value));
        }
        self.push(depth, value as f64)
    }

    fn push_text<E: Error>(&mut self, depth: usize, text: &str) -> Result<(), E> {
        self.element(depth, self.values.is_empty())?;
        let length = u32::try_from(text.len()).map_err(|_| E::custom("a text is too long"))?;
        self.texts.extend_from_slice(&length.to_le_bytes());
        self.texts.extend_from_slice(text.as_bytes());
        self.text_count += 1;
        Ok(())
    }

    fn push<E: Error>(&mut self, depth: usize, value: f64) -> Result<(), E> {
        self.element(depth, self.text_count == 0)?;
        self.values.push(value);
        Ok(())
    }

    /// Whether one more element may stand here.
    fn element<E: Error>(&self, depth: usize, alike: bool) -> Result<(), E> {
        if self.shape.len() != depth {
            return Err(E::custom("the lists are ragged: a number stands beside a list"));
        }
        if !alike {
            return Err(E::custom("a text stands beside a number"));
        }
        if self.len() >= ELEMENTS_MAX {
            return Err(E::custom(format!("more than {ELEMENTS_MAX} elements")));
        }
        Ok(())
    }

    /// Enters a list; its length is not known before it ends.
    fn open<E: Error>(&mut self, depth: usize) -> Result<(), E> {
        if depth >= RANK_MAX {
            return Err(E::custom(format!("lists are nested more than {RANK_MAX} deep")));
        }
        if self.shape.len() == depth {
            if self.len() > 0 {
                return Err(E::custom("the lists are ragged: a list stands beside a number"));
            }
            self.shape.push(UNKNOWN);
        }
        Ok(())
    }

    /// Leaves a list of this length.
    fn close<E: Error>(&mut self, depth: usize, length: usize) -> Result<(), E> {
        let known = &mut self.shape[depth];
        if *known != UNKNOWN && *known != length {
            let text =
                format!("the lists are ragged: one of {length} stands beside one of {known}");
            return Err(E::custom(text));
        }
        *known = length;
        Ok(())
    }
}

/// Stands for a length while the first list of its depth is being read.
const UNKNOWN: usize = usize::MAX;

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut numbers = Self::default();
        Level { into: &mut numbers, depth: 0 }.deserialize(deserializer)?;
        Ok(numbers)
    }
}

/// One depth of the nest.
pub(super) struct Level<'a> {
    pub into: &'a mut Numbers,
    pub depth: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, a text or a list of them")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.into.booleans = true;
        self.into.push(self.depth, f64::from(u8::from(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.into.push_whole(self.depth, value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.into.push_whole(self.depth, value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.into.push_text(self.depth, value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.into.push(self.depth, value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { into, depth } = self;
        into.open(depth)?;
        let mut length = 0;
        while list.next_element_seed(Level { into: &mut *into, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        into.close(depth, length)
    }
}

#[cfg(test)]
mod tests;
