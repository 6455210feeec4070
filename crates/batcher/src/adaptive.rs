//! The adaptive policy: what it has learned, and what it decides by it.

mod journal;

pub use journal::{Decision, Verdict};

use crate::request::Nanos;

/// One point of the learned service curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The bucket whose curve this is.
    pub bucket: u16,
    /// Size of the batch, in the unit of [`Config::measure`](crate::Config).
    pub size: u64,
    /// Mean service time.
    pub mean: Nanos,
    /// The service time that deadlines are planned with.
    pub planned: Nanos,
    /// Batches this rests on; older ones are forgotten, so it has a ceiling.
    pub samples: u32,
}
