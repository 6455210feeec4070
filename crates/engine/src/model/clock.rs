//! The time of one model version as its batcher counts it: nanoseconds since the model was made.

use std::time::Duration;

use tokio::time::Instant;

/// Turns moments into the batcher's numbers and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelClock {
    start: Instant,
}

impl ModelClock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now(self) -> u64 {
        self.nanos(Instant::now())
    }

    pub(super) fn nanos(self, instant: Instant) -> u64 {
        u64::try_from(instant.duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    /// A deadline as the batcher has it: no deadline is the end of time.
    pub(super) fn deadline(self, deadline: Option<Instant>) -> u64 {
        deadline.map_or(u64::MAX, |deadline| self.nanos(deadline))
    }

    pub(super) fn instant(self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }
}
