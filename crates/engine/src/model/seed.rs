//! The task of a model version before there is one.
//!
//! It begins with the first thing that it is told. A server may know thousands of models that nobody asks for: each of
//! them has its name, its settings and this, and neither a task nor channels nor tables.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jitney_batcher::Actions;
use jitney_settings::SettingSource;
use jitney_settings::model::{IDLE, MAX_REQUESTS_PER_WORKER, MEMORY_LIMIT};
use tokio::sync::{mpsc, oneshot};

use super::budget::MemoryBudget;
use super::budget_model::BudgetTerms;
use super::budgeted_launcher::BudgetedLauncher;
use super::lifetime::StartupWait;
use super::messages::{ControlMessage, RequestMessage};
use super::reporter::Reporter;
use super::requests::{RequestTable, SequenceRequests};
use super::scheduler::{ModelClock, ModelScheduler};
use super::sequence::KeptSequences;
use super::state::ModelState;
use super::task::Task;
use super::warm_up::WarmUp;
use crate::data_threads::ModelThreads;
use crate::observer::{ModelTag, Observer};
use crate::pool::{Launcher, WearLimits, WorkerPlan, WorkerPool};
use crate::settings::ModelSettings;

/// Messages that may be on their way to one model's task.
const INBOX: usize = 4096;

/// Longer than any server runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How a model's task is told what happens; whoever uses it first begins the task.
pub(crate) type LazyTask = LazyLock<TaskChannels, Box<dyn FnOnce() -> TaskChannels + Send>>;

/// The ways to a model's task.
pub(crate) struct TaskChannels {
    pub(crate) inbox: mpsc::Sender<RequestMessage>,
    pub(crate) control: mpsc::Sender<ControlMessage>,
}

/// What the task of a model version is made of.
pub(super) struct TaskSeed {
    pub(super) settings: Arc<ModelSettings>,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) budget: Option<(Arc<MemoryBudget>, BudgetTerms)>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) tag: Arc<ModelTag>,
    pub(super) published: Arc<ModelState>,
    pub(super) clock: ModelClock,
    pub(super) kept: Option<KeptSequences>,
    pub(super) warm_up: Option<WarmUp>,
    pub(super) worker_ids: Arc<AtomicU32>,
    /// Where it runs.
    pub(super) threads: ModelThreads,
}

impl TaskSeed {
    /// Begins the task.
    pub(super) fn begin(self) -> TaskChannels {
        let Self { settings, published, clock, .. } = self;
        let (inbox, requests) = mpsc::channel(INBOX);
        let (control, orders) = mpsc::channel(64);
        let (events, workers) = mpsc::channel(1024);
        let home = self.threads.home().clone();
        let launcher = match self.budget {
            None => self.launcher,
            Some(budget) => {
                Arc::new(BudgetedLauncher::new(self.launcher, budget, &published, &control))
            }
        };
        let task = Task {
            inbox: requests,
            control: orders,
            workers,
            published: Arc::clone(&published),
            reporter: Reporter::new(self.tag, self.observer),
            scheduler: ModelScheduler::new(settings.batcher(), clock),
            actions: Actions::new(),
            table: RequestTable::default(),
            sequences: SequenceRequests::new(&settings, self.kept, clock),
            beside: 0,
            startup: StartupWait { limit: settings.startup_wait, last_load: None, look_at: None },
            capacity: None,
            pool: WorkerPool::new(launcher, plan(&settings), self.worker_ids, events, self.threads),
            warm_up: self.warm_up,
            closing: None,
            curve_published: None,
        };
        // Before the bounds are read: whoever changes them now tells the task too.
        published.begun.store(true, Ordering::SeqCst);
        if published.from_zero.load(Ordering::SeqCst) {
            let ((min, max), (reply, _)) = (published.worker_target(), oneshot::channel());
            // It is the first message, so there is room.
            drop(control.try_send(ControlMessage::Scale { min, max, reply }));
        }
        home.spawn(task.run());
        TaskChannels { inbox, control }
    }
}

/// After so long without a request its last worker ends. Where others decide when it leaves that is never, unless
/// its operator says it.
fn idle(settings: &ModelSettings) -> Duration {
    match settings.on_demand() && settings.values.source(&IDLE) == SettingSource::Default {
        true => FOREVER,
        false => settings.idle,
    }
}

/// How long its workers may take for what they do.
fn plan(settings: &ModelSettings) -> WorkerPlan {
    WorkerPlan {
        startup_timeout: settings.startup_timeout,
        response_timeout: settings.response_timeout,
        retry_window: settings.retry_window,
        slots: settings.slots,
        idle: idle(settings),
        wear: wear(settings),
    }
}

/// When they are replaced, if ever.
fn wear(settings: &ModelSettings) -> Option<WearLimits> {
    let requests = settings.values.read(&MAX_REQUESTS_PER_WORKER);
    // A fifth is left for the batches that it runs until the new one is ready.
    let memory = settings.values.read(&MEMORY_LIMIT).map(|limit: u64| limit / 5 * 4);
    (requests.is_some() || memory.is_some()).then_some(WearLimits { requests, memory })
}
