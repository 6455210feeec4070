//! Workers that follow the load, between the bounds that the operator set.
//!
//! How many are wanted is decided by [`Capacity`], a pure function beside the batcher; here is when it is asked, and what
//! it is told. A model whose bounds were always the same has nothing of this. One without requests that has its fewest
//! workers is not looked at either: the next request ends that.

use std::fmt;
use std::time::Duration;

use jitney_batcher::{
    Batcher, Capacity, CapacityFacts, CurvePoint, LOOK_EVERY, Policy, WantedWorkers,
};
use tokio::time::Instant;

use super::report::main_group;
use crate::pool::{BatchOrder, WorkerCapacity};

/// How long a worker is taken to load until one has.
const LOAD_GUESS: Duration = Duration::from_secs(5);
/// Without a request for so long the model is no longer looked at: all that is remembered of the load is over then.
const QUIET: Duration = Duration::from_secs(60);

/// The number of workers that a model should have, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityReport {
    /// The fewest and the most.
    pub bounds: (u32, u32),
    /// What is wanted between them.
    pub wanted: WantedWorkers,
    /// There is memory for so many, where that is fewer.
    pub fits: Option<u32>,
}

impl CapacityReport {
    /// So many are there, and there is memory for so many more.
    pub(super) fn within(self, workers: u32, room: impl FnOnce() -> u32) -> Self {
        if self.wanted.workers <= workers {
            return self;
        }
        let fits = workers.saturating_add(room());
        Self { fits: (fits < self.wanted.workers).then_some(fits), ..self }
    }

    /// How many workers there are to be.
    pub(super) fn workers(&self) -> u32 {
        self.fits.unwrap_or(self.wanted.workers)
    }
}

impl fmt::Display for CapacityReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bounds: (min, max), wanted, fits } = self;
        let WantedWorkers { rate, need, target, useful, .. } = wanted;
        write!(out, "{} of {min} to {max} workers: ", self.workers())?;
        let digits = usize::from(*rate < 10.0);
        match (*rate > 0.0, *target) {
            (false, _) => out.write_str("no requests"),
            (true, 0) => write!(out, "{rate:.digits$} requests/s, and no batch is answered yet"),
            (true, target) => {
                let target = target as f64 / 1e6;
                write!(out, "{rate:.digits$} requests/s need {need:.1} at {target:.0} ms")
            }
        }?;
        if let Some(useful) = useful {
            write!(out, ", and more than {useful} bring nothing")?;
        }
        fits.map_or(Ok(()), |fits| write!(out, ", and memory is for {fits}"))
    }
}

/// What a look is told besides the batcher.
pub(super) struct CapacityLook<'a> {
    pub(super) batcher: &'a Batcher,
    /// Requests that have come.
    pub(super) arrived: u64,
    /// Requests that wait.
    pub(super) waiting: u32,
    /// What a worker can hold.
    pub(super) worker: WorkerCapacity,
    /// How long the last load took.
    pub(super) load: Option<Duration>,
    /// Whether the last load failed.
    pub(super) failing: bool,
}

/// When and with what the number of workers is looked at.
#[derive(Debug)]
pub(super) struct LiveCapacity {
    bounds: (u32, u32),
    capacity: Capacity,
    look_at: Option<Instant>,
    /// After so long without a request the last worker goes, where there may be none.
    idle: Duration,
}

impl LiveCapacity {
    pub(super) fn new(idle: Duration) -> Self {
        Self { bounds: (0, 0), capacity: Capacity::new(0, 0), look_at: None, idle }
    }

    /// The operator wants at least and at most so many; so many are there.
    pub(super) fn set_bounds(&mut self, now: u64, bounds: (u32, u32), workers: u32) {
        self.bounds = bounds;
        self.capacity.set(now, workers);
        self.look_at = None;
        self.wake();
    }

    /// Whether the number of workers follows the load.
    pub(super) fn is_live(&self) -> bool {
        self.bounds.0 < self.bounds.1
    }

