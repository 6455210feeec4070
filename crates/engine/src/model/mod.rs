//! A model version as the protocols hold it: call it, scale it, describe it.
//!
//! Behind every [`Model`] runs one [`task`], the only writer of the version's state. What needs no
//! state happens on the caller's own task, in the [`gate`]: the input is checked, the permit taken,
//! and the request handed over; dropping the returned future takes the request back out. The task
//! leaves what it can to owners of their own: [`requests`] (those admitted, and those of sequences),
//! [`scheduler`] (the batcher, its time and its workers' slots), [`reporter`] (log and observer), [`warm_up`],
//! [`exits`] and [`lifetime`].

pub(crate) mod budget;
mod budget_model;
mod budget_table;
mod budgeted_launcher;
mod capacity;
pub(crate) mod draft;
pub(crate) mod endpoint_tensors;
mod endpoints;
mod exits;
mod gate;
mod gpu_neighbours;
mod gpu_record;
mod gpu_table;
mod incidents;
mod intake;
mod lifetime;
mod messages;
mod model_ids;
mod noted;
mod parts;
mod readiness;
mod report;
mod reporter;
mod requests;
mod scatter;
mod scheduler;
mod seed;
mod sequence;
mod shared_traffic;
mod state;
mod statistics;
pub(crate) mod task;
mod warm_up;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use jitney_batcher::{CurvePoint, Origin};
use jitney_settings::SettingSource;
use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS};
use tokio::sync::oneshot;

pub use self::capacity::CapacityReport;
pub use self::draft::ModelIdentity;
pub(crate) use self::draft::check_name;
pub(crate) use self::endpoints::Endpoints;
pub use self::endpoints::{EndpointView, Objective, Reconfigure};
use self::gate::RequestGate;
pub use self::gpu_record::GpuReading;
pub use self::gpu_table::GpuMemoryConfig;
pub use self::incidents::{IncidentReport, WorkerIncident};
pub(crate) use self::intake::Intake;
pub use self::messages::Announced;
use self::messages::ControlMessage;
pub use self::noted::{KeptBody, NotedRequest};
pub use self::readiness::Readiness;
pub use self::report::{BatcherReport, PastDecision, main_group};
use self::sequence::KeptSequences;
use self::state::ModelState;
pub use self::state::{Counters, Measures, REJECTIONS, Status, Traffic};
pub use self::statistics::{
    BatchStatistics, BatchTotals, DISPATCH_REASONS, EndpointMeasures, SizeStatistics,
};
use crate::answer_cache::AnswerCache;
use crate::call::{Call, SequenceHeaders};
use crate::changes::Changes;
use crate::error::{CallError, ScaleError};
use crate::local::{BodyKind, Signature};
use crate::observer::ModelTag;
use crate::reply::Answer;
use crate::settings::ModelSettings;
use crate::shadow::{Occupancy, ShadowBook};
use crate::store::{Api, Dependency, FetchedFile, ModelDir};
use crate::traffic_split::{TrafficSplit, VersionShare};

/// One version of a model.
pub struct Model {
    pub(crate) identity: ModelIdentity,
    pub(crate) gate: RequestGate,
    /// Whether the engine takes no new requests; one for all models.
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) tag: Arc<ModelTag>,
    /// Calls that named this version.
    pub(crate) traffic: Traffic,
    /// Calls that named none: those of all versions of the name, from when it is registered.
    pub(crate) unnamed: OnceLock<Arc<Traffic>>,
    /// The sequences that it keeps, for models that keep sequences.
    pub(crate) kept: Option<KeptSequences>,
    /// Its part of the calls that named none; from the first time on that versions share them.
    share: OnceLock<VersionShare>,
    /// What came of copies of requests that it got; from the first time on that some are copied.
    shadow: OnceLock<Arc<ShadowBook>>,
    /// Answers that it gave before; from the first time on that it has a cache.
    cache: OnceLock<Arc<AnswerCache>>,
    pub(crate) changes: Changes,
    /// What an archive declares of its tensors.
    pub(crate) declared: Option<Signature>,
    /// The unpacked archive, removed with the model.
    pub(crate) _dir: Option<ModelDir>,
    /// What was downloaded for it, removed when it is unregistered.
    pub(crate) fetched: Option<FetchedFile>,
}

