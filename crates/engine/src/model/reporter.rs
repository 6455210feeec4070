//! Says what happens to a model version: to the log, and to the observer.
//!
//! The task decides, and tells this file afterwards. What is noticed only over time is remembered here, so that the log
//! says it once: workers that end again and again, the same error of every load, requests that wait for long. Nothing
//! here changes what is done.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::Policy;
use tokio::time::Instant;

use super::capacity::CapacityReport;
use super::incidents::POISON_MEMORY;
use crate::error::CallError;
use crate::observer::{BatchEnded, BatchFinished, ModelTag, Observer};
use crate::outcome::{Cause, LaunchError, WorkerExit, shown_bytes};
use crate::pending::ShownIds;
use crate::pool::{BatchRun, LoadProgress, ReplaceReason, WorkerBatch};

/// How often the progress of workers that load is logged.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What is said of one model version.
pub(super) struct Reporter {
    pub(super) tag: Arc<ModelTag>,
    observer: Arc<dyn Observer>,
    /// Whether the observer wants to be told of batches with marked requests.
    marks: bool,
    crash_loops: CrashLoops,
    overload: OverloadNotice,
    /// The error of the last load, if it failed: its traceback was logged.
    known_failure: String,
    /// When the progress of a worker that loads was last logged.
    progress_logged: Option<Instant>,
}

impl Reporter {
    pub(super) fn new(tag: Arc<ModelTag>, observer: Arc<dyn Observer>) -> Self {
        Self {
            tag,
            marks: observer.wants_marks(),
            observer,
            crash_loops: CrashLoops::default(),
            overload: OverloadNotice::default(),
            known_failure: String::new(),
            progress_logged: None,
        }
    }

    /// A worker is so far with loading, or with warming up.
    pub(super) fn progress(&mut self, worker: u32, step: &LoadProgress) {
        let now = Instant::now();
        let recent = |at: Instant| now.duration_since(at) < PROGRESS_EVERY;
        if step.is_last() || !self.progress_logged.is_some_and(recent) {
            self.progress_logged = Some(now);
            self.note(worker, &format!("loading: {step}"));
        }
    }

    /// A worker has loaded its model.
    pub(super) fn ready(&mut self, worker: u32, took: Duration) {
        self.note(worker, "worker is ready");
        self.observer.worker_loaded(&self.tag, worker, took);
        self.known_failure.clear();
    }

    /// A sentence about a worker.
    pub(super) fn note(&self, worker: u32, note: &str) {
        tracing::info!(model = self.tag.name, version = self.tag.version, worker, "{note}");
    }

    /// A worker could not load its model.
    pub(super) fn load_failed(
        &mut self,
        worker: u32,
        error: &LaunchError,
        retry: Option<Duration>,
    ) {
        let ModelTag { name: model, version, .. } = &*self.tag;
        let text = error.to_string();
        if self.known_failure != text {
            // As lines of the worker's own output.
            for line in error.traceback().lines() {
                let stream = "stdout";
                tracing::info!(target: "jitney::worker_output", model, version, worker, stream, "{line}");
            }
            self.known_failure.clone_from(&text);
        }
        let next = match retry {
            Some(pause) if pause.is_zero() => "trying again at once".to_owned(),
            Some(pause) => format!("trying again in {} s", pause.as_secs()),
            None => "not tried again".to_owned(),
        };
        let above = if error.traceback().is_empty() { "" } else { "; traceback above" };
        tracing::error!(
            model,
            version,
            worker,
            "worker {worker} of {model} could not load: {error} ({next}{above})"
        );
        if let Some(pause) = retry {
            self.log_crash_loop(worker, &text, pause);
        }
    }

    /// A worker is not started any more.
    pub(super) fn given_up(&self, worker: u32, retry_window: Duration) {
        let ModelTag { name: model, version, .. } = &*self.tag;
        let seconds = retry_window.as_secs();
        tracing::error!(
            model,
            version,
            worker,
            "worker {worker} of {model} is given up: it did not come up within \
             max_retry_timeout ({seconds} s)"
        );
    }

