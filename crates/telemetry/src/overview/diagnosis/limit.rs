//! What a version's workers are short of, as the figures of the machine, its GPUs and the workers show it, and
//! what to do about that.

use super::traffic::TrafficBetween;
use super::version::VersionView;
use super::words::percent;
use crate::overview::document::OverviewDocument;
use crate::overview::model_entry::ModelOverview;
use crate::overview::worker_entry::WorkerOverview;

/// Percent: above, the processors or a GPU have no room; processors for which workers wait, already earlier.
const FULL: f64 = 95.0;
const FULL_IF_STARVED: f64 = 75.0;
const GPU_FULL: f64 = 90.0;
/// The share of the time of batches: workers that neither compute nor wait for a processor for longer wait for
/// something else.
const ELSEWHERE: f64 = 0.5;
/// On a full machine the server waits for a processor too, and up to so long of a batch's time is its own.
const SERVER_MS: f64 = 200.0;
/// The same: workers that wait longer for a processor lack one.
const STARVED: f64 = 0.25;
/// What is known of the processors is of the last two samples, one of which may be late.
const LATELY_MS: u64 = 4_500;

/// What is short.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Limit {
    /// A GPU, which so many workers share.
    Gpu { id: u32, busy: f64, workers: usize },
    /// Something that is neither a processor nor a GPU.
    SomethingElse { worker: f64 },
    /// Processors, which another model of this server uses.
    OtherModel { name: String, used: f64, machine: f64 },
    /// Processors, which other programs use.
    OtherPrograms { machine: f64, own: f64 },
    /// Processors, which this server and its workers use.
    Processors { machine: f64 },
    /// Processors, although the machine has some: a limit of the container.
    Container { waited: f64, machine: f64 },
    /// Workers: the machine has room for more.
    Workers { worker: f64, machine: f64 },
    /// The figures do not tell.
    Unknown,
}

impl Limit {
    pub(super) fn of(view: &VersionView<'_>) -> Self {
        let (model, document) = (view.model, view.document);
        if let Some(gpu) = busy_gpu(model, document) {
            return gpu;
        }
        let ready = || model.workers.iter().filter(|worker| worker.state == "ready");
        let worker = mean(ready().filter_map(|worker| worker.cpu_percent));
        let machine = document.machine.as_ref();
        let (Some(worker), Some(machine), Some(processors)) =
            (worker, machine.and_then(|it| it.cpu_percent), machine.map(|it| it.processors))
        else {
            return Self::Unknown;
        };
        let waited = mean(ready().filter_map(|worker| worker.cpu_wait_percent));
        let BatchTime { percent: busy, batch_ms } = BatchTime::lately(view);
        // Where it is not known, who waits on a full machine waits for a processor.
        let waited = waited.unwrap_or(if machine > FULL { busy } else { 0.0 });
        let starved = waited > busy * STARVED;
        let full = machine > if starved { FULL_IF_STARVED } else { FULL };
        let elsewhere = (busy - worker - waited) / busy.max(1e-9);
        let something = elsewhere * batch_ms > if full { SERVER_MS } else { 0.0 };
        match () {
            () if something && elsewhere > ELSEWHERE => Self::SomethingElse { worker },
            () if full => Self::who_fills(view, machine, f64::from(processors.max(1))),
            () if starved && waited > 100.0 * STARVED => Self::Container { waited, machine },
            () => Self::Workers { worker, machine },
        }
    }

    /// Who uses the processors of a full machine, of which it has so many.
    fn who_fills(view: &VersionView<'_>, machine: f64, processors: f64) -> Self {
        let document = view.document;
        let own = own_percent(document) / processors;
        if own < machine / 2.0 {
            return Self::OtherPrograms { machine, own };
        }
        let used = |model: &ModelOverview| cpu_percent(&model.workers) / processors;
        let most = document.models.iter().max_by(|a, b| used(a).total_cmp(&used(b)));
        match most.filter(|most| most.key() != view.key && used(most) > own / 2.0) {
            Some(most) => Self::OtherModel { name: view.of(most).name, used: used(most), machine },
            None => Self::Processors { machine },
        }
    }

    /// What stands behind the sentence that a model is slower.
    pub(super) fn clause(&self) -> String {
        match self {
            Self::Gpu { id, busy, .. } => format!("; GPU {id} is {} busy", of_hundred(*busy)),
            Self::OtherModel { name, .. } => format!("; {name} uses the processors"),
            Self::OtherPrograms { .. } => "; other programs use the processors".to_owned(),
            Self::Processors { machine } => {
                format!("; the processors are {} busy", of_hundred(*machine))
            }
            Self::Container { .. } => "; its workers wait for a processor".to_owned(),
            Self::SomethingElse { .. } | Self::Workers { .. } | Self::Unknown => String::new(),
        }
    }

    /// Whether more workers answer more.
    pub(super) fn more_workers_help(&self) -> bool {
        matches!(self, Self::SomethingElse { .. } | Self::Workers { .. } | Self::Unknown)
    }