impl Model {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.identity.version
    }

    /// What tells it from all others, and where it came from.
    pub fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    /// What it takes and gives, where that is known: of models without Python, of definitions (the endpoint
    /// that answers where a request names none), and of archives that declare it.
    pub fn signature(&self) -> Option<&Signature> {
        match &self.gate.intake {
            Intake::Local(model, _) => Some(model.signature()),
            Intake::Defined(endpoints) => endpoints.signature(),
            Intake::Python => self.declared.as_ref(),
        }
    }

    /// Whether requests in tensors reach it as such, and are answered with tensors. Others get the Open
    /// Inference Protocol's JSON.
    pub fn takes_tensors(&self) -> bool {
        match &self.gate.intake {
            Intake::Local(model, _) => model.takes_tensors(),
            Intake::Defined(endpoints) => endpoints.signature().is_some(),
            Intake::Python => false,
        }
    }

    /// The names of the classes that an output scores, where they are known.
    pub fn labels(&self, output: &str) -> Option<&[String]> {
        let repository = self.identity.labels.get(output).map(Vec::as_slice);
        repository.or_else(|| match &self.gate.intake {
            Intake::Local(model, _) => model.labels(output),
            Intake::Python | Intake::Defined(_) => None,
        })
    }

    /// What a plain request to it brings; anything, as far as is known of models in Python.
    pub fn body_kind(&self) -> BodyKind {
        match &self.gate.intake {
            Intake::Local(model, _) => model.body_kind(),
            Intake::Python | Intake::Defined(_) => BodyKind::File,
        }
    }

    /// Its description of its own API: definitions in Python have one.
    pub fn api(&self) -> Option<&Api> {
        self.gate.intake.api()
    }

    /// The models that it calls.
    pub fn depends_on(&self) -> &[Dependency] {
        self.api().map_or(&[], |api| &api.depends)
    }

    /// Its effective settings.
    pub fn settings(&self) -> Arc<ModelSettings> {
        self.gate.settings.load_full()
    }

    /// Answers that it gave before, for equal requests; none if it never had a cache.
    #[inline]
    pub fn cache(&self) -> Option<&Arc<AnswerCache>> {
        self.cache.get()
    }

    /// The headers in which requests name their sequences, for a model that keeps sequences.
    pub fn sequence_headers(&self) -> Option<Arc<SequenceHeaders>> {
        let settings = self.gate.settings.load();
        settings.sequences().map(|_| Arc::clone(&settings.sequence_headers))
    }

    /// Its workers, queue and counters at this moment.
    pub fn status(&self) -> Status {
        let queue_max = self.gate.settings.load().queue_max;
        self.gate.published.status(queue_max)
    }

    /// Running totals of its requests.
    pub fn counters(&self) -> Counters {
        self.gate.published.counters()
    }

    /// Rejected requests so far, in the order of [`REJECTIONS`].
    pub fn rejections(&self) -> [u64; REJECTIONS.len()] {
        self.gate.published.meters.rejections()
    }

    /// What was measured about its requests and batches.
    pub fn measures(&self) -> Measures {
        self.gate.published.meters.read()
    }

    /// The same for each endpoint, of definitions that have several.
    pub fn endpoint_measures(&self) -> Vec<EndpointMeasures> {
        self.gate.published.endpoints.read()
    }

    /// What its batches came to, by their size.
    pub fn statistics(&self) -> BatchStatistics {
        self.gate.published.meters.batches.read()
    }

    /// The last requests that failed, and the slowest of the last minutes.
    pub fn noted_requests(&self) -> [Vec<NotedRequest>; 2] {
        self.gate.published.noted.read()
    }

    /// When and why the last request failed.
    pub fn last_failed(&self) -> Option<(SystemTime, String)> {
        self.gate.published.noted.last_failed()
    }

    /// Its name in metrics.
    pub fn tag(&self) -> &Arc<ModelTag> {
        &self.tag
    }

    /// Where the protocols count calls, apart by whether the caller named the version: where it did not they are counted
    /// by name, whichever version answers.
    pub fn traffic(&self, version_named: bool) -> &Traffic {
        match version_named {
            true => &self.traffic,
            false => self.unnamed.get_or_init(Arc::default),
        }
    }

    /// Written with the table of models: how the versions of its name share its requests.
    pub(crate) fn set_split(&self, version: &str, split: Option<&Arc<TrafficSplit>>) {
        if split.is_some() || self.shadow.get().is_some() {
            self.note_split(version, split);
        }
    }

    /// Whether its requests are copied for another version.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.shadow.get().is_some_and(|book| book.is_copied())
    }

    /// How busy it is.
    pub fn occupancy(&self) -> Occupancy {
        self.gate.published.occupancy(self.gate.settings.load().items_max())
    }

    /// Whether it keeps this sequence.
    pub(crate) fn keeps_sequence(&self, id: &str) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.contains(id))
    }

    /// Whether it can serve, and why not.
    pub fn readiness(&self) -> Readiness {
        self.gate.published.readiness()
    }

    /// Whether it is as it was asked for, or was before: from then on a server with it has started.
    pub(crate) fn has_started(&self) -> bool {
        self.gate.published.was_ready.load(Ordering::Relaxed) || self.is_as_wanted()
    }

    /// Whether it is as its operator wants it. One that the first request loads is, also while it loads.
    pub(crate) fn is_as_wanted(&self) -> bool {
        self.gate.published.from_zero.load(Ordering::Relaxed) || self.readiness().is_as_wanted()
    }

    /// Whether a request is taken in: a worker serves, or the request loads the model.
    pub fn can_be_asked(&self) -> bool {
        let ModelState { from_zero, admits, .. } = &*self.gate.published;
        let loads = from_zero.load(Ordering::Relaxed) && admits.load(Ordering::Relaxed);
        loads || self.readiness().is_ready()
    }

    /// Whether anything was ever asked of it: a request, or a worker.
    pub fn was_asked(&self) -> bool {
        let ModelState { begun, requests, .. } = &*self.gate.published;
        begun.load(Ordering::Relaxed) || requests.load(Ordering::Relaxed) > 0
    }

    /// TorchServe's health of this version.
    pub fn healthy(&self) -> bool {
        !self.gate.published.unhealthy.load(Ordering::Relaxed)
    }

    /// The endpoints of a definition, as they are served now.
    pub fn endpoints(&self) -> BTreeMap<String, EndpointView> {
        self.gate.intake.endpoints().map(Endpoints::views).unwrap_or_default()
    }

    /// The learned service times, at most a second old while batches run.
    pub fn curve(&self) -> Arc<Vec<CurvePoint>> {
        self.gate.published.curve.load_full()
    }

    /// The batch sizes at which it runs, as its operator or its workers say; empty for any.
    pub fn allowed_sizes(&self) -> Arc<Vec<u32>> {
        self.gate.published.sizes.load_full()
    }

    /// Admits one request at once, and answers it. Dropping the future means that the client went away.
    pub fn call(&self, call: Call) -> impl Future<Output = Result<Answer, CallError>> {
        self.call_as(call, false)
    }

    /// Like [`Model::call`], for what was admitted before: it goes on while the server drains.
    pub fn call_admitted(&self, call: Call) -> impl Future<Output = Result<Answer, CallError>> {
        self.call_as(call, true)
    }

    /// The one or the other of [`Model::call`] and [`Model::call_admitted`].
    pub fn call_as(
        &self,
        call: Call,
        admitted: bool,
    ) -> impl Future<Output = Result<Answer, CallError>> {
        self.gate.call(call, !admitted && self.draining.load(Ordering::Relaxed))
    }

    /// Says that a request has begun to arrive, where that changes any decision.
    pub fn announce(&self, origin: Origin) -> Option<Announced<'_>> {
        let listens = self.gate.settings.load().listens();
        let begun = self.gate.published.begun.load(Ordering::Relaxed);
        (listens && begun).then(|| Announced::send(&self.gate.task.inbox, origin)).flatten()
    }

    /// Changes the number of workers; resolves when `min` are ready or one failed to start. The
    /// change itself goes on when the future is dropped.
    pub async fn scale(&self, min: u32, max: u32) -> Result<(), ScaleError> {
        self.set_worker_target(min, max);
        if min == 0
            && max > 0
            && self.settings().sequences().is_none()
            && self.gate.published.wait_for_first()
        {
            self.changes.note();
            return Ok(());
        }
        let scaled = self.ask(|reply| ControlMessage::Scale { min, max, reply }).await;
        scaled.unwrap_or(Err(ScaleError::Gone))?;
        self.changes.note();
        Ok(())
    }

    /// The fewest and the most workers that were asked for last, whether or not they run yet.
    pub fn worker_target(&self) -> (u32, u32) {
        self.gate.published.worker_target()
    }

    /// Says how many workers [`Model::scale`] is about to be asked for. Requests that come before it is wait
    /// for them.
    pub fn set_worker_target(&self, min: u32, max: u32) {
        self.gate.published.expect_workers(min, max);
    }

    /// Changes how requests are batched, at once.
    pub async fn reconfigure(&self, change: Reconfigure) -> Result<(), String> {
        let now = self.settings();
        let endpoints = self.gate.intake.tune(&change, &now)?;
        let mut values = change.settings;
        if let Some(size) = endpoints.batch_size {
            values.set(&MAX_BATCH_SIZE, size, SettingSource::Live);
        }
        if endpoints.latency_max.is_some() {
            values.remove(&MAX_LATENCY_MS);
        }
        let mut settings = now.changed(&values)?;
        if let Some(latency) = endpoints.latency_max {
            settings.latency_max = latency;
            settings.values.set(&MAX_LATENCY_MS, latency.unwrap_or_default(), SettingSource::Live);
        }
        if let Some(all) = self.gate.intake.endpoints() {
            all.apply(&endpoints);
        }
        let settings = Arc::new(settings);
        self.gate.settings.store(Arc::clone(&settings));
        if settings.cache() != now.cache() {
            self.set_cache(&settings);
        }
        self.ask(|reply| ControlMessage::Reconfigure { settings, reply })
            .await
            .ok_or_else(|| "the model was removed".to_owned())?;
        self.changes.note();
        Ok(())
    }

    /// Begins its cache anew, or ends it.
    fn set_cache(&self, settings: &ModelSettings) {
        let rule = settings.cache().map(|rule| &**rule);
        match self.cache.get() {
            None if rule.is_none() => {}
            None => {
                let cache = AnswerCache::new(rule, Arc::clone(&self.gate.admission));
                drop(self.cache.set(Arc::new(cache)));
            }
            Some(cache) => cache.change(rule),
        }
    }

    /// What its batcher has learned and decided; none if it has just gone.
    pub async fn batcher_report(&self) -> Option<BatcherReport> {
        self.ask(|reply| ControlMessage::Report { reply }).await
    }

    /// Answers what was admitted and ends the workers; by force when `grace` is over.
    pub(crate) async fn close(&self, grace: Duration) {
        if !self.gate.published.begun.load(Ordering::SeqCst) {
            // There is nothing to end; who still holds it is told as much.
            self.gate.published.admits.store(false, Ordering::Relaxed);
            return;
        }
        self.ask(|reply| ControlMessage::Close { grace, reply }).await;
    }

    async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> ControlMessage,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.gate.task.control.send(message(reply)).await.ok()?;
        answer.await.ok()
    }
}
