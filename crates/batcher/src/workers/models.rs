//! Which worker gets the batches of a model that requests ask for.

use super::Workers;
use crate::request::{Nanos, WorkerId};

impl Workers {
    /// The worker for a batch of a model: one that holds it, if it can take the batch now. Else none while such a one
    /// is expected before `until`, and then the one that loses the least by loading it.
    pub(crate) fn worker_for(
        &self,
        model: u64,
        full: bool,
        most: usize,
        (now, until): (Nanos, Nanos),
    ) -> Option<WorkerId> {
        let able = || self.workers.iter().filter(|it| self.takes(it, full));
        let holding = able().filter(|it| it.models.holds(model)).min_by_key(|it| it.busy);
        let staying = self.workers.iter().filter(|it| !it.retiring && it.slots > 0);
        let mut holders = staying.filter(|it| it.models.holds(model));
        let wait = holding.is_none() && holders.any(|it| it.finish.max(now) < until);
        let other = || able().min_by_key(|it| it.models.loss(most));
        holding.or_else(other).filter(|_| !wait).map(|it| it.id)
    }

    /// A batch of this model is handed to a worker. Returns whether that one has to load it.
    pub(crate) fn asked(&mut self, id: WorkerId, model: u64, now: Nanos, most: u32) -> bool {
        let at = self.find(id).ok().filter(|_| model != 0);
        at.is_some_and(|at| self.workers[at].models.asked(model, now, most as usize))
    }

    /// The worker failed to load it, or may have.
    pub(crate) fn forget_model(&mut self, id: WorkerId, model: u64) {
        if let Ok(at) = self.find(id) {
            self.workers[at].models.forget(model);
        }
    }
}
