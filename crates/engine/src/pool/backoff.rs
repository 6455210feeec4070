//! When a worker that exited is started again: at once the first time, then after 1, 1, 2, 3, 5 ...
//! seconds, until it has been down for the whole retry window. A worker that comes up and exits
//! again right away must not spin, so the count starts anew only after it has served a while.

use std::time::Duration;

use tokio::time::Instant;

const STEPS_S: [u64; 17] = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987];

/// The pauses between the starts of one worker.
#[derive(Debug)]
pub(crate) struct Backoff {
    window: Duration,
    failures: usize,
    down_since: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, failures: 0, down_since: None }
    }

    /// The worker served at least one batch: its next exit is a first one again.
    pub(crate) fn served(&mut self) {
        self.failures = 0;
        self.down_since = None;
    }

    /// The worker is down: how long to wait before the next start, or `None` to give up.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Duration> {
        let down_since = *self.down_since.get_or_insert(now);
        if self.failures > 0 && now.duration_since(down_since) >= self.window {
            return None;
        }
        let step = STEPS_S[self.failures.min(STEPS_S.len() - 1)];
        self.failures += 1;
        Some(Duration::from_secs(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_the_window_is_over() {
        let mut backoff = Backoff::new(Duration::from_secs(10));
        let mut pauses = Vec::new();
        while let Some(pause) = backoff.next(Instant::now()) {
            pauses.push(pause.as_secs());
            tokio::time::advance(pause).await;
        }
        assert_eq!(pauses, [0, 1, 1, 2, 3, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_served_is_restarted_at_once() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let now = Instant::now();
        assert_eq!(backoff.next(now), Some(Duration::ZERO));
        assert_eq!(backoff.next(now), Some(Duration::from_secs(1)));
        backoff.served();
        assert_eq!(backoff.next(now), Some(Duration::ZERO));
    }
}
