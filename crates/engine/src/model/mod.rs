//! A model version as the doors hold it: call it, scale it, look at it.
//!
//! Behind every [`Model`] runs one [`task`], the only writer of the version's state. The handle
//! does what needs no state on the caller's own task: it checks the input, takes the permit, and
//! hands the request over; dropping the returned future takes the request back out.

mod announced;
mod board;
mod boarding;
mod endpoints;
mod identity;
mod insight;
mod intake;
mod measures;
mod messages;
mod objectives;
mod parts;
mod passenger;
mod reconfigure;
mod sample;
mod scatter;
mod sequence;
mod table;
mod task;
mod worker_target;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};

pub use self::announced::Announced;
pub(crate) use self::board::ModelState;
pub use self::board::{Counters, Status};
pub use self::endpoints::EndpointView;
pub(crate) use self::endpoints::{EndpointChange, Endpoints};
pub(crate) use self::identity::Identity;
pub use self::insight::{BatcherReport, PastDecision, main_group};
pub(crate) use self::intake::Intake;
pub use self::measures::{Measures, REJECTIONS, Traffic};
pub(crate) use self::messages::{Arrival, Control, Message, Ticket};
pub use self::objectives::Objective;
pub(crate) use self::sample::Sample;
pub use self::sequence::SequenceLimits;
pub(crate) use self::task::{State, Sweep, Task};
pub(crate) use self::worker_target::WorkerTarget;

use crate::admission::Admission;
use crate::call::SequenceHeaders;
use crate::changes::Changes;
use crate::error::ScaleError;
use crate::local::Signature;
use crate::observer::ModelTag;
use crate::settings::ModelSettings;
use crate::store::{Api, FetchedFile, ModelDir, Sha256};

/// One version of a model.
pub struct Model {
    pub(crate) identity: Identity,
    pub(crate) settings: ArcSwap<ModelSettings>,
    pub(crate) intake: Intake,
    pub(crate) admission: Arc<Admission>,
    /// The engine takes no new requests; one for all models.
    pub(crate) refusing: Arc<AtomicBool>,
    pub(crate) inbox: mpsc::Sender<Message>,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) board: Arc<ModelState>,
    pub(crate) tag: Arc<ModelTag>,
    /// Calls that named no version, and calls that named this one.
    pub(crate) traffic: [Traffic; 2],
    pub(crate) worker_target: WorkerTarget,
    pub(crate) changes: Changes,
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

    /// Where it came from, as it was asked for.
    pub fn url(&self) -> &str {
        &self.identity.url
    }

    /// The sum that its file must have, where somebody said one.
    pub fn sha256(&self) -> Option<Sha256> {
        self.identity.sha256
    }

    /// Whether the server loaded it at start-up.
    pub fn at_startup(&self) -> bool {
        self.identity.at_startup
    }

    /// The workflow that it is a node of, if it is one.
    pub fn workflow(&self) -> Option<&str> {
        self.identity.workflow.as_deref()
    }

    /// Whether it is a function of a workflow, which no archive of its own stands behind.
    pub fn is_function(&self) -> bool {
        self.identity.workflow.is_some() && self.identity.url.is_empty()
    }

    /// What it takes and gives, where that is known: of models that run in this process.
    pub fn signature(&self) -> Option<&Signature> {
        match &self.intake {
            Intake::Local(model) => Some(model.signature()),
            Intake::Python | Intake::Defined(_) => None,
        }
    }

    /// What it says about its API: definitions in Python do.
    pub fn api(&self) -> Option<&Api> {
        self.intake.api()
    }

    /// Its effective settings.
    pub fn settings(&self) -> Arc<ModelSettings> {
        self.settings.load_full()
    }

    /// The headers in which requests name their sequences, for a model that keeps sequences.
    pub fn sequence_headers(&self) -> Option<Arc<SequenceHeaders>> {
        let settings = self.settings.load();
        settings.sequences().map(|_| Arc::clone(&settings.sequence_headers))
    }

    /// A look at its workers, queue and counters.
    pub fn status(&self) -> Status {
        self.board.status(self.settings.load().queue_max, self.worker_target())
    }

    /// What was measured about its rides.
    pub fn measures(&self) -> Measures {
        self.board.meters.read()
    }

    /// Its name in the books.
    pub fn tag(&self) -> &Arc<ModelTag> {
        &self.tag
    }

    /// Where the doors count calls, apart by whether the caller named the version.
    pub fn traffic(&self, version_named: bool) -> &Traffic {
        &self.traffic[usize::from(version_named)]
    }

    /// TorchServe's health of this version.
    pub fn healthy(&self) -> bool {
        !self.board.unhealthy.load(Ordering::Relaxed)
    }

    /// Changes the number of workers; resolves when `min` are ready or one failed to start. The
    /// change itself goes on when the future is dropped.
    pub async fn scale(&self, min: u32, max: u32) -> Result<(), ScaleError> {
        self.set_worker_target(min, max);
        let scaled = self.ask(|reply| Control::Scale { min, max, reply }).await;
        scaled.unwrap_or(Err(ScaleError::Gone))?;
        self.changes.note();
        Ok(())
    }

    /// The fewest and the most workers that were asked for last, whether or not they run yet.
    pub fn worker_target(&self) -> (u32, u32) {
        self.worker_target.get()
    }

    /// Says how many workers [`Model::scale`] is about to be asked for.
    pub fn set_worker_target(&self, min: u32, max: u32) {
        self.worker_target.set(min, max);
    }

    /// The endpoints of a definition, as they are served now.
    pub fn endpoints(&self) -> BTreeMap<String, EndpointView> {
        self.intake.endpoints().map(Endpoints::tuned).unwrap_or_default()
    }

    /// What its batcher has learned and decided; none if it has just gone.
    pub async fn batcher_report(&self) -> Option<BatcherReport> {
        self.ask(|reply| Control::Explain { reply }).await
    }

    /// The learned service times, at most a second old while batches run.
    pub fn curve(&self) -> Arc<Vec<jitney_batcher::CurvePoint>> {
        self.board.curve.load_full()
    }

    /// Answers what was admitted and ends the workers; by force when `grace` is over.
    pub(crate) async fn close(&self, grace: Duration) {
        self.ask(|reply| Control::Close { grace, reply }).await;
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Control) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.control.send(question(reply)).await.ok()?;
        answer.await.ok()
    }
}
