//! A model between its registration and its first request: everything is known, nothing is connected.
//!
//! Apart from the engine, which decides what is in it; here the handle for the doors and the task
//! behind it are made and joined. Nothing starts: no worker, no task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::changes::Changes;
use crate::model::{Identity, Intake, Model, ModelState, Sample, State, Sweep, Task, WorkerTarget};
use crate::observer::{ModelTag, Observer};
use crate::pool::{Launcher, Pool, WorkerPlan};
use crate::settings::ModelSettings;
use crate::store::{FetchedFile, ModelDir};

/// Messages that may be on their way from the doors to one model's task.
const INBOX: usize = 4096;

/// A model about to be built.
pub(crate) struct Draft {
    pub(crate) identity: Identity,
    pub(crate) settings: ModelSettings,
    pub(crate) intake: Intake,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) dir: Option<ModelDir>,
    pub(crate) fetched: Option<FetchedFile>,
}

impl Draft {
    /// The handle and the task behind it, connected.
    pub(crate) fn build(
        self,
        admission: &Arc<Admission>,
        refusing: &Arc<AtomicBool>,
        worker_ids: &Arc<AtomicU32>,
        changes: &Changes,
    ) -> (Arc<Model>, Task) {
        let (inbox, arrivals) = mpsc::channel(INBOX);
        let (control, orders) = mpsc::channel(64);
        let (events, workers) = mpsc::channel(1024);
        let board = Arc::new(ModelState::default());
        let Identity { name, version, .. } = &self.identity;
        let python = !matches!(self.intake, Intake::Local(_));
        let tag = Arc::new(ModelTag { name: name.clone(), version: version.clone(), python });
        let plan = WorkerPlan {
            startup_timeout: self.settings.startup_timeout,
            response_timeout: self.settings.response_timeout,
            retry_window: self.settings.retry_window,
            slots: self.settings.slots,
        };
        let pool = Pool::new(self.launcher, plan, Arc::clone(worker_ids), events);
        let sample = Sample::of(&self.intake, self.dir.as_ref().map(ModelDir::path));
        let sweep = sample.map(|sample| {
            let cost = self.settings.shares.of_sample(sample.bytes(), sample.length);
            Sweep::new(sample, cost, Arc::clone(admission))
        });
        let task = Task {
            label: format!("{name}_{version}"),
            inbox: arrivals,
            control: orders,
            workers,
            board: Arc::clone(&board),
            tag: Arc::clone(&tag),
            observer: self.observer,
            state: State::new(&self.settings, pool, sweep),
        };
        let model = Arc::new(Model {
            identity: self.identity,
            worker_target: WorkerTarget::of(&self.settings),
            settings: ArcSwap::from_pointee(self.settings),
            intake: self.intake,
            admission: Arc::clone(admission),
            refusing: Arc::clone(refusing),
            inbox,
            control,
            board,
            tag,
            traffic: Default::default(),
            changes: changes.clone(),
            _dir: self.dir,
            fetched: self.fetched,
        });
        (model, task)
    }
}
