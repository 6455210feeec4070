//! The warm-up of a worker that was started, for the first time or again: before it serves it runs batches
//! of the sizes at which the model may run, or of 1, 2, 4 ... items where any size may come, so that every
//! size is warm and the adaptive policy knows the curve when the first user comes. A worker that has measured itself needs none.
//!
//! Its batches bypass the batcher, which is only told how long they took; no user, counter or metric
//! ever sees them. It is bounded by the limits of a batch and, where any size may come, in time; a sample
//! that does harm is not tried again. Where items differ in cost and the cost of the sample is unknown, sizes are made
//! warm and nothing is learned.
//!
//! The sample is a file that the model brings, or what a local model makes up. Requests of users are
//! never kept for this. A model without a sample is not warmed up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{BatchId, Config, Event, Request};
use tokio::time::Instant;

use super::intake::Intake;
use crate::admission::Admission;
use crate::call::{CallRoute, HeaderBlock, Input, Parameter};
use crate::local::Decoded;
use crate::pending::{Payload, PendingRequest, SharedId};
use crate::pool::{BatchRun, LoadProgress, WorkerBatch};
use crate::reply::Reply;

/// Where the ids of warm-ups' batches begin; the batcher counts up from 1 and never gets here.
const WARM_UP: u64 = 1 << 63;

/// No batch is begun that would probably end later than this after the worker's first, unless it is of a
/// size that must be warm.
const TIME_MAX: Duration = Duration::from_secs(2);

/// What warm-ups need, and how far they are.
pub(crate) struct WarmUp {
    sample: Sample,
    /// The cost of one item of it, if that is known.
    cost: Option<u64>,
    admission: Arc<Admission>,
    runs: Vec<WarmUpRun>,
}

/// One worker's warm-up.
struct WarmUpRun {
    worker: u32,
    began: Instant,
    /// The sizes that are run, in items.
    sizes: Vec<u32>,
    /// Which of them runs.
    at: usize,
    /// Whether all of them are run, however long it takes.
    exact: bool,
    /// Whether it is the very first, which is slower than any other and teaches nothing.
    first: bool,
}

impl WarmUp {
    pub(crate) fn new(sample: Sample, cost: Option<u64>, admission: Arc<Admission>) -> Self {
        Self { sample, cost, admission, runs: Vec::new() }
    }

    /// The first batch for a worker that has just loaded; none if it should serve at once.
    pub(super) fn begin(&mut self, worker: u32, config: &Config) -> Option<WorkerBatch> {
        let most = self.most(config);
        if most == 0 {
            return None;
        }
        let exact = !config.sizes.is_empty();
        let sizes: Vec<u32> = match exact {
            true => config.sizes.iter().copied().filter(|size| *size <= most).collect(),
            false => doubling(most),
        };
        let first = *sizes.first()?;
        let began = Instant::now();
        self.runs.push(WarmUpRun { worker, began, sizes, at: 0, exact, first: true });
        self.batch(worker, first)
    }

    /// A batch is over: what the batcher learns from it, and the next batch if there is one.
    pub(super) fn next(
        &mut self,
        worker: u32,
        took: BatchRun,
        config: &Config,
    ) -> (Option<Event>, Option<WorkerBatch>) {
        let most = self.most(config);
        let Some(run) = self.runs.iter_mut().find(|run| run.worker == worker) else {
            return (None, None);
        };
        let Some(items) = run.sizes.get(run.at).copied() else { return (None, None) };
        let enough = !run.exact && run.began.elapsed() + 2 * took.compute > TIME_MAX;
        if std::mem::take(&mut run.first) {
            let again = (!enough).then_some(items);
            return (None, again.and_then(|size| self.batch(worker, size)));
        }
        run.at += 1;
        // The limits of a batch may have changed meanwhile.
        let next = run.sizes.get(run.at).copied().filter(|size| !enough && *size <= most);
        let nanos = |time: Duration| time.as_nanos() as u64;
        let (group, exec, prepare) = (self.sample.group, nanos(took.exec), took.prepare.map(nanos));
        let learned = self.cost.map(|cost| {
            let cost = cost.saturating_mul(items.into());
            Event::Measured { group, items, cost, exec, prepare }
        });
        (learned, next.and_then(|size| self.batch(worker, size)))
    }

