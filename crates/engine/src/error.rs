//! How a call, a look-up or a change of the registry can go wrong: facts with fields, one enum per
//! operation. Nothing here knows a status code; `server::errors` is the one table that does.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::Rejection;

use crate::admission::LimitMet;
use crate::outcome::{LaunchError, LoadFailure, ModelFailure, WorkerExit};
use crate::quota::QuotaMet;
use crate::store::StoreError;

/// Why a request was not answered by its model.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// Rejected before the model saw it.
    #[error("rejected: {}", reason.as_str())]
    Rejected {
        /// Why.
        reason: Rejection,
        /// When trying again makes sense.
        retry_after: Option<Duration>,
    },
    /// More bytes, items or requests are under way than this server admits.
    #[error("too much is under way: {what}")]
    ServerFull {
        /// Which limit was met: `requests`, `items` or `bytes`.
        what: &'static str,
    },
    /// The model keeps sequences and has no room for this request among them.
    #[error("{0}")]
    Sequence(SequenceRejection),
    /// The request does not fit the model; it never met a batch.
    #[error("{0}")]
    BadInput(String),
    /// The model has no endpoint of the name that the request asks for.
    #[error("{0}")]
    UnknownEndpoint(String),
    /// The model's own code failed on this request.
    #[error("{}", .0.message)]
    Model(ModelFailure),
    /// No worker has loaded the model, and the last one that tried failed.
    #[error("{0}")]
    NotLoaded(Arc<LoadFailure>),
    /// No worker had loaded the model before the request had waited long enough.
    #[error("the model is still loading")]
    Loading(LoadingWait),
    /// The worker that held the request exited, and so did the one that tried it again.
    #[error("the worker exited: {exit}")]
    WorkerExited {
        /// How.
        exit: WorkerExit,
    },
    /// The very same request has made workers exit before; the model did not see it again.
    #[error("the request makes workers exit")]
    Poisonous,
    /// The client read its stream so slowly that the pieces kept for it passed the limit.
    #[error("the client fell too far behind its stream")]
    SlowReader,
    /// The model went away while the request was under way.
    #[error("the model was removed")]
    Gone,
}

impl CallError {
    /// A rejection after which nothing tells when to try again.
    pub fn rejected(reason: Rejection) -> Self {
        Self::Rejected { reason, retry_after: None }
    }
}

impl From<LimitMet> for CallError {
    fn from(LimitMet { what }: LimitMet) -> Self {
        Self::ServerFull { what }
    }
}

impl From<QuotaMet> for CallError {
    fn from(met: QuotaMet) -> Self {
        let retry_after = match met {
            QuotaMet::Burst(_) => return Self::BadInput(format!("Too many items: {met}.")),
            QuotaMet::Rate(wait) => Some(wait),
            QuotaMet::UnderWay(_) => None,
        };
        Self::Rejected { reason: Rejection::Quota, retry_after }
    }
}

/// A wait for the first worker of a model that was over before there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadingWait {
    /// Workers that the model wants.
    pub wanted: u32,
    /// What ended the wait.
    pub limit: WaitLimit,
    /// How long it takes until a worker is expected, where a load was measured.
    pub ready_in: Option<Duration>,
    /// That is beyond the limit, so the wait was over before it began.
    pub at_once: bool,
}

/// What ends the wait of a request while no worker is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// A deadline so long after its admission, which the request brought itself.
    Deadline(Duration),
    /// The model's objective (`max_latency_ms`).
    MaxLatency(Duration),
    /// The model's `client_timeout`.
    ClientTimeout(Duration),
    /// The model's `startup_wait`.
    StartupWait(Duration),
}

/// Why a request found no room in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceRejection {
    /// It would begin one more sequence than the model keeps.
    #[error("{most} sequences are open already")]
    TooMany {
        /// Sequences at a time (`maxNumSequence`).
        most: u64,
    },
    /// As many requests of its sequence wait as may.
    #[error("{most} requests of this sequence wait already")]
    Backlog {
        /// Waiting requests of a sequence (`maxSequenceJobQueueSize`).
        most: u64,
    },
    /// Its sequence was silent for too long, or lasted too long, and is over.
    #[error("this sequence is over")]
    Expired,
    /// Its sequence is not held here: another server began it, or this one before it was started again.
    #[error("this sequence is not held here")]
    Unknown,
}

