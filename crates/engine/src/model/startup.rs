//! How long requests wait for a model of which no worker is ready: each as long as `startup_wait`, from
//! its admission or from when the last worker was lost, whichever was later.
//!
//! Nothing is done per request: the task looks at those that wait when the first of them may have
//! waited long enough.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest pause between two looks, also where requests may not wait at all.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// When the task looks again at the requests that wait for a worker.
#[derive(Debug)]
pub(super) struct StartupWait {
    /// How long a request waits.
    pub(super) limit: Duration,
    look_at: Option<Instant>,
}

impl StartupWait {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, look_at: None }
    }

    /// Says whether requests wait for a worker to come up.
    pub(super) fn set(&mut self, waits: bool) {
        if !waits {
            self.look_at = None;
        } else if self.look_at.is_none() {
            self.look_again(None);
        }
    }

    /// When to look.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.look_at
    }

    /// Requests that were admitted until then have waited long enough; none if it is not time to look.
    pub(super) fn overdue(&self) -> Option<Instant> {
        let now = Instant::now();
        self.look_at.filter(|look_at| *look_at <= now).and_then(|_| now.checked_sub(self.limit))
    }

    /// The oldest request that still waits was admitted then.
    pub(super) fn look_again(&mut self, oldest: Option<Instant>) {
        self.look_at = Some(oldest.unwrap_or_else(Instant::now) + self.limit.max(LOOK_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_that_may_not_wait_are_looked_at_now_and_then_and_not_without_end() {
        let mut startup = StartupWait::new(Duration::ZERO);
        startup.set(true);
        for _ in 0..3 {
            assert_eq!(startup.overdue(), None);
            assert_eq!(startup.alarm(), Some(Instant::now() + LOOK_PAUSE));
            tokio::time::advance(LOOK_PAUSE).await;
            assert_eq!(startup.overdue(), Some(Instant::now()));
            startup.look_again(None);
        }
    }
}
