//! The adaptive policy: what it has learned, and what it decides by it.
//!
//! Each file below is one noun: `service` how long a batch takes, `rate` and `returns` who will
//! come, `fleet` when a worker is free, `form` who would travel, `outlook` who is lost if so, `wait`
//! whether to wait, `trim` who is left behind at a step, `fair` whose turn it is; the `planner` puts
//! them together. The batcher
//! asks and acts; nothing here writes an action or ends a request.

mod crowd;
mod curves;
mod fair;
mod fit;
mod fleet;
mod form;
mod grid;
mod histogram;
mod journal;
mod line;
mod outlook;
mod planner;
mod queue;
mod rate;
mod returns;
mod service;
mod tail;
mod trim;
mod wait;

pub(crate) use fleet::Fleet;
pub use journal::{Decision, DecisionKind};
pub(crate) use planner::{Planner, Trip};
pub(crate) use queue::size_of;

use crate::request::Nanos;

/// One point of the learned service curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The group whose curve this is.
    pub group: u16,
    /// Size of the batch, in the unit of [`Config::measure`](crate::Config).
    pub size: u64,
    /// Mean service time.
    pub mean: Nanos,
    /// The service time that deadlines are planned with.
    pub planned: Nanos,
    /// Batches this rests on; older ones are forgotten, so it has a ceiling.
    pub samples: u32,
}
