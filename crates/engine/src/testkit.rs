//! A model on a virtual clock with scripted workers: slow, dying, wrong, silent, late.
//!
//! The pool, the task, the batcher and the scatter are the real ones; only what a worker does with
//! a batch is played. Run it under `tokio::time::pause`, and a minute takes no time at all.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admission::{Admission, Limits};
use crate::call::{
    Answer, Call, Claim, HeaderBlock, Input, Origin, OriginKind, Output, Parameter, Payload,
    Priority, Rider,
};
use crate::changes::Changes;
use crate::engine::Draft;
use crate::error::CallError;
use crate::model::{Intake, Model};
use crate::onnx::OnnxModel;
use crate::outcome::{BatchOutcome, Cause, Death, LaunchError, ModelFailure};
use crate::pool::{BoxFuture, Launcher, Lost, Word, Worker};
use crate::settings::{Declared, PolicyName, Settings};
use crate::shares::Shares;
use crate::store::ModelDir;

/// A batch as a scripted worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ride {
    /// Which worker.
    pub worker: u32,
    /// Which start of any worker of this kit, from 0.
    pub life: u32,
    /// The bodies, in order; of tensors the rows, such as `0..4`.
    pub bodies: Vec<String>,
    /// When it was given.
    pub at: Instant,
}

/// What a scripted worker does with a batch.
#[derive(Clone, Debug)]
pub enum Act {
    /// Answers every request with its own body.
    Echo,
    /// Does the second act after a while.
    After(Duration, Box<Act>),
    /// Answers one row too few.
    Short,
    /// Fails on the batch as a whole.
    Raise,
    /// Fails the items whose body is this, answers the others.
    FailItem(&'static str),
    /// Dies without a word.
    Die,
    /// Never answers.
    Silence,
    /// Sends everybody `0 `, `1 ` and so on, with a pause after each; then the other act.
    Stream(usize, Duration, Box<Act>),
}

/// Decides what happens to a batch.
pub type Script = Arc<dyn Fn(&Ride) -> Act + Send + Sync>;

/// Decides whether a start succeeds, and how long it takes.
pub type LaunchScript = Arc<dyn Fn(u32) -> (Duration, Result<(), LaunchError>) + Send + Sync>;

#[derive(Clone)]
struct ScriptedLauncher {
    script: Script,
    launch: LaunchScript,
    lives: Arc<AtomicU32>,
    rides: Arc<Mutex<Vec<Ride>>>,
    kind: Kind,
}

/// How scripted workers take their batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As many at a time as they have slots.
    Plain,
    /// One after another, and the next one may lie before them while they work, if it has no body
    /// `large`.
    Queueing,
    /// So many side by side, as they say themselves.
    Overlapping(u8),
}

impl Launcher for ScriptedLauncher {
    fn launch(&self, worker: u32) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let (pause, outcome) = (self.launch)(life);
        let (script, rides, kind) = (Arc::clone(&self.script), Arc::clone(&self.rides), self.kind);
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            outcome?;
            let (says, words) = mpsc::channel(1);
            Ok(Box::new(ScriptedWorker {
                worker,
                life,
                script,
                rides,
                kind,
                turn: Arc::default(),
                stages: JoinSet::new(),
                plays: Vec::new(),
                says,
                words,
                death: None,
            }) as Box<dyn Worker>)
        })
    }
}

struct ScriptedWorker {
    worker: u32,
    life: u32,
    script: Script,
    rides: Arc<Mutex<Vec<Ride>>>,
    kind: Kind,
    /// Whose turn it is, where they run one after another.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// One play per batch; they end with the worker.
    stages: JoinSet<()>,
    /// How the play of a batch is ended when nobody waits for it.
    plays: Vec<(u64, tokio::task::AbortHandle)>,
    says: mpsc::Sender<Result<Word, Death>>,
    words: mpsc::Receiver<Result<Word, Death>>,
    /// How it died.
    death: Option<Death>,
}

impl Worker for ScriptedWorker {
    fn pid(&self) -> Option<u32> {
        Some(self.life)
    }

    fn slots(&self) -> u8 {
        if let Kind::Overlapping(slots) = self.kind { slots } else { 1 }
    }

    fn queues(&self, riders: &[Rider]) -> bool {
        self.kind == Kind::Queueing && riders.iter().all(|rider| body(rider) != "large")
    }

    fn give<'a>(&'a mut self, batch: u64, riders: &'a [Rider]) -> BoxFuture<'a, Result<(), Lost>> {
        let bodies: Vec<String> = riders.iter().map(body).collect();
        let ride = Ride { worker: self.worker, life: self.life, bodies, at: Instant::now() };
        let act = (self.script)(&ride);
        self.rides.lock().unwrap_or_else(PoisonError::into_inner).push(ride.clone());
        let stage = Stage { batch, bodies: ride.bodies, says: self.says.clone() };
        let turn = (self.kind == Kind::Queueing).then(|| Arc::clone(&self.turn));
        let play = async move {
            // They stand in line in the order in which they were given.
            let _turn = match &turn {
                Some(turn) => Some(turn.lock().await),
                None => None,
            };
            stage.perform(act).await;
        };
        self.plays.push((batch, self.stages.spawn(play)));
        Box::pin(std::future::ready(Ok(())))
    }