    /// Whether the first request starts a worker.
    pub(super) fn starts_from_zero(&self) -> bool {
        self.bounds.0 == 0 && self.is_live()
    }

    /// All workers were ended: none is wanted until the next request.
    pub(super) fn emptied(&mut self, now: u64) {
        self.capacity.set(now, 0);
        self.look_at = None;
    }

    /// A request came: where nothing was looked at, that begins now.
    #[inline]
    pub(super) fn wake(&mut self) {
        if self.look_at.is_none() && self.is_live() {
            self.look_at = Some(Instant::now());
        }
    }

    /// When to look.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.look_at
    }

    /// The number of workers that is wanted; none if it is not time to look.
    pub(super) fn look(&mut self, now: u64, look: &CapacityLook<'_>) -> Option<CapacityReport> {
        let instant = Instant::now();
        self.look_at.filter(|at| *at <= instant)?;
        let findings = look.batcher.findings();
        let curve: Vec<_> = findings.curve().collect();
        let main = main_group(&curve);
        let of_main = |it: &CurvePoint| Some(it.group) == main;
        let curve: Vec<_> = curve.into_iter().filter(of_main).collect();
        let before = findings.curve_before();
        let before = before.map(|(workers, it)| (workers, it.filter(of_main).collect::<Vec<_>>()));
        let concurrent = look.worker.order == BatchOrder::Concurrent;
        let facts = CapacityFacts {
            arrived: look.arrived,
            waiting: look.waiting,
            curve: &curve,
            serving: findings.worker_count(),
            before: before.as_ref().map(|(workers, curve)| (*workers, &curve[..])),
            unit: findings.request_size(),
            beside: if concurrent { f64::from(look.worker.slots) } else { 1.0 },
            objective: match &look.batcher.config().policy {
                Policy::Adaptive(adaptive) => adaptive.objective,
                Policy::Window { .. } | Policy::Opportunistic => None,
            },
            load: look.load.unwrap_or(LOAD_GUESS).as_nanos() as u64,
            failing: look.failing,
            bounds: self.bounds,
            idle: self.idle.as_nanos() as u64,
        };
        let wanted = self.capacity.look(now, &facts);
        let quiet = Duration::from_nanos(self.capacity.quiet(now)) >= QUIET;
        let quiet = quiet && wanted.workers == self.bounds.0;
        self.look_at = (!quiet).then(|| instant + Duration::from_nanos(LOOK_EVERY));
        Some(CapacityReport { bounds: self.bounds, wanted, fits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_one_sentence() {
        let report = |rate, need, target| CapacityReport {
            bounds: (1, 4),
            wanted: WantedWorkers { workers: 2, rate, need, target, useful: None },
            fits: None,
        };
        assert_eq!(
            report(310.0, 1.62, 50_000_000).to_string(),
            "2 of 1 to 4 workers: 310 requests/s need 1.6 at 50 ms"
        );
        let one = report(310.0, 1.62, 50_000_000).within(1, || 0);
        assert_eq!(
            one.to_string(),
            "1 of 1 to 4 workers: 310 requests/s need 1.6 at 50 ms, and memory is for 1"
        );
        assert_eq!(report(310.0, 1.62, 50_000_000).within(1, || 1).workers(), 2);
        assert_eq!(report(0.0, 0.0, 0).within(3, || 0).workers(), 2, "fewer always fit");
        let mut shared = report(310.0, 3.62, 50_000_000);
        shared.wanted.useful = Some(2);
        assert_eq!(
            shared.to_string(),
            "2 of 1 to 4 workers: 310 requests/s need 3.6 at 50 ms, and more than 2 bring nothing"
        );
        assert_eq!(report(0.0, 0.0, 0).to_string(), "2 of 1 to 4 workers: no requests");
        assert_eq!(
            report(0.5, 0.0, 0).to_string(),
            "2 of 1 to 4 workers: 0.5 requests/s, and no batch is answered yet"
        );
    }
}
