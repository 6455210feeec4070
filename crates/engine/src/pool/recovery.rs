//! What becomes of a worker that exited: it is started again at once the first time, then after 1, 1, 2,
//! 3, 5 ... seconds, until it has been down for the whole retry window. A worker that comes up and
//! exits again right away must not spin, so the count starts anew only after it has served a while.
//! The log tells of it in the words that TorchServe's users and their alarms look for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::outcome::LaunchError;

/// The log target of lines that only TorchServe's users look for.
const TORCHSERVE: &str = "jitney::torchserve";

const STEPS_S: [u64; 17] = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987];

/// What happened to a worker since its last batch that went well.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    window: Duration,
    failures: usize,
    down_since: Option<Instant>,
    /// It is down, or came up and has not served yet.
    down: bool,
    /// Times in a row that it left a batch unanswered.
    unanswered: u32,
}

impl Recovery {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, ..Self::default() }
    }

    /// It answered a batch.
    pub(crate) fn served(&mut self) {
        (self.failures, self.down_since, self.unanswered) = (0, None, 0);
    }

    /// The pause before the next start, as [`Recovery::next`] will say.
    pub(crate) fn upcoming(&self) -> Option<Duration> {
        let down = self.down_since.map_or(Duration::ZERO, |since| since.elapsed());
        if self.failures > 0 && down >= self.window {
            return None;
        }
        Some(Duration::from_secs(STEPS_S[self.failures.min(STEPS_S.len() - 1)]))
    }

    /// The pause before the next start; none once that is given up.
    pub(crate) fn next(&mut self, worker: u32) -> Option<Duration> {
        let pause = self.upcoming();
        self.down_since.get_or_insert_with(Instant::now);
        let pause = pause?;
        self.failures += 1;
        if std::mem::replace(&mut self.down, true) {
            tracing::warn!(target: TORCHSERVE, "Auto recovery failed again");
        } else {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            tracing::info!(target: TORCHSERVE, "Auto recovery start timestamp: {}", since.as_millis());
        }
        tracing::info!(target: TORCHSERVE, "Retry worker: {worker} in {} seconds.", pause.as_secs());
        Some(pause)
    }

    /// It exited, perhaps with batches.
    pub(crate) fn exited(&mut self, worker: u32, at_work: bool) {
        if at_work {
            self.unanswered += 1;
            tracing::info!(target: TORCHSERVE, "Number or consecutive unsuccessful inference {}", self.unanswered);
        }
        tracing::info!(target: TORCHSERVE, "{worker} Worker disconnected. WORKER_MODEL_LOADED");
    }

    /// It did not come up.
    pub(crate) fn failed(&self, worker: u32, error: &LaunchError) {
        if let LaunchError::TimedOut { .. } = error {
            tracing::error!(
                target: TORCHSERVE,
                "Backend worker error\norg.pytorch.serve.wlm.WorkerInitializationException: \
                 Backend worker did not respond in given time"
            );
        }
        tracing::info!(target: TORCHSERVE, "{worker} Worker disconnected. WORKER_STARTED");
    }

    /// It is up.
    pub(crate) fn up(&mut self) {
        if std::mem::take(&mut self.down) {
            tracing::info!(target: TORCHSERVE, "Auto recovery succeeded, reset recoveryStartTS");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_the_window_is_over() {
        let mut recovery = Recovery::new(Duration::from_secs(10));
        let mut pauses = Vec::new();
        while let Some(pause) = recovery.next(1) {
            pauses.push(pause.as_secs());
            tokio::time::advance(pause).await;
        }
        assert_eq!(pauses, [0, 1, 1, 2, 3, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_served_is_restarted_at_once() {
        let mut recovery = Recovery::new(Duration::from_secs(1));
        assert_eq!(recovery.next(1), Some(Duration::ZERO));
        assert_eq!(recovery.next(1), Some(Duration::from_secs(1)));
        recovery.served();
        assert_eq!(recovery.next(1), Some(Duration::ZERO));
    }
}