    /// The number of workers follows the load.
    pub(super) fn scaled(&self, report: &CapacityReport) {
        let ModelTag { name: model, version, .. } = &*self.tag;
        tracing::info!(model, version, "{model}: {report}");
    }

    /// A worker is replaced.
    pub(super) fn worn(&self, worker: u32, reason: ReplaceReason) {
        let ModelTag { name: model, version, .. } = &*self.tag;
        let why = match reason {
            ReplaceReason::Requests(count) => {
                format!("it has run {count} requests (max_requests_per_worker)")
            }
            ReplaceReason::GpuGone(gpu) => format!("GPU {gpu} is gone"),
            ReplaceReason::Memory(bytes) => {
                format!("it holds {} and comes near its memory_limit", shown_bytes(bytes))
            }
        };
        tracing::info!(model, version, worker, "worker {worker} of {model} is replaced: {why}");
    }

    /// A worker does not come again.
    pub(super) fn stopped(&mut self, worker: u32) {
        self.crash_loops.0.remove(&worker);
    }

    /// Says how a worker ended, and when it is started again.
    pub(super) fn exited(
        &mut self,
        worker: u32,
        batches: &[WorkerBatch],
        exit: WorkerExit,
        restart: Duration,
    ) {
        let requests: usize = batches.iter().map(|batch| batch.requests.len()).sum();
        let (model, version, again) = (&self.tag.name, &self.tag.version, again(restart));
        tracing::warn!(
            model,
            version,
            worker,
            requests,
            "worker exit: {exit}; it is started again {again}"
        );
        self.log_crash_loop(worker, &exit.to_string(), restart);
    }

    /// Says that a worker ends again and again, if it does.
    fn log_crash_loop(&mut self, worker: u32, error: &str, pause: Duration) {
        if let Some(ends) = self.crash_loops.ended(worker, Instant::now()) {
            let (model, version) = (&self.tag.name, &self.tag.version);
            tracing::error!(
                model,
                version,
                worker,
                ends,
                "crash loop: worker {worker} of {model} has ended {ends} times within a minute; the \
                 next start is {}; last error: {error}",
                again(pause)
            );
        }
    }

    /// The sample input made a worker exit.
    pub(super) fn sample_ended(&self, worker: u32) {
        tracing::warn!(
            model = self.tag.name,
            version = self.tag.version,
            worker,
            "the worker exited on the model's sample input, which is not used any more"
        );
    }

    /// The model failed on its sample input.
    pub(super) fn sample_failed(&self, error: &str) {
        tracing::warn!(
            model = self.tag.name,
            version = self.tag.version,
            error,
            "the model failed on its sample input at start; requests will probably fail too"
        );
    }

    /// A request has made several workers exit.
    pub(super) fn poisonous(&self, request_id: &str) {
        tracing::error!(
            model = self.tag.name,
            version = self.tag.version,
            request_id,
            "the request has made workers exit; the same request is rejected for {} minutes",
            POISON_MEMORY.as_secs() / 60
        );
    }

    /// A batch was answered.
    pub(super) fn finished(&mut self, batch: &WorkerBatch, run: &BatchRun, policy: &Policy) {
        self.ended(batch, Some(run), None);
        self.observer.batch_finished(&BatchFinished {
            model: &self.tag,
            compute: run.compute,
            handling: batch.dispatched.elapsed().saturating_sub(run.compute),
            requests: &batch.requests,
        });
        if let Some(notice) = self.overload.after(policy, batch, run.compute) {
            tracing::warn!(model = self.tag.name, version = self.tag.version, "{notice}");
        }
    }

    /// A batch failed as a whole.
    pub(super) fn failed(&self, batch: &WorkerBatch, run: &BatchRun, error: &CallError) {
        let ModelTag { name: model, version, .. } = &*self.tag;
        let WorkerBatch { requests, attempt, worker, .. } = batch;
        let (count, request_id, message) = (requests.len(), ShownIds(requests), error.to_string());
        let cause = if let CallError::Model(failure) = error { Some(failure.cause) } else { None };
        let error = &message;
        match cause {
            None | Some(Cause::Prediction | Cause::Stated) => tracing::debug!(
                model, version, worker, requests = count, %request_id, attempt, error,
                "prediction error"
            ),
            Some(cause) => tracing::warn!(
                model, version, worker, requests = count, %request_id, attempt, %cause, error,
                "batch failed"
            ),
        }
        self.ended(batch, Some(run), Some(error));
    }

