//! When the workers come free, as far as anybody can tell.
//!
//! A sketch made anew for every decision from what the slots know. A worker that is overdue is
//! expected any moment; one that is far overdue is left out, so that nothing is planned on it.

use crate::request::Nanos;

/// The workers at one moment.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Whether the workers still do what they did when they were looked at, and when that was.
    pub(crate) seen: bool,
    at: Nanos,
    /// Workers that can take a batch now.
    pub(crate) open: u32,
    /// How long a batch that is handed over now waits for its worker; 0 if any is idle.
    pub(crate) head_start: Nanos,
    /// How long until each busy worker is free. Overdue ones are soon, suspects are missing.
    pub(crate) busy: Vec<Nanos>,
    soonest_busy: Nanos,
    /// Requests on those workers that take a batch now though they are not idle.
    pub(crate) riders: u32,
    /// When to look again for a worker whose next batch may be handed over ahead of time.
    pub(crate) ahead: Option<Nanos>,
}

impl Fleet {
    pub(crate) fn clear(&mut self, now: Nanos) {
        (self.seen, self.at) = (true, now);
        (self.open, self.head_start, self.ahead, self.riders) = (0, Nanos::MAX, None, 0);
        self.soonest_busy = Nanos::MAX;
        self.busy.clear();
    }

    /// So many workers are idle.
    pub(crate) fn open_now(&mut self, idle: u32) {
        self.open = idle;
        if idle > 0 {
            self.head_start = 0;
        }
    }

    /// Whether any worker is idle.
    pub(crate) fn idles(&self) -> bool {
        self.open > 0 && self.head_start == 0
    }

    /// A worker that is free after so long, with so many requests to answer before, takes a batch.
    pub(crate) fn open_soon(&mut self, left: Nanos, riders: u32) {
        self.open += 1;
        self.riders += riders;
        // Never 0, which means idle.
        self.head_start = self.head_start.min(left.max(1));
    }

    /// A worker is free after so long.
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

    /// How long from now until a batch could start, if anybody is there.
    pub(crate) fn soonest(&self, now: Nanos) -> Option<Nanos> {
        let then = if self.open > 0 { Some(self.head_start) } else { self.soonest_busy() };
        then.map(|time| time.saturating_sub(now - self.at))
    }

    /// Whether all of the sketch is true at this moment.
    pub(crate) fn current(&self, now: Nanos) -> bool {
        self.seen && self.at == now
    }

    /// Whether nobody has come free since the sketch, so that who is open and `soonest` are true.
    pub(crate) fn stands(&self, now: Nanos) -> bool {
        let passed = now - self.at;
        self.seen
            && (self.open == 0 || self.head_start == 0)
            && passed < self.soonest_busy
            && self.ahead.is_none_or(|time| now < time)
    }
}
