//! The messages of requests that found no loaded worker, or lost theirs. TorchServe's messages leave out
//! why; under its dialect the reason stands beside them.

use std::time::Duration;

use jitney_engine::error::{LoadingWait, WaitLimit};
use jitney_engine::outcome::{LaunchError, LoadFailure, WorkerExit};
use jitney_settings::Dialect;

use super::{ErrorCode, FailedCall, Problem};

impl FailedCall<'_> {
    /// No worker could load the model.
    pub(super) fn not_loaded(&self, failure: &LoadFailure) -> Problem {
        if let LaunchError::NoRoom { .. } = failure.error {
            let (model, why) = (self.model, &failure.error);
            let message =
                format!("There is no memory for model \"{model}\": {why}. [reason: memory]");
            return Problem::new(ErrorCode::LoadOutOfMemory, message);
        }
        let why = failure.to_string();
        let mut problem = match self.dialect {
            Dialect::TorchServe => {
                let problem = Problem::new(ErrorCode::NoWorker, self.no_worker());
                Problem { reason: Some(why), ..problem }
            }
            Dialect::Jitney => {
                let (model, why) = (self.model, why.trim_end_matches('.'));
                let message = format!(
                    "Model \"{model}\" has no worker: {why}. See the log, or GET /models/{model}."
                );
                Problem::new(ErrorCode::NoWorker, message)
            }
        };
        problem.retry_after = failure.retry_after().map(|wait| wait.max(Duration::from_secs(1)));
        problem
    }

    /// No worker had loaded the model before the wait was over.
    pub(super) fn loading(&self, wait: LoadingWait) -> Problem {
        let LoadingWait { wanted, limit, ready_in, at_once } = wait;
        let limit = match limit {
            WaitLimit::Deadline(_) => "the request's deadline".to_owned(),
            WaitLimit::MaxLatency(time) => format!("its max_latency_ms of {}", time.as_millis()),
            WaitLimit::ClientTimeout(time) => {
                format!("its client_timeout of {} ms", time.as_millis())
            }
            WaitLimit::StartupWait(time) => format!("its startup_wait of {} s", time.as_secs()),
        };
        let ready_in = ready_in.unwrap_or_default();
        let passes = match at_once {
            true => {
                format!("passes before, as the load takes {:.1} s more", ready_in.as_secs_f64())
            }
            false => "has passed".to_owned(),
        };
        let text = format!(" is still loading (0 of {wanted} workers ready); {limit} {passes}");
        let mut problem = Problem::new(ErrorCode::NoWorker, self.message(&text, "loading"));
        problem.retry_after = Some(ready_in.max(Duration::from_secs(1)));
        problem
    }

    /// The worker exited while it ran the request.
    pub(super) fn worker_exited(&self, exit: WorkerExit) -> Problem {
        let code = match (exit, self.dialect) {
            (WorkerExit::OutOfMemory { .. }, Dialect::Jitney) => ErrorCode::OutOfMemory,
            _ if exit.is_killed() => ErrorCode::WorkerKilled,
            _ => ErrorCode::WorkerDied,
        };
        let why = match exit {
            WorkerExit::TimedOut { .. } => {
                format!("The batch {exit} and its worker was restarted.")
            }
            WorkerExit::Ended { .. }
            | WorkerExit::OutOfMemory { .. }
            | WorkerExit::KilledForMemory { .. }
            | WorkerExit::BrokeProtocol
            | WorkerExit::Lost => {
                format!("The worker ended while it ran the request ({exit}) and was restarted.")
            }
        };
        match self.dialect {
            Dialect::TorchServe => {
                Problem { reason: Some(why), ..Problem::new(code, "Worker died.") }
            }
            Dialect::Jitney => Problem::new(code, why),
        }
    }
}
