//! The memory of requests: what may be under way at once, and values in the pieces in which they came.
//!
//! Connections take their bytes from the same account as models, so neither side may own it. This crate
//! knows no protocol and no model, and reads nothing.

pub mod admission;
pub mod quota;
mod transfers;
mod value_bytes;

pub use value_bytes::ValueBytes;