    /// Drops the play and says an empty answer, as continuous workers do.
    fn cancel(&mut self, batch: u64) -> BoxFuture<'_, Result<(), Lost>> {
        let play = self.plays.iter().find(|(id, _)| *id == batch);
        play.inspect(|(_, play)| play.abort());
        let says = self.says.clone();
        let outcome = BatchOutcome::Items(vec![Ok(Output::default())]);
        self.stages.spawn(async move {
            drop(says.send(Ok(Word::Over { batch, outcome })).await);
        });
        Box::pin(std::future::ready(Ok(())))
    }

    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<Result<Word, Lost>> {
        // The worker holds a sender itself, so the channel stays open.
        let word = ready!(self.words.poll_recv(context)).unwrap_or(Err(Death::Garbled));
        Poll::Ready(word.map_err(|death| {
            self.death = Some(death);
            Lost
        }))
    }

    fn death(&mut self) -> BoxFuture<'_, Death> {
        Box::pin(std::future::ready(self.death.unwrap_or(Death::Garbled)))
    }

    fn end(self: Box<Self>, _force: bool) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Where the act for one batch is performed.
struct Stage {
    batch: u64,
    bodies: Vec<String>,
    says: mpsc::Sender<Result<Word, Death>>,
}

impl Stage {
    async fn perform(self, mut act: Act) {
        while let Act::Stream(count, pause, then) = act {
            for number in 0..count {
                self.stream(number).await;
                tokio::time::sleep(pause).await;
            }
            act = *then;
        }
        let batch = self.batch;
        let played = play(act, self.bodies).await;
        // Nobody listens any more when the worker was ended.
        drop(self.says.send(played.map(|outcome| Word::Over { batch, outcome })).await);
    }

    async fn stream(&self, number: usize) {
        let piece = |position| (position, echo(format!("{number} ")));
        let pieces = (0..self.bodies.len()).map(piece).collect();
        drop(self.says.send(Ok(Word::Pieces { batch: self.batch, pieces })).await);
    }
}

async fn play(act: Act, bodies: Vec<String>) -> Result<BatchOutcome, Death> {
    match act {
        Act::Echo => {
            Ok(BatchOutcome::Items(bodies.into_iter().map(|body| Ok(echo(body))).collect()))
        }
        Act::Short => {
            let items = bodies.into_iter().skip(1).map(|body| Ok(echo(body))).collect();
            Ok(BatchOutcome::Items(items))
        }
        Act::Raise => Ok(BatchOutcome::Failed(failure())),
        Act::FailItem(bad) => {
            let item = |body| if body == bad { Err(failure()) } else { Ok(echo(body)) };
            Ok(BatchOutcome::Items(bodies.into_iter().map(item).collect()))
        }
        Act::Die => Err(Death::Crashed { killed: false }),
        Act::Silence | Act::Stream(..) => std::future::pending().await,
        Act::After(pause, then) => {
            tokio::time::sleep(pause).await;
            Box::pin(play(*then, bodies)).await
        }
    }
}

fn body(rider: &Rider) -> String {
    match &rider.payload {
        Payload::Raw(input) => String::from_utf8_lossy(&input.parameters[0].value).into_owned(),
        Payload::Tensors(tensors) => format!("{:?}", tensors.rows()),
    }
}

fn echo(body: String) -> Output {
    Output { body: Bytes::from(body), ..Output::default() }
}

fn failure() -> ModelFailure {
    ModelFailure { cause: Cause::Raised, status: None, message: "Prediction failed".to_owned() }
}

/// Settings of a kit's model unless a test says otherwise: window of 10 ms, at most 4 items.
pub fn settings() -> Settings {
    Settings {
        batch_size: 4,
        batch_delay: Duration::from_millis(10),
        wait_max: None,
        policy: PolicyName::Window,
        latency_max: None,
        queue_max: 100,
        mix_origins: false,
        isolate: true,
        job_ticket: false,
        slots: 1,
        workers_min: 1,
        workers_max: 1,
        response_timeout: Duration::from_secs(5),
        startup_timeout: Duration::from_secs(5),
        retry_window: Duration::from_secs(10),
        client_timeout: Duration::ZERO,
        runtime: "python".to_owned(),
        handler: "handler.py".to_owned(),
        shares: Shares::default(),
        sequence_headers: Arc::default(),
        declared: Declared::default(),
    }
}

/// One model with scripted workers.
#[derive(Clone)]
pub struct Kit {
    /// The model under test.
    pub model: Arc<Model>,
    /// The limits it is admitted by.
    pub admission: Arc<Admission>,
    rides: Arc<Mutex<Vec<Ride>>>,
}