    /// The batches of a worker are over because it has exited.
    pub(super) fn lost(&self, batches: &[WorkerBatch], exit: WorkerExit) {
        if self.marks {
            let error = exit.to_string();
            batches.iter().for_each(|batch| self.ended(batch, None, Some(&error)));
        }
    }

    /// A batch is over. The observer hears of it if it has marked requests.
    pub(super) fn ended(&self, batch: &WorkerBatch, run: Option<&BatchRun>, error: Option<&str>) {
        if !self.marks || batch.requests.iter().all(|request| request.mark.is_none()) {
            return;
        }
        self.observer.batch_ended(&BatchEnded {
            model: &self.tag,
            worker: batch.worker,
            batch: batch.id.0,
            items: batch.items,
            items_max: batch.items_max,
            reason: batch.reason,
            attempt: batch.attempt,
            dispatched: batch.dispatched,
            predicted: batch.predicted,
            compute: run.map(|run| run.compute),
            times: run.and_then(|run| run.times.as_deref()).copied().unwrap_or_default(),
            error,
            requests: &batch.requests,
        });
    }
}

/// So many ends within this time are a loop; it is said again after as long.
const ENDS: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);

/// The most ends that are remembered: no more fit into the time, since starts have pauses.
const ENDS_MAX: usize = 100;

/// The ends of the workers of a model version.
#[derive(Debug, Default)]
struct CrashLoops(BTreeMap<u32, RecentEnds>);

#[derive(Debug, Default)]
struct RecentEnds {
    /// Within the window, the oldest first.
    at: VecDeque<Instant>,
    told: Option<Instant>,
}

impl CrashLoops {
    /// A worker has ended, or could not load: how often within a minute, where that is to be said.
    fn ended(&mut self, worker: u32, now: Instant) -> Option<usize> {
        let RecentEnds { at, told } = self.0.entry(worker).or_default();
        let recent = |then: Instant| now.duration_since(then) < WINDOW;
        while at.len() >= ENDS_MAX || at.front().is_some_and(|then| !recent(*then)) {
            at.pop_front();
        }
        at.push_back(now);
        if at.len() < ENDS || told.is_some_and(recent) {
            return None;
        }
        *told = Some(now);
        Some(at.len())
    }
}

/// When something is tried again, in words.
fn again(pause: Duration) -> String {
    match pause.as_secs_f64() {
        seconds if seconds < 0.05 => "at once".to_owned(),
        seconds => format!("in {} s", (seconds * 10.0).round() / 10.0),
    }
}

/// A wait is long that lasts this many times as long as the batch ran, beyond the window.
const LONG_WAIT: u32 = 8;
/// So many batches in a row with a long wait are an overload and no hiccup.
const LONG_WAITS: u32 = 16;

/// What is known of the load of one model version.
#[derive(Debug, Default)]
struct OverloadNotice {
    /// Batches with a long wait, one after another.
    long_waits: u32,
    /// Whether it was logged.
    logged: bool,
}

impl OverloadNotice {
    /// What is to be logged after this batch, if anything.
    fn after(&mut self, policy: &Policy, batch: &WorkerBatch, compute: Duration) -> Option<String> {
        let Policy::Window { delay } = policy else { return None };
        if self.logged {
            return None;
        }
        let oldest = batch.requests.first()?;
        let (wait, delay) =
            (batch.dispatched.duration_since(oldest.admitted), Duration::from_nanos(*delay));
        let long = wait > delay + compute * LONG_WAIT;
        self.long_waits = if long { self.long_waits + 1 } else { 0 };
        self.logged = self.long_waits >= LONG_WAITS;
        self.logged.then(|| sentence(wait, compute, objective(delay, compute)))
    }
}

