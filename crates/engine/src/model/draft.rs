//! A model between its registration and its first request: everything is known, nothing is connected.
//!
//! Apart from the engine, which decides what is in it; here the handle for callers and the task
//! behind it are made and joined. Nothing starts: no worker, no task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use arc_swap::ArcSwap;
use jitney_batcher::Actions;
use tokio::sync::mpsc;

use super::Model;
use super::endpoint_meters::EndpointMeters;
use super::gate::RequestGate;
use super::identity::ModelIdentity;
use super::intake::Intake;
use super::lifetime::StartupWait;
use super::reporter::Reporter;
use super::scheduler::{ModelClock, ModelScheduler, WorkerSlots};
use super::state::ModelState;
use super::table::RequestTable;
use super::task::Task;
use super::turns::SequenceTurns;
use super::warm_up::{Sample, WarmUp};
use crate::admission::Admission;
use crate::changes::Changes;
use crate::local::Signature;
use crate::observer::{ModelTag, Observer};
use crate::pool::{Launcher, WorkerPlan, WorkerPool};
use crate::settings::ModelSettings;
use crate::store::{FetchedFile, ModelDir};

/// Messages that may be on their way to one model's task.
const INBOX: usize = 4096;

/// A model about to be built.
pub(crate) struct Draft {
    pub(crate) identity: ModelIdentity,
    pub(crate) settings: ModelSettings,
    pub(crate) intake: Intake,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) dir: Option<ModelDir>,
    pub(crate) fetched: Option<FetchedFile>,
    /// What an archive declares of its tensors.
    pub(crate) declared: Option<Signature>,
}

impl Draft {
    /// The handle and the task behind it, connected.
    pub(crate) fn build(
        self,
        admission: &Arc<Admission>,
        draining: &Arc<AtomicBool>,
        worker_ids: &Arc<AtomicU32>,
        changes: &Changes,
    ) -> (Arc<Model>, Task) {
        let (inbox, requests) = mpsc::channel(INBOX);
        let (control, orders) = mpsc::channel(64);
        let (events, workers) = mpsc::channel(1024);
        let names = self.intake.endpoints().map_or(&[][..], |it| &it.api.endpoints);
        let endpoints = EndpointMeters::new(names);
        let published = Arc::new(ModelState { endpoints, ..ModelState::default() });
        let clock = ModelClock::start();
        published.sizes.store(Arc::new(self.settings.sizes.clone()));
        let ModelIdentity { name, version, .. } = &self.identity;
        let python = !matches!(self.intake, Intake::Local(_));
        let tag = Arc::new(ModelTag { name: name.clone(), version: version.clone(), python });
        let warm_up = self.warm_up(admission);
        let settings = self.settings;
        let pool = WorkerPool::new(self.launcher, plan(&settings), Arc::clone(worker_ids), events);
        let task = Task {
            inbox: requests,
            control: orders,
            workers,
            published: Arc::clone(&published),
            reporter: Reporter::new(Arc::clone(&tag), self.observer),
            scheduler: ModelScheduler::new(settings.batcher(), clock),
            actions: Actions::new(),
            table: RequestTable::default(),
            turns: SequenceTurns::new(&settings, clock),
            slots: WorkerSlots::default(),
            beside: 0,
            startup: StartupWait::new(settings.startup_wait),
            pool,
            warm_up,
            closing: None,
            curve_published: None,
        };
        let model = Arc::new(Model {
            identity: self.identity,
            worker_target: [settings.workers_min.into(), settings.workers_max.into()],
            gate: RequestGate {
                settings: ArcSwap::from_pointee(settings),
                intake: self.intake,
                admission: Arc::clone(admission),
                inbox,
                published,
                clock,
            },
            draining: Arc::clone(draining),
            control,
            tag,
            traffic: Default::default(),
            changes: changes.clone(),
            _dir: self.dir,
            fetched: self.fetched,
            declared: self.declared,
        });
        (model, task)
    }
    /// How its workers are warmed up, where it has a sample.
    fn warm_up(&self, admission: &Arc<Admission>) -> Option<WarmUp> {
        let sample = Sample::of(&self.intake, self.dir.as_ref().map(ModelDir::path))?;
        let cost = self.settings.shares.of_sample(sample.bytes(), sample.length);
        Some(WarmUp::new(sample, cost, Arc::clone(admission)))
    }
}

/// How long its workers may take for what they do.
fn plan(settings: &ModelSettings) -> WorkerPlan {
    WorkerPlan {
        startup_timeout: settings.startup_timeout,
        response_timeout: settings.response_timeout,
        retry_window: settings.retry_window,
        slots: settings.slots,
    }
}
