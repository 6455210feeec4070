//! When the workers are expected to be free.
//!
//! Made anew for every decision by `workers`. A worker that is overdue is expected soon; one that is
//! far overdue is left out, so that nothing is planned with it.

use crate::request::Nanos;

/// The workers as seen at one moment.
#[derive(Debug, Default)]
pub(crate) struct WorkerForecast {
    /// Whether it is still valid, and when it was made.
    seen: bool,
    at: Nanos,
    /// Workers that can take a batch now.
    pub(crate) open: u32,
    /// How long a batch that is handed over now waits for its worker; 0 if any is idle.
    pub(crate) head_start: Nanos,
    /// How long until each busy worker is free. Overdue ones are soon, suspect ones are missing.
    pub(crate) busy: Vec<Nanos>,
    soonest_busy: Nanos,
    /// Requests on those workers that take a batch now though they are not idle.
    pub(crate) requests: u32,
    /// When a worker may next be handed a batch ahead of time.
    pub(crate) ahead: Option<Nanos>,
}

impl WorkerForecast {
    /// Something happened that may have changed it.
    pub(crate) fn invalidate(&mut self) {
        self.seen = false;
    }

    /// Starts anew with this many idle workers.
    pub(crate) fn clear(&mut self, now: Nanos, idle: u32) {
        (self.seen, self.at, self.open) = (true, now, idle);
        self.head_start = if idle > 0 { 0 } else { Nanos::MAX };
        (self.ahead, self.requests) = (None, 0);
        self.soonest_busy = Nanos::MAX;
        self.busy.clear();
    }

    /// Whether any worker is idle.
    pub(crate) fn idles(&self) -> bool {
        self.open > 0 && self.head_start == 0
    }

    /// A worker that is free after this time, with so many requests to answer first, takes a batch.
    pub(crate) fn open_soon(&mut self, left: Nanos, requests: u32) {
        self.open += 1;
        self.requests += requests;
        // Never 0, which means idle.
        self.head_start = self.head_start.min(left.max(1));
    }

    /// A worker is free after this time.
    pub(crate) fn busy(&mut self, left: Nanos) {
        self.busy.push(left);
        self.soonest_busy = self.soonest_busy.min(left);
    }

    /// Workers to plan with.
    pub(crate) fn len(&self) -> f64 {
        (self.open as usize + self.busy.len()).max(1) as f64
    }

    /// How long until the first busy worker is free.
    pub(crate) fn soonest_busy(&self) -> Option<Nanos> {
        (!self.busy.is_empty()).then_some(self.soonest_busy)
    }

    /// How long from now until a batch could start, if there is a worker.
    pub(crate) fn soonest(&self, now: Nanos) -> Option<Nanos> {
        let then = if self.open > 0 { Some(self.head_start) } else { self.soonest_busy() };
        then.map(|time| time.saturating_sub(now - self.at))
    }

    /// Whether all of it is true at this moment.
    pub(crate) fn current(&self, now: Nanos) -> bool {
        self.seen && self.at == now
    }

    /// Whether no worker became free since it was made, so that `open` and `soonest` are true.
    pub(crate) fn stands(&self, now: Nanos) -> bool {
        let passed = now - self.at;
        self.seen
            && (self.open == 0 || self.head_start == 0)
            && passed < self.soonest_busy
            && self.ahead.is_none_or(|time| now < time)
    }
}