impl Kit {
    /// A model whose workers follow `script`; none is started yet.
    pub fn idle(settings: Settings, script: impl Fn(&Ride) -> Act + Send + Sync + 'static) -> Self {
        Self::with_launches(settings, script, |_| (Duration::ZERO, Ok(())))
    }

    /// Like [`Kit::idle`], with a script for the starts too.
    pub fn with_launches(
        settings: Settings,
        script: impl Fn(&Ride) -> Act + Send + Sync + 'static,
        launch: impl Fn(u32) -> (Duration, Result<(), LaunchError>) + Send + Sync + 'static,
    ) -> Self {
        Self::build(Intake::Python, settings, Arc::new(script), Arc::new(launch), Kind::Plain)
    }

    /// Like [`Kit::serving`], for tensors as this model takes them. It never runs.
    pub async fn of_tensors(
        model: Arc<OnnxModel>,
        settings: Settings,
        script: impl Fn(&Ride) -> Act + Send + Sync + 'static,
    ) -> Self {
        let at_once = |_| (Duration::ZERO, Ok(()));
        let intake = Intake::Onnx(model);
        let kit = Self::build(intake, settings, Arc::new(script), Arc::new(at_once), Kind::Plain);
        drop(kit.model.scale(1, 1).await);
        kit
    }

    /// Like [`Kit::idle`], of a model whose files are there.
    pub fn in_dir(
        dir: &Path,
        settings: Settings,
        script: impl Fn(&Ride) -> Act + Send + Sync + 'static,
    ) -> Self {
        let (dir, launch) = (ModelDir::in_place(dir.to_owned()), |_| (Duration::ZERO, Ok(())));
        let (script, launch) = (Arc::new(script), Arc::new(launch));
        Self::build_in(Some(dir), Intake::Python, settings, script, launch, Kind::Plain)
    }

    fn build(
        intake: Intake,
        settings: Settings,
        script: Script,
        launch: LaunchScript,
        kind: Kind,
    ) -> Self {
        Self::build_in(None, intake, settings, script, launch, kind)
    }

    fn build_in(
        dir: Option<ModelDir>,
        intake: Intake,
        settings: Settings,
        script: Script,
        launch: LaunchScript,
        kind: Kind,
    ) -> Self {
        let rides = Arc::default();
        let launcher = ScriptedLauncher {
            script,
            launch,
            lives: Arc::default(),
            rides: Arc::clone(&rides),
            kind,
        };
        let draft = Draft {
            name: "kit".to_owned(),
            version: "1.0".to_owned(),
            url: "kit.mar".to_owned(),
            sha256: None,
            at_startup: false,
            workflow: None,
            settings,
            intake,
            launcher: Arc::new(launcher),
            observer: Arc::new(()),
            dir,
            fetched: None,
        };
        let admission = Admission::new(Limits::default());
        let draining = Arc::new(AtomicBool::new(false));
        let ids = Arc::new(AtomicU32::new(9000));
        let (model, task) = draft.build(&admission, &draining, &ids, &Changes::default());
        tokio::spawn(task.run());
        Self { model, admission, rides }
    }

    /// A model with `workers` ready workers that follow `script`.
    pub async fn serving(
        workers: u32,
        settings: Settings,
        script: impl Fn(&Ride) -> Act + Send + Sync + 'static,
    ) -> Self {
        let kit = Self::idle(settings, script);
        drop(kit.model.scale(workers, workers).await);
        kit
    }

    /// The same with workers of this kind.
    pub async fn of(
        kind: Kind,
        workers: u32,
        settings: Settings,
        script: impl Fn(&Ride) -> Act + Send + Sync + 'static,
    ) -> Self {
        let launch = Arc::new(|_| (Duration::ZERO, Ok(())));
        let kit = Self::build(Intake::Python, settings, Arc::new(script), launch, kind);
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

    /// Sends a request whose answer can be waited for later; aborting it is a departed client.
    pub fn start(&self, call: Call) -> tokio::task::JoinHandle<Result<Answer, CallError>> {
        let model = Arc::clone(&self.model);
        tokio::spawn(async move { model.call(call).await })
    }

    /// What the workers were given so far.
    pub fn rides(&self) -> Vec<Ride> {
        self.rides.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A request with this body.
pub fn call(body: &str) -> Call {
    let value = Bytes::copy_from_slice(body.as_bytes());
    let parameter = Parameter { name: "body".into(), content_type: "".into(), value };
    let input =
        Input { id: body.to_owned(), headers: HeaderBlock::default(), parameters: vec![parameter] };
    let origin = Origin { kind: OriginKind::Http, peer: 0 };
    Call {
        input,
        deadline: None,
        origin,
        priority: Priority::Interactive,
        claim: Claim::default(),
        alone: false,
    }
}

/// An answer's body.
pub fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.output.body).into_owned()
}
