//! What a request costs a worker, and how many workers keep the objective at a rate.

use super::facts::CapacityFacts;
use crate::learned::CurvePoint;

/// How much the times of equal batches vary: variance over squared mean. Chosen: usual for models.
const SERVICE_VARIES: f64 = 0.2;
/// The mean wait fits so many times into the time that is left for it. Chosen: about one request in
/// twenty waits longer than that.
const WAIT_MARGIN: f64 = 3.0;

/// What a request costs a worker at the best size of a batch that the objective allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestCost {
    /// Requests in such a batch, and its time in nanoseconds.
    requests: f64,
    batch: f64,
    pub(super) target: f64,
}

impl RequestCost {
    pub(super) fn of(facts: &CapacityFacts<'_>) -> Option<Self> {
        let unit = facts.unit.max(1e-9);
        let cost =
            |point: &CurvePoint| (((point.size as f64) / unit).max(1.0), point.mean.max(1) as f64);
        let (_, one) = cost(facts.curve.first()?);
        let target = facts.objective.map_or(2.0 * one, |time| time as f64);
        let fits = |(_, batch): &(f64, f64)| 2.0 * batch <= target;
        let of_points = facts.curve.iter().map(cost);
        let best = of_points.filter(fits).min_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (requests, batch) = best.unwrap_or((1.0, one));
        Some(Self { requests, batch, target })
    }

    /// The workers that keep the objective at this rate.
    pub(super) fn need(self, rate: f64, burstiness: f64, facts: &CapacityFacts<'_>) -> f64 {
        let each = self.batch / self.requests / facts.beside.max(1.0) / 1e9;
        // Those that wait are to be done in the time of a load, beside the others.
        let backlog = f64::from(facts.waiting) - self.requests * facts.beside.max(1.0) * 2.0;
        let extra = backlog.max(0.0) * each / (facts.load as f64 / 1e9).max(1.0);
        let work = rate * each;
        if work <= 0.0 {
            return extra;
        }
        let slack = (self.target - self.batch).max(self.batch / 4.0);
        let waits = |workers: f64| {
            let use_of = work / workers;
            let queued = use_of.powf((2.0 * (workers + 1.0)).sqrt() - 1.0);
            // A batch gathers the requests of a while, which evens them out.
            let bursts = (burstiness / self.requests + SERVICE_VARIES) / 2.0;
            WAIT_MARGIN * bursts * self.batch * queued / (workers * (1.0 - use_of)) > slack
        };
        let most = f64::from(facts.bounds.1.max(1));
        let mut workers = work * 1.01;
        while workers < most && waits(workers) {
            workers += 0.05;
        }
        workers + extra
    }
}
