//! The time of spans: Unix time, from one look at the system's clock and the steady clock after it, so that no
//! span ends before it begins.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Turns instants into nanoseconds of Unix time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanClock {
    seen: Instant,
    unix: u64,
}

impl SpanClock {
    pub(super) fn look() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seen: Instant::now(), unix: unix.as_nanos() as u64 }
    }

    pub(super) fn unix(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.seen) {
            Some(later) => self.unix + later.as_nanos() as u64,
            None => self.unix.saturating_sub((self.seen - at).as_nanos() as u64),
        }
    }

    pub(super) fn times(&self, start: Instant, end: Instant) -> (u64, u64) {
        (self.unix(start), self.unix(end))
    }
}
