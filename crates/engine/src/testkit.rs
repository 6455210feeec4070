//! A model on a virtual clock with scripted workers: slow, dying, wrong, silent, late.
//!
//! The pool, the task, the batcher and the scatter are the real ones; only what a worker does with
//! a batch is played. Run it under `tokio::time::pause`, and a minute takes no time at all.

mod rows;
mod script;
mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::rows::RowsModel;
pub use self::script::{Act, LaunchScript, Script, ScriptedBatch, ScriptedLoading};
use tokio::runtime::Handle;

use self::worker::ScriptedLauncher;
pub use self::worker::{Kind, PREPARE};
use crate::admission::{Admission, AdmissionLimits};
use crate::call::{
    Answer, Call, CallRoute, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, Priority,
};
use crate::changes::Changes;
use crate::data_threads::ModelThreads;
use crate::error::CallError;
use crate::local::LocalModel;
use crate::model::draft::Draft;
use crate::model::{Intake, Model, ModelIdentity};
use crate::outcome::LaunchError;
use crate::settings::{ModelSettings, PolicyName};
use crate::store::{ModelDir, ShownUrl};

/// ModelSettings of a kit's model unless a test says otherwise: window of 10 ms, at most 4 items.
pub fn settings() -> ModelSettings {
    ModelSettings {
        batch_size: 4,
        batch_delay: Duration::from_millis(10),
        policy: PolicyName::Window,
        queue_max: 100,
        isolate: true,
        slots: 1,
        workers_min: 1,
        workers_max: 1,
        response_timeout: Duration::from_secs(5),
        startup_timeout: Duration::from_secs(5),
        startup_wait: Duration::from_secs(30),
        retry_window: Duration::from_secs(10),
        runtime: "python".to_owned(),
        handler: "handler.py".to_owned(),
        ..ModelSettings::default()
    }
}

/// One model with scripted workers.
#[derive(Clone)]
pub struct Kit {
    /// The model under test.
    pub model: Arc<Model>,
    /// The limits it is admitted by.
    pub admission: Arc<Admission>,
    batches: Arc<Mutex<Vec<ScriptedBatch>>>,
}

impl Kit {
    /// A model whose workers follow `script`; none is started yet.
    pub fn idle(
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::with_launches(settings, script, |_| (Duration::ZERO, Ok(())))
    }

    /// Like [`Kit::idle`], with a script for the starts too.
    pub fn with_launches(
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
        launch: impl Fn(u32) -> (Duration, Result<(), LaunchError>) + Send + Sync + 'static,
    ) -> Self {
        let (script, launch) = (Arc::new(script), Arc::new(launch));
        Self::build(None, Intake::Python, settings, script, launch, Kind::Plain, None)
    }

    /// Like [`Kit::idle`], of a model whose files are there if `dir` says so, with workers of this kind that
    /// say something while they load.
    pub fn loading(
        dir: Option<&Path>,
        kind: Kind,
        loading: ScriptedLoading,
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        let dir = dir.map(|dir| ModelDir::existing(dir.to_owned()));
        let (script, launch) = (Arc::new(script), Arc::new(|_| (Duration::ZERO, Ok(()))));
        Self::build(dir, Intake::Python, settings, script, launch, kind, Some(loading))
    }

    /// Like [`Kit::serving`], for requests as this model decodes them. It never runs.
    pub async fn of_local(
        model: impl LocalModel,
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        let at_once = |_| (Duration::ZERO, Ok(()));
        let intake = Intake::Local(Arc::new(model), false);
        let (script, launch) = (Arc::new(script), Arc::new(at_once));
        let kit = Self::build(None, intake, settings, script, launch, Kind::Plain, None);
        drop(kit.model.scale(1, 1).await);
        kit
    }

    /// Like [`Kit::idle`], of a model whose files are there.
    pub fn in_dir(
        dir: &Path,
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        let (dir, launch) = (ModelDir::existing(dir.to_owned()), |_| (Duration::ZERO, Ok(())));
        let (script, launch) = (Arc::new(script), Arc::new(launch));
        Self::build(Some(dir), Intake::Python, settings, script, launch, Kind::Plain, None)
    }

    fn build(
        dir: Option<ModelDir>,
        intake: Intake,
        settings: ModelSettings,
        script: Script,
        launch: LaunchScript,
        kind: Kind,
        loading: Option<ScriptedLoading>,
    ) -> Self {
        let batches = Arc::default();
        let launcher = ScriptedLauncher {
            script,
            launch,
            lives: Arc::default(),
            batches: Arc::clone(&batches),
            kind,
            loading: loading.unwrap_or_default(),
        };
        let draft = Draft {
            identity: ModelIdentity {
                name: "kit".to_owned(),
                version: "1.0".to_owned(),
                url: ShownUrl::of("kit.mar"),
                sha256: None,
                at_startup: false,
                workflow: None,
                labels: Arc::default(),
            },
            settings,
            intake,
            launcher: Arc::new(launcher),
            observer: Arc::new(()),
            dir,
            fetched: None,
            declared: None,
            budget: None,
        };
        let admission = Admission::new(AdmissionLimits::default());
        let draining = Arc::new(AtomicBool::new(false));
        let ids = Arc::new(AtomicU32::new(9000));
        let threads = ModelThreads::only(Handle::current());
        let model = draft.build(&admission, &draining, &ids, &Changes::default(), threads);
        Self { model, admission, batches }
    }

    /// A model with `workers` ready workers that follow `script`.
    pub async fn serving(
        workers: u32,
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        let kit = Self::idle(settings, script);
        drop(kit.model.scale(workers, workers).await);
        kit
    }

    /// The same with workers of this kind.
    pub async fn of(
        kind: Kind,
        workers: u32,
        settings: ModelSettings,
        script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        let launch = Arc::new(|_| (Duration::ZERO, Ok(())));
        let kit = Self::build(None, Intake::Python, settings, Arc::new(script), launch, kind, None);
        drop(kit.model.scale(workers, workers).await);
        kit
    }

    /// Sends one request and waits for its answer.
    pub async fn call(&self, body: &str) -> Result<Answer, CallError> {
        self.model.call(call(body)).await
    }

    /// Sends the requests at once, in order; their answers as text.
    pub async fn call_all(&self, bodies: &[&str]) -> Vec<Result<String, CallError>> {
        let calls: Vec<_> = bodies.iter().map(|body| self.start(call(body))).collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap_or(Err(CallError::Gone)).map(|answer| text(&answer)));
        }
        answers
    }

    /// Sends a request whose answer can be waited for later; aborting it is a client that went away.
    pub fn start(&self, call: Call) -> tokio::task::JoinHandle<Result<Answer, CallError>> {
        let model = Arc::clone(&self.model);
        tokio::spawn(async move { model.call(call).await })
    }

    /// What the workers were given so far.
    pub fn batches(&self) -> Vec<ScriptedBatch> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A request with this body.
pub fn call(body: &str) -> Call {
    let value = body.as_bytes().to_vec().into();
    let parameter = Parameter { name: "body".into(), content_type: "".into(), value };
    let input = Input {
        id: body.to_owned(),
        headers: HeaderBlock::default(),
        route: CallRoute::default(),
        parameters: vec![parameter],
        tensors: None,
    };
    let origin = Origin { kind: OriginKind::Http, peer: 0 };
    let (priority, claim) = (Priority::Interactive, Claim::default());
    Call {
        input: Box::new(input),
        deadline: None,
        origin,
        priority,
        claim,
        quota: None,
        mark: None,
    }
}

/// An answer's body.
pub fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.output.body).into_owned()
}