    /// How far a worker is that must run all of its sizes.
    pub(super) fn progress(&self, worker: u32) -> Option<LoadProgress> {
        let run = self.runs.iter().find(|run| run.worker == worker && run.exact)?;
        let size = run.sizes.get(run.at.checked_sub(1)?)?;
        let what = format!("ran batch size {size}");
        Some(LoadProgress { done: run.at as u32, of: run.sizes.len() as u32, what })
    }

    /// Ends a worker's warm-up; false if it had none.
    pub(super) fn forget(&mut self, worker: u32) -> bool {
        let before = self.runs.len();
        self.runs.retain(|run| run.worker != worker);
        self.runs.len() < before
    }

    /// The largest batch of samples that the model may be given; 0 if not even one, or if there is a
    /// limit and it is unknown how soon it is reached.
    fn most(&self, config: &Config) -> u32 {
        let within = match (self.cost, config.max_cost) {
            (_, u64::MAX) => u64::MAX,
            (Some(cost), most) => most / cost.max(1),
            (None, _) => 0,
        };
        u32::try_from(within).unwrap_or(u32::MAX).min(config.max_items)
    }

    fn batch(&self, worker: u32, size: u32) -> Option<WorkerBatch> {
        let now = Instant::now();
        let request = |_| {
            let permit = self.admission.admit(1, 0).ok()?;
            let (reply, _unread) = Reply::new();
            let facts = Request::new(SharedId::UNSET);
            Some(PendingRequest::new(facts, self.sample.payload.clone(), now, reply, Some(permit)))
        };
        let requests = (0..size).map(request).collect::<Option<_>>()?;
        let id = BatchId(WARM_UP | u64::from(worker));
        Some(WorkerBatch { worker, warms_up: true, ..WorkerBatch::full(id, requests, size) })
    }
}

/// 1, 2, 4 and so on, up to the largest batch and with it.
fn doubling(most: u32) -> Vec<u32> {
    let sizes = std::iter::successors(Some(1_u32), |size| size.checked_mul(2));
    sizes.take_while(|size| *size < most).chain([most]).collect()
}

/// The name of the file, in front of its extension.
const STEM: &str = "jitney_sample";

/// The largest sample: as many of them as fit into a batch are held at a time.
const BYTES_MAX: u64 = 1 << 20;

/// One request's worth of input, to be had again and again.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    payload: Payload,
    pub(crate) group: u16,
    /// How long it is, where that is seen.
    pub(crate) length: Option<u64>,
}

impl Sample {
    /// The model's sample, if there is one.
    pub(crate) fn of(intake: &Intake, dir: Option<&Path>) -> Option<Self> {
        match intake {
            Intake::Local(model, _) => {
                let Decoded { input, group, length, .. } = model.sample()?;
                Some(Self { payload: Payload::Decoded(input, "".into(), None), group, length })
            }
            // Nothing says for which endpoint the file would be.
            Intake::Defined(endpoints) if endpoints.api.endpoints.len() > 1 => None,
            Intake::Python | Intake::Defined(_) => {
                Some(Self { payload: Payload::Raw(Box::new(read(dir?)?)), group: 0, length: None })
            }
        }
    }

    /// The bytes of its values, where they are such as clients send: zeros are not.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.payload.raw().map(Input::value_bytes)
    }
}