/// Why a model of the repository was not loaded or unloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// The repository has no such model.
    #[error("failed to load '{model}': the repository has no such model")]
    Unknown {
        /// The name that was asked for.
        model: String,
    },
    /// It does not load; what was served before is served on.
    #[error("failed to load '{model}': {reason}")]
    NotLoaded {
        /// The model.
        model: String,
        /// Why not.
        reason: String,
    },
}

/// Why a name does not lead to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No model of this name.
    #[error("Model not found: {model}")]
    UnknownModel {
        /// The name that was asked for.
        model: String,
    },
    /// The model exists, this version of it does not.
    #[error("Model version: {version} does not exist for model: {model}")]
    UnknownVersion {
        /// The model.
        model: String,
        /// The version that was asked for.
        version: String,
    },
    /// No model of this name or version yet: the server has not loaded all models of its list.
    #[error(
        "The server has not loaded its list of models yet, and so not \"{model}\". Try again later. \
         [reason: loading]"
    )]
    NotYet {
        /// The name that was asked for.
        model: String,
    },
}

/// Why a model was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The archive could not be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Neither the caller nor the archive names the model.
    #[error("Model name is not defined.")]
    NoName,
    /// The caller asked for a runtime that does not exist.
    #[error("Invalid RuntimeType value: {0}")]
    BadRuntime(String),
    /// The packages that the model requires could not be installed.
    #[error("Custom pip package installation failed for model {model}")]
    Pip {
        /// The model.
        model: String,
        /// For the log.
        why: String,
    },
    /// The virtual environment that the model asks for could not be made.
    #[error("Virtual environment creation failed for model {model}")]
    Venv {
        /// The model.
        model: String,
        /// For the log.
        why: String,
    },
    /// The settings contradict themselves or the model.
    #[error("{0}")]
    BadSettings(String),
    /// This name and version are taken.
    #[error("Model version {version} is already registered for model {model}")]
    Conflict {
        /// The model.
        model: String,
        /// The version.
        version: String,
    },
    /// A path that the model wants to answer belongs to another model.
    #[error(
        "Model {model} wants to answer {path}, which model {owner} does: give one of them another \
         mount or route"
    )]
    PathTaken {
        /// The model.
        model: String,
        /// The path, or the prefix of a mount.
        path: String,
        /// The model that has it.
        owner: String,
    },
    /// The file is no model that can run in this process.
    #[error("{0}")]
    NotLoadable(String),
    /// It is to replace another model, and there is no memory for both.
    #[error(
        "There is no memory for the old and the new version of model {model} at the same time: the new one needs about \
         {} MiB, and {} MiB are free. With replace=stop the old one ends first.",
        needed >> 20, free >> 20
    )]
    NoRoomBeside {
        /// The model.
        model: String,
        /// Bytes that its workers need, as far as the old one tells.
        needed: u64,
        /// Bytes that no model holds.
        free: u64,
    },
    /// The server is ending.
    #[error("the server is shutting down")]
    Draining,
}

/// Why a model was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The new one cannot be registered; the old one stays.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The new one does not load.
    #[error("{error}")]
    Scale {
        /// The model.
        model: String,
        /// Its new version.
        version: String,
        /// Why.
        error: ScaleError,
    },
}

/// Why a number of workers was not reached.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScaleError {
    /// A worker did not come up.
    #[error("{0}")]
    Launch(LaunchError),
    /// The model went away meanwhile.
    #[error("the model was removed")]
    Gone,
}

/// Why the versions of a model do not share its requests as asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TrafficError {
    /// There is no such model or version.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Its rules cannot be kept, for this reason.
    #[error("{0}")]
    BadRules(String),
}

/// Why a model or version was not removed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UnregisterError {
    /// There is no such model or version.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// An application that is registered calls it.
    #[error("Model {model} version {version} is needed by {caller}: unregister {caller} first.")]
    Needed {
        /// The model.
        model: String,
        /// The version.
        version: String,
        /// Who calls it.
        caller: String,
    },
    /// The default version stays while there are others.
    #[error("Cannot remove default version for model {model}")]
    DefaultVersion {
        /// The model.
        model: String,
    },
}
