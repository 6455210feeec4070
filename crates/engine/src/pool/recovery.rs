//! What becomes of a worker that is down.
//!
//! One that could not be loaded is started again at once the first time, then after 1, 1, 2, 3, 5 ...
//! seconds, until it has been down for the whole retry window. One that was loaded and exited is started
//! again at once, however often: it is the request that was at fault, and the model stays up for the
//! others. It must not spin either, so there is a limit to how many starts come in a row.
//! The log tells of it in the words that TorchServe's users and their alarms look for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::outcome::LaunchError;

/// The log target of lines that only TorchServe's users look for.
const TORCHSERVE: &str = "jitney::torchserve";

const STEPS_S: [u64; 17] = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987];

/// Starts of a worker that was loaded: so many in a row, then one in every so much time.
const RESTARTS_AT_ONCE: u32 = 10;
const RESTART_EVERY: Duration = Duration::from_secs(1);

/// What happened to a worker since it was last loaded.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    window: Duration,
    /// Loads in a row that failed.
    failures: usize,
    /// Since when its loads fail.
    down_since: Option<Instant>,
    /// It is down, and its next start has been announced.
    down: bool,
    /// Whether it was loaded when it was last started.
    loaded: bool,
    /// When all its starts so far would be over if they came one by one, every [`RESTART_EVERY`].
    restarts_until: Option<Instant>,
    /// Times in a row that it left a batch unanswered.
    unanswered: u32,
}

impl Recovery {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, ..Self::default() }
    }

    /// It answered a batch.
    pub(crate) fn served(&mut self) {
        self.unanswered = 0;
    }

    /// The pause before the next start; none once that is given up.
    pub(crate) fn next(&mut self, worker: u32) -> Option<Duration> {
        let pause = if std::mem::take(&mut self.loaded) {
            self.restart_pause()
        } else {
            self.load_pause()?
        };
        if std::mem::replace(&mut self.down, true) {
            tracing::warn!(target: TORCHSERVE, "Auto recovery failed again");
        } else {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            tracing::info!(target: TORCHSERVE, "Auto recovery start timestamp: {}", since.as_millis());
        }
        tracing::info!(target: TORCHSERVE, "Retry worker: {worker} in {} seconds.", pause.as_secs());
        Some(pause)
    }

    /// After a load that failed.
    fn load_pause(&mut self) -> Option<Duration> {
        let pause = self.next_load();
        self.down_since.get_or_insert_with(Instant::now);
        self.failures += usize::from(pause.is_some());
        pause
    }

    /// The pause before the next start after a load that has just failed; none if there is no other.
    pub(crate) fn next_load(&self) -> Option<Duration> {
        let down = self.down_since.map_or(Duration::ZERO, |since| since.elapsed());
        if self.failures > 0 && down >= self.window {
            return None;
        }
        Some(Duration::from_secs(STEPS_S[self.failures.min(STEPS_S.len() - 1)]))
    }

    /// After an exit of a worker that was loaded.
    fn restart_pause(&mut self) -> Duration {
        let pause = self.next_restart();
        self.restarts_until = Some(self.restarts_end(Instant::now()));
        pause
    }

    /// The pause before the next start of a worker that was loaded and has just exited.
    pub(crate) fn next_restart(&self) -> Duration {
        let now = Instant::now();
        let all = self.restarts_end(now).duration_since(now);
        all.saturating_sub(RESTART_EVERY * RESTARTS_AT_ONCE)
    }

    /// When all its starts, with one more, would be over if they came one by one.
    fn restarts_end(&self, now: Instant) -> Instant {
        self.restarts_until.map_or(now, |until| until.max(now)) + RESTART_EVERY
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
            // A line each, as a stack trace has them.
            tracing::error!(target: TORCHSERVE, "Backend worker error");
            tracing::error!(
                target: TORCHSERVE,
                "org.pytorch.serve.wlm.WorkerInitializationException: Backend worker did not \
                 respond in given time"
            );
        }
        tracing::info!(target: TORCHSERVE, "{worker} Worker disconnected. WORKER_STARTED");
    }

    /// It is up.
    pub(crate) fn up(&mut self) {
        (self.loaded, self.failures, self.down_since) = (true, 0, None);
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
    async fn a_worker_that_was_loaded_is_restarted_at_once_and_never_given_up() {
        let mut recovery = Recovery::new(Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..400 {
            recovery.up();
            recovery.exited(1, true);
            let pause = recovery.next(1).expect("not given up");
            pauses.push(pause.as_secs());
            tokio::time::advance(pause).await;
        }
        assert_eq!(pauses[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert!(pauses[12..].iter().all(|pause| *pause == 1), "one in every second from then on");
        tokio::time::advance(RESTART_EVERY * RESTARTS_AT_ONCE).await;
        recovery.up();
        assert_eq!(recovery.next(1), Some(Duration::ZERO), "it had time to rest");
    }

    #[tokio::test(start_paused = true)]
    async fn loads_that_fail_are_counted_anew_after_one_that_went_well() {
        let mut recovery = Recovery::new(Duration::from_secs(1));
        assert_eq!(recovery.next(1), Some(Duration::ZERO));
        assert_eq!(recovery.next(1), Some(Duration::from_secs(1)));
        recovery.up();
        recovery.exited(1, false);
        assert_eq!(recovery.next(1), Some(Duration::ZERO), "it was loaded");
        assert_eq!(
            recovery.next(1),
            Some(Duration::ZERO),
            "it is started again, and fails to load"
        );
        assert_eq!(recovery.next(1), Some(Duration::from_secs(1)));
    }
}