/// A round number of milliseconds that leaves time for the window and a few batches.
fn objective(delay: Duration, compute: Duration) -> u128 {
    let least = (delay + compute * 4).as_millis() + 1;
    let tens = (0..).map(|power| 10_u128.saturating_pow(power));
    tens.flat_map(|ten| [1, 2, 5].map(|digit| digit * ten)).find(|it| *it >= least).unwrap_or(least)
}

fn sentence(wait: Duration, compute: Duration, objective: u128) -> String {
    let (wait, compute) = (wait.as_millis(), compute.as_secs_f64() * 1e3);
    format!(
        "requests wait {wait} ms for a batch that runs {compute:.1} ms: more of them come than the \
         workers can serve, and under a window without a latency target all of them wait; with \
         max_latency_ms={objective}, for example, those that could not be answered within \
         {objective} ms would be rejected at once, and the others would be answered in time"
    )
}

#[cfg(test)]
mod tests {
    use jitney_batcher::{BatchId, Request, RequestId};
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::pending::{Payload, PendingRequest};
    use crate::reply::Reply;
    use crate::testkit::call;

    const WINDOWED: Policy = Policy::Window { delay: 10_000_000 };
    const COMPUTE: Duration = Duration::from_millis(11);

    /// What is said after so many batches whose oldest request has waited so long.
    async fn said(policy: Policy, waits_ms: impl IntoIterator<Item = u64>) -> Vec<String> {
        let mut notice = OverloadNotice::default();
        let mut said = Vec::new();
        for wait in waits_ms {
            let (admitted, facts) = (Instant::now(), Request::new(RequestId::new(0, 0)));
            advance(Duration::from_millis(wait)).await;
            let payload = Payload::Raw(call("a").input);
            let request = PendingRequest::new(facts, payload, admitted, Reply::new().0, None);
            let batch = WorkerBatch::full(BatchId(1), vec![request], 1);
            said.extend(notice.after(&policy, &batch, COMPUTE));
        }
        said
    }

    #[tokio::test(start_paused = true)]
    async fn long_waits_in_a_row_are_remarked_on_once() {
        let said = said(WINDOWED, [400; 40]).await;
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("wait 400 ms for a batch that runs 11.0 ms"), "{}", said[0]);
        assert!(said[0].contains("max_latency_ms=100,"), "{}", said[0]);
    }

    #[tokio::test(start_paused = true)]
    async fn short_waits_hiccups_and_other_policies_are_not() {
        assert_eq!(said(WINDOWED, [90; 40]).await, [""; 0]);
        assert_eq!(said(WINDOWED, [400, 400, 400, 20].repeat(20)).await, [""; 0]);
        assert_eq!(said(Policy::Opportunistic, [400; 40]).await, [""; 0]);
    }

    #[test]
    fn the_example_is_a_round_number_with_room_for_the_window_and_some_batches() {
        let millis = Duration::from_millis;
        let example = |delay, compute| objective(millis(delay), millis(compute));
        assert_eq!([example(10, 11), example(100, 50), example(0, 0)], [100, 500, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_third_end_within_a_minute_is_a_loop_and_said_once_a_minute() {
        let mut loops = CrashLoops::default();
        let mut said = Vec::new();
        for second in 0..130 {
            said.extend(loops.ended(1, Instant::now()).map(|ends| (second, ends)));
            assert_eq!(loops.ended(2, Instant::now() - WINDOW * second), None, "each by itself");
            loops.0.remove(&2);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(said, [(2, 3), (62, 60), (122, 60)]);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_that_are_far_apart_are_none() {
        let mut loops = CrashLoops::default();
        for _ in 0..10 {
            assert_eq!(loops.ended(1, Instant::now()), None);
            tokio::time::advance(WINDOW / 2).await;
        }
    }

    #[test]
    fn a_pause_is_told_in_words() {
        let told = [0, 1000, 2600].map(|millis| again(Duration::from_millis(millis)));
        assert_eq!(told, ["at once", "in 1 s", "in 2.6 s"]);
    }
}
