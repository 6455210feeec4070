//! Starts the workers of a model within the memory of all.

use std::sync::Arc;
use std::time::Duration;

use jitney_settings::CpuList;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::budget::MemoryBudget;
use super::budget_model::BudgetTerms;
use super::budget_table::LoadedWorker;
use super::messages::ControlMessage;
use super::state::ModelState;
use crate::gpu_assignment::GpuAnswers;
use crate::outcome::LaunchError;
use crate::pool::{BoxFuture, Launcher, LoadProgress, ProgressSender, Worker};

/// How often a load says that it waits, at most; at least twice in the time that a start may take.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Starts the workers of a model when there is memory for them.
pub(super) struct BudgetedLauncher {
    launcher: Arc<dyn Launcher>,
    budget: Arc<MemoryBudget>,
    model: u64,
    tell_every: Duration,
}

impl BudgetedLauncher {
    /// Lets the workers of a model be counted.
    pub(super) fn new(
        launcher: Arc<dyn Launcher>,
        (budget, terms): (Arc<MemoryBudget>, BudgetTerms),
        published: &Arc<ModelState>,
        control: &mpsc::Sender<ControlMessage>,
    ) -> Self {
        let part = (terms, launcher.gpu_ids());
        let model = budget.table().enter(budget.now(), part, published, control);
        let tell_every = TELL_EVERY.min(terms.startup_timeout / 2);
        Self { launcher, budget, model, tell_every }
    }
}

/// Waits for memory, and says so now and then: that is no time that a worker takes to start.
async fn wait_for_memory(
    taken: impl Future<Output = Result<(), LaunchError>>,
    tell_every: Duration,
    progress: &ProgressSender,
) -> Result<(), LaunchError> {
    let mut taken = std::pin::pin!(taken);
    loop {
        tokio::select! {
            biased;
            taken = &mut taken => return taken,
            () = sleep(tell_every) => {
                let what = "waiting for memory".to_owned();
                progress.send(LoadProgress { done: 0, of: 0, what }).await;
            }
        }
    }
}

impl Launcher for BudgetedLauncher {
    fn launch(
        &self,
        worker: u32,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let (launcher, model, tell_every) =
            (Arc::clone(&self.launcher), self.model, self.tell_every);
        let budget = Arc::clone(&self.budget);
        let taken = TakenMemory { budget, model, worker, loads: true };
        Box::pin(async move {
            wait_for_memory(taken.budget.take(model, worker), tell_every, &progress).await?;
            if let Some(gpu) = taken.budget.gpu(model, worker) {
                launcher.give_gpu(worker, gpu);
            }
            let began = Instant::now();
            let launched = launcher.launch(worker, progress).await;
            let loaded = launched.inspect_err(|error| taken.failed(error))?;
            let (pid, gpu_memory, took) = (loaded.pid(), loaded.gpu_memory(), began.elapsed());
            let found = LoadedWorker { pid, gpu_memory, took, ..LoadedWorker::default() };
            if let Err(error) = taken.budget.loaded(model, worker, found).await {
                loaded.end(true).await;
                return Err(error);
            }
            taken.keep();
            Ok(loaded)
        })
    }

    fn set_worker_count(&self, workers: u32) {
        self.launcher.set_worker_count(workers);
    }

    fn room(&self) -> u32 {
        self.budget.room(self.model)
    }

    fn load_time(&self) -> Option<Duration> {
        self.budget.load_time(self.model)
    }

    fn gpu(&self, worker: u32) -> Option<u32> {
        self.launcher.gpu(worker)
    }

    fn gpu_answers(&self, worker: u32) -> Option<GpuAnswers> {
        self.launcher.gpu_answers(worker)
    }

    fn cpus(&self, worker: u32) -> Option<CpuList> {
        self.launcher.cpus(worker)
    }

    fn forget(&self, worker: u32) {
        self.budget.release(self.model, worker);
        self.launcher.forget(worker);
    }
}

impl Drop for BudgetedLauncher {
    fn drop(&mut self) {
        self.budget.leave(self.model);
    }
}

/// Memory for a worker that loads; given back unless it has loaded.
struct TakenMemory {
    budget: Arc<MemoryBudget>,
    model: u64,
    worker: u32,
    loads: bool,
}

impl TakenMemory {
    fn keep(mut self) {
        self.loads = false;
    }

    /// The load did not succeed, for a reason that may lie with its GPU: it is broken, or it is full.
    fn failed(&self, error: &LaunchError) {
        match error {
            LaunchError::Ended { .. } | LaunchError::Load(_) | LaunchError::Memory(_) => {
                self.budget.failed(self.model, self.worker);
            }
            LaunchError::Spawn(_)
            | LaunchError::TimedOut { .. }
            | LaunchError::NoRoom { .. }
            | LaunchError::Unwanted => {}
        }
    }
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        if self.loads {
            self.budget.release(self.model, self.worker);
        }
    }
}