/// `jitney_sample.json`, `.jpg` and so on at the top of the model's directory.
fn read(dir: &Path) -> Option<Input> {
    let files = dir.read_dir().ok()?.flatten().map(|entry| entry.path());
    let path = files
        .into_iter()
        .find(|path| path.is_file() && path.file_stem().is_some_and(|stem| stem == STEM))?;
    if path.metadata().ok()?.len() > BYTES_MAX {
        tracing::warn!(path = %path.display(), "sample is larger than {BYTES_MAX} bytes, not used");
        return None;
    }
    let content_type = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => "application/json",
        Some("txt") => "text/plain",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    };
    let value = std::fs::read(&path).ok()?.into();
    let parameter = Parameter { name: "body".into(), content_type: content_type.into(), value };
    let (id, headers) = ("jitney-warm-up".to_owned(), HeaderBlock::new());
    Some(Input {
        id,
        headers,
        route: CallRoute::default(),
        parameters: vec![parameter],
        tensors: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionLimits;

    fn warm_up(cost: Option<u64>) -> WarmUp {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("jitney_sample.json"), b"[1]").expect("a file");
        let sample = Sample::of(&Intake::Python, Some(dir.path())).expect("a sample");
        WarmUp::new(sample, cost, Admission::new(AdmissionLimits::default()))
    }

    fn config(max_items: u32, max_cost: u64) -> Config {
        Config { max_items, max_cost, ..Config::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn sizes_double_up_to_the_largest_batch_and_the_first_run_teaches_nothing() {
        let (mut warm_up, config) = (warm_up(Some(1)), config(6, u64::MAX));
        let mut batch = warm_up.begin(9, &config);
        let (mut sizes, mut learned) = (Vec::new(), 0);
        while let Some(running) = batch.take() {
            assert!(running.warms_up && running.worker == 9);
            sizes.push(running.requests.len());
            let (event, next) = warm_up.next(9, run(1), &config);
            assert_eq!(warm_up.progress(9), None, "any size may come");
            learned += usize::from(event.is_some());
            batch = next;
        }
        assert_eq!((sizes, learned), (vec![1, 1, 2, 4, 6], 4));
        assert!(warm_up.forget(9) && !warm_up.forget(9));
        assert!(
            warm_up.begin(9, &config).is_some(),
            "a worker that is started again is warmed again"
        );
    }

    fn run(millis: u64) -> BatchRun {
        let time = Duration::from_millis(millis);
        BatchRun { compute: time, exec: time, ..BatchRun::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn exactly_the_allowed_sizes_are_run_however_long_that_takes() {
        let config = Config { sizes: vec![2, 3, 16], ..config(16, u64::MAX) };
        let mut warm_up = warm_up(Some(1));
        let mut batch = warm_up.begin(9, &config);
        let (mut sizes, mut steps) = (Vec::new(), Vec::new());
        while let Some(running) = batch.take() {
            sizes.push(running.requests.len());
            tokio::time::advance(Duration::from_secs(30)).await;
            batch = warm_up.next(9, run(30_000), &config).1;
            steps.extend(warm_up.progress(9).map(|step| step.to_string()));
        }
        assert_eq!(sizes, [2, 2, 3, 16]);
        let told =
            ["ran batch size 2, 1 of 3", "ran batch size 3, 2 of 3", "ran batch size 16, 3 of 3"];
        assert_eq!(steps, told);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_cost_under_a_limit_warms_nothing_up() {
        assert!(warm_up(None).begin(1, &config(4, 100)).is_none());
        assert!(warm_up(None).begin(1, &config(4, u64::MAX)).is_some());
        assert!(warm_up(Some(200)).begin(1, &config(4, 100)).is_none(), "not even one fits");
    }

    #[test]
    fn a_file_of_the_model_is_its_sample() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Sample::of(&Intake::Python, Some(dir.path())).is_none(), "no sample, no warm-up");
        std::fs::write(dir.path().join("jitney_sample.json"), b"[1]").unwrap();
        let sample = Sample::of(&Intake::Python, Some(dir.path())).unwrap();
        let Payload::Raw(input) = sample.payload.clone() else { panic!("raw") };
        assert_eq!(input.parameters[0].content_type, "application/json");
        assert_eq!(&input.parameters[0].value[..], b"[1]");
        assert_eq!(sample.bytes(), Some(3));
    }
}
