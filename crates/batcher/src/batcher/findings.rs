//! What a batcher has found out, for those who watch it.

use super::Batcher;
use crate::adaptive::Decision;
use crate::learned::{CurvePoint, WaitScore};

impl Batcher {
    /// What was learned about the service time: one curve per group, one point for every batch size
    /// seen, ascending.
    pub fn curve(&self) -> impl Iterator<Item = CurvePoint> + '_ {
        self.state.learned.curves.points()
    }

    /// How many workers there are: with so many the curve was learned.
    #[must_use]
    pub fn worker_count(&self) -> u32 {
        self.state.learned.worker_count()
    }

    /// How many there were before that changed last, and the curve that was learned with them.
    pub fn curve_before(&self) -> Option<(u32, impl Iterator<Item = CurvePoint> + '_)> {
        self.state.learned.before().map(|(workers, curves)| (workers, curves.points()))
    }

    /// What a request adds to the size of a batch on average.
    #[must_use]
    pub fn request_size(&self) -> f64 {
        self.state.learned.unit
    }

    /// The last decisions of the adaptive policy, oldest first; at most 64.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> + '_ {
        self.planner.log.iter()
    }

    /// What waiting for larger batches has brought, where no deadline and no window decide about it.
    #[must_use]
    pub fn wait_score(&self) -> WaitScore {
        self.state.learned.wait_trials.score
    }
}
