//! What the number of workers is found from.

use crate::learned::CurvePoint;
use crate::request::Nanos;

/// Time between two looks. Chosen: half a second is short beside the start of a worker.
pub const LOOK_EVERY: Nanos = 500_000_000;

/// What is known at a look.
#[derive(Clone, Copy, Debug)]
pub struct CapacityFacts<'a> {
    /// Requests that have come so far, whatever became of them.
    pub arrived: u64,
    /// Requests that wait now.
    pub waiting: u32,
    /// The learned curve of the group with the most batches, with as many workers as serve now.
    pub curve: &'a [CurvePoint],
    /// So many serve.
    pub serving: u32,
    /// How many did before that number changed last, and the curve of the same group with them.
    pub before: Option<(u32, &'a [CurvePoint])>,
    /// What a request adds to the size of a batch on average, in the unit of the curve.
    pub unit: f64,
    /// Batches that a worker runs at the same time without slowing down.
    pub beside: f64,
    /// Latency that is asked for; without one it is twice the time of a batch of one.
    pub objective: Option<Nanos>,
    /// How long a worker takes until it serves.
    pub load: Nanos,
    /// Whether the last load failed.
    pub failing: bool,
    /// The fewest and the most workers.
    pub bounds: (u32, u32),
    /// With a minimum of 0: without a request for so long the last worker goes.
    pub idle: Nanos,
}
