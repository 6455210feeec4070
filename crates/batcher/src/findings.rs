//! What a batcher has found out, for those who watch it.
//!
//! It only reads: nothing is decided or learned here.

use crate::adaptive::{Decision, DecisionLog};
use crate::learned::{CurvePoint, Learned, WaitScore};

/// What a [`Batcher`](crate::Batcher) has found out.
#[derive(Clone, Copy, Debug)]
pub struct Findings<'a> {
    pub(crate) learned: &'a Learned,
    pub(crate) log: &'a DecisionLog,
}

impl<'a> Findings<'a> {
    /// What was learned about the service time: one curve per group, one point for every batch size
    /// seen, ascending.
    pub fn curve(self) -> impl Iterator<Item = CurvePoint> + 'a {
        self.learned.curves.points()
    }

    /// How many workers there are: with so many the curve was learned.
    #[must_use]
    pub fn worker_count(self) -> u32 {
        self.learned.worker_count()
    }

    /// How many there were before that changed last, and the curve that was learned with them.
    pub fn curve_before(self) -> Option<(u32, impl Iterator<Item = CurvePoint> + 'a)> {
        self.learned.before().map(|(workers, curves)| (workers, curves.points()))
    }

    /// What a request adds to the size of a batch on average.
    #[must_use]
    pub fn request_size(self) -> f64 {
        self.learned.unit
    }

    /// The last decisions of the adaptive policy, oldest first; at most 64.
    pub fn decisions(self) -> impl Iterator<Item = &'a Decision> {
        self.log.iter()
    }

    /// What waiting for larger batches has brought, where no deadline and no window decide about it.
    #[must_use]
    pub fn wait_score(self) -> WaitScore {
        self.learned.wait_trials.score
    }
}
