//! When the workers come free, as far as anybody can tell.
//!
//! A sketch made anew for every decision from what the slots know. A worker that is overdue is
//! expected any moment; one that is far overdue is left out, so that nothing is planned on it.

use crate::request::Nanos;

/// The workers at one moment.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Workers that can take a batch now.
    pub(crate) open: u32,
    /// How long a batch that is handed over now waits for its worker; 0 if any is idle.
    pub(crate) head_start: Nanos,
    /// How long until each busy worker is free. Overdue ones are soon, suspects are missing.
    pub(crate) busy: Vec<Nanos>,
    /// When to look again for a worker whose next batch may be handed over ahead of time.
    pub(crate) ahead: Option<Nanos>,
}

impl Fleet {
    pub(crate) fn clear(&mut self) {
        (self.open, self.head_start, self.ahead) = (0, Nanos::MAX, None);
        self.busy.clear();
    }

    /// A worker with so much to do takes a batch now.
    pub(crate) fn open(&mut self, head_start: Nanos) {
        self.open += 1;
        self.head_start = self.head_start.min(head_start);
    }

    /// Workers to plan with.
    pub(crate) fn len(&self) -> f64 {
        (self.open as usize + self.busy.len()).max(1) as f64
    }

    /// How long until the first busy worker is free.
    pub(crate) fn soonest_busy(&self) -> Option<Nanos> {
        self.busy.iter().copied().min()
    }

    /// How long until a batch could start, if anybody is there.
    pub(crate) fn soonest(&self) -> Option<Nanos> {
        if self.open > 0 { Some(self.head_start) } else { self.soonest_busy() }
    }
}
