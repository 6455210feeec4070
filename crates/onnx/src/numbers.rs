//! Numbers out of JSON: nested lists are flattened while they are read, and their shape with them.
//!
//! A tree of JSON values would cost eight times the memory of the numbers, and
//! clients decide how much comes. Ragged nests, strings, nulls and endless lists end the reading at
//! once. Nothing here knows a model; the types it can narrow to are the protocol's.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::tensor::{self, TensorData};
use jitney_engine::tensors::Datatype;

/// Elements that one input of a request may bring.
pub(super) const ELEMENTS_MAX: usize = 1 << 25;
/// Dimensions that a tensor may have.
const RANK_MAX: usize = 16;

/// A regular nest of numbers. A 64-bit float holds every value of the types that can be served.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// The nest's shape; empty for a single number.
    pub shape: Vec<usize>,
    values: Vec<f64>,
    /// Whether `true` or `false` was among the values.
    booleans: bool,
}

impl Numbers {
    /// How many numbers there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The numbers in the type that the model wants, or a sentence about why not.
    pub(super) fn narrow(&self, datatype: Datatype) -> Result<TensorData, String> {
        if self.booleans && datatype != Datatype::Bool {
            return Err(format!("true and false are not {datatype} values"));
        }
        let values = self.values.iter().copied();
        let Some(range) = tensor::whole_range(datatype) else {
            return Ok(TensorData::F32(values.map(float).collect::<Result<_, _>>()?));
        };
        values.clone().try_for_each(|value| whole(value, datatype, range))?;
        Ok(match datatype {
            Datatype::Int8 => TensorData::I8(values.map(|value| value as i8).collect()),
            Datatype::Uint8 => TensorData::U8(values.map(|value| value as u8).collect()),
            Datatype::Bool
            | Datatype::Int32
            | Datatype::Int64
            | Datatype::Fp16
            | Datatype::Fp32
            | Datatype::Fp64
            | Datatype::Uint16
            | Datatype::Uint32
            | Datatype::Uint64
            | Datatype::Int16
            | Datatype::Bf16
            | Datatype::Bytes => TensorData::I32(values.map(|value| value as i32).collect()),
        })
    }

    fn push<E: Error>(&mut self, depth: usize, value: f64) -> Result<(), E> {
        if self.shape.len() != depth {
            return Err(E::custom("the lists are ragged: a number stands beside a list"));
        }
        if self.values.len() >= ELEMENTS_MAX {
            return Err(E::custom(format!("more than {ELEMENTS_MAX} numbers")));
        }
        self.values.push(value);
        Ok(())
    }

    /// Enters a list; its length is not known before it ends.
    fn open<E: Error>(&mut self, depth: usize) -> Result<(), E> {
        if depth >= RANK_MAX {
            return Err(E::custom(format!("lists are nested more than {RANK_MAX} deep")));
        }
        if self.shape.len() == depth {
            if !self.values.is_empty() {
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

fn float(value: f64) -> Result<f32, String> {
    let narrow = value as f32;
    if narrow.is_finite() { Ok(narrow) } else { Err(format!("{value:e} is too large for FP32")) }
}

fn whole(value: f64, datatype: Datatype, (min, max): (f64, f64)) -> Result<(), String> {
    if value.fract() != 0.0 {
        return Err(format!("{value} is not a whole number, but {datatype} is expected"));
    }
    if !(min..=max).contains(&value) {
        return Err(format!("{value} is outside {min}..{max}, the {datatype} values served here"));
    }
    Ok(())
}

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
        formatter.write_str("a number or a list of numbers")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.into.booleans = true;
        self.into.push(self.depth, f64::from(u8::from(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.into.push(self.depth, value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.into.push(self.depth, value as f64)
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
