//! What the log says about a worker that exits and comes back, in the words that TorchServe's users
//! and their alarms look for. Nothing here decides anything.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::outcome::LaunchError;

/// What happened to a worker since its last batch that went well.
#[derive(Debug, Default)]
pub(crate) struct RecoveryLog {
    /// It is down, or came up and has not served yet.
    down: bool,
    /// Times in a row that it left a batch unanswered.
    unanswered: u32,
}

impl RecoveryLog {
    /// It answered a batch.
    pub(crate) fn served(&mut self) {
        self.unanswered = 0;
    }

    /// It exited, perhaps with batches.
    pub(crate) fn exited(&mut self, worker: u32, at_work: bool) {
        if at_work {
            self.unanswered += 1;
            tracing::info!("Number or consecutive unsuccessful inference {}", self.unanswered);
        }
        tracing::info!("{worker} Worker disconnected. WORKER_MODEL_LOADED");
    }

    /// It did not come up.
    pub(crate) fn failed(&self, worker: u32, error: &LaunchError) {
        if let LaunchError::TimedOut { .. } = error {
            tracing::error!(
                "Backend worker error\norg.pytorch.serve.wlm.WorkerInitializationException: \
                 Backend worker did not respond in given time"
            );
        }
        tracing::info!("{worker} Worker disconnected. WORKER_STARTED");
    }

    /// It will be started again after a pause.
    pub(crate) fn retry(&mut self, worker: u32, pause: Duration) {
        if self.down {
            tracing::warn!("Auto recovery failed again");
        } else {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            tracing::info!("Auto recovery start timestamp: {}", since.as_millis());
        }
        self.down = true;
        tracing::info!("Retry worker: {worker} in {} seconds.", pause.as_secs());
    }

    /// It is up.
    pub(crate) fn up(&mut self) {
        if std::mem::take(&mut self.down) {
            tracing::info!("Auto recovery succeeded, reset recoveryStartTS");
        }
    }
}