    /// What to do where a model has become slower.
    pub(super) fn advice_if_slower(&self) -> String {
        match self {
            Self::SomethingElse { worker } => format!(
                "Its workers use {} of a processor: the model waits for something else, such as a file, a \
                 network or a lock.",
                of_hundred(*worker)
            ),
            Self::Workers { worker, .. } => format!(
                "Its workers use {} of a processor each: the model computes more than before. Look for larger \
                 inputs, and for other code or files.",
                of_hundred(*worker)
            ),
            Self::Unknown => "Look for what changed: inputs, code, files, the device.".to_owned(),
            Self::Gpu { workers, .. } if *workers > 1 => {
                format!("{workers} workers share this GPU: run fewer there, or move a model.")
            }
            Self::Gpu { .. }
            | Self::OtherModel { .. }
            | Self::OtherPrograms { .. }
            | Self::Processors { .. }
            | Self::Container { .. } => self.advice(),
        }
    }

    /// What to do where more comes than is served.
    pub(super) fn advice(&self) -> String {
        match self {
            Self::Gpu { id, busy, .. } => format!(
                "GPU {id} is {} busy: more workers on it would not help. Send less, or add a GPU.",
                of_hundred(*busy)
            ),
            Self::SomethingElse { worker } => format!(
                "Its workers use {} of a processor: they wait for something else, so more workers answer more.",
                of_hundred(*worker)
            ),
            Self::OtherModel { name, used, machine } => format!(
                "The processors are {} busy, and {name} uses {} of them: give it fewer workers, send it less, or \
                 move it to another machine.",
                of_hundred(*machine),
                of_hundred(*used)
            ),
            Self::OtherPrograms { machine, own } => format!(
                "The processors are {} busy, and this server with its workers uses {} of them: end the other \
                 programs, or move them.",
                of_hundred(*machine),
                of_hundred(*own)
            ),
            Self::Processors { machine } => format!(
                "The processors are {} busy: more workers would not help. Send less, or add a machine.",
                of_hundred(*machine)
            ),
            Self::Container { waited, machine } => format!(
                "Its workers wait for a processor {} of the time, while the machine's are {} busy: give the \
                 container more processors.",
                of_hundred(*waited),
                of_hundred(*machine)
            ),
            Self::Workers { machine, .. } => format!(
                "Add workers, since the processors are {} busy, or send less; the rest is answered in time.",
                of_hundred(*machine)
            ),
            Self::Unknown => {
                "Send less, or add workers if the machine has room; the rest is answered in time."
                    .to_owned()
            }
        }
    }
}

/// The GPU of the version's workers that has no room.
fn busy_gpu(model: &ModelOverview, document: &OverviewDocument) -> Option<Limit> {
    let own = |id| model.workers.iter().any(|worker| worker.gpu == Some(id));
    let gpus = document.gpus.iter().filter(|gpu| own(gpu.id));
    let busy = gpus.filter_map(|gpu| Some((gpu.id, gpu.utilization_percent?)));
    let (id, busy) =
        busy.filter(|(_, busy)| *busy > GPU_FULL).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let workers = all_workers(document).filter(|worker| worker.gpu == Some(id)).count();
    Some(Limit::Gpu { id, busy, workers })
}

/// The batches of a version's workers, lately.
pub(super) struct BatchTime {
    /// Of their time in which workers had one.
    pub(super) percent: f64,
    /// How long one took.
    batch_ms: f64,
}

impl BatchTime {
    pub(super) fn lately(view: &VersionView<'_>) -> Self {
        let from = view.time.saturating_sub(LATELY_MS);
        let lately = TrafficBetween::read(view.samples(), &view.key, from, view.time);
        let workers = view.model.workers_ready().max(1) as f64;
        // A batch counts when it ends: where none did, those that run do so all the time.
        let running = if view.model.running > 0 { 100.0 } else { 0.0 };
        let none = Self { percent: running, batch_ms: f64::INFINITY };
        lately.filter(|lately| lately.batches > 0.0).map_or(none, |lately| Self {
            percent: (100.0 * lately.compute_seconds / lately.seconds / workers).min(100.0),
            batch_ms: 1e3 * lately.compute_seconds / lately.batches,
        })
    }
}

/// Percent of one processor that the server and all its workers use.
fn own_percent(document: &OverviewDocument) -> f64 {
    cpu_percent(all_workers(document)) + document.server.cpu_percent.unwrap_or(0.0)
}

fn cpu_percent<'a>(workers: impl IntoIterator<Item = &'a WorkerOverview>) -> f64 {
    workers.into_iter().filter_map(|worker| worker.cpu_percent).sum()
}

fn all_workers(document: &OverviewDocument) -> impl Iterator<Item = &WorkerOverview> {
    document.models.iter().flat_map(|model| &model.workers)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then_some(sum / count)
}

fn of_hundred(value: f64) -> String {
    percent(value / 100.0)
}
