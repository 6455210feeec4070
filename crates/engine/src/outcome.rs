//! How a batch can end, in facts rather than in status codes: the doors turn causes into codes.

use crate::call::Output;

/// Why the model's code did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The handler raised.
    Raised,
    /// It ran out of host or device memory.
    Memory,
    /// It raised a `PredictionException` with a status of its own.
    Prediction,
    /// It returned something that is not a list.
    NotAList,
    /// It returned a list of another length than the batch.
    WrongLength,
    /// An element of its answer cannot be serialised.
    UnsupportedOutput,
    /// A definition in Python failed an item, and its status means what HTTP says it means.
    Stated,
}

/// A failure of the model's own code, with the words its client may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    /// What went wrong.
    pub cause: Cause,
    /// The status that the handler asked for, if it did.
    pub status: Option<u16>,
    /// One sentence for the client; tracebacks stay in the log.
    pub message: String,
}

/// How one item of a batch ended.
pub type ItemOutcome = Result<Output, ModelFailure>;

/// What a living worker says about a batch.
#[derive(Clone, Debug)]
pub enum BatchOutcome {
    /// One outcome per request, in order. The length is checked by the scatter, not believed.
    Items(Vec<ItemOutcome>),
    /// The handler failed on the batch as a whole.
    Failed(ModelFailure),
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerExit {
    /// The process or thread ended by itself or was killed by somebody else.
    Crashed {
        /// The kernel's out-of-memory killer (exit by SIGKILL) is the likely cause.
        killed: bool,
    },
    /// It did not answer in time and was killed by its supervisor.
    TimedOut,
    /// It spoke another protocol than ours.
    Garbled,
}

/// Why a worker did not come up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The process could not be started at all.
    #[error("cannot start the worker: {0}")]
    Spawn(String),
    /// It ended or hung up before it had loaded the model.
    #[error("the worker ended while loading the model")]
    Ended,
    /// The model did not load in time.
    #[error("the worker did not load the model within {seconds} s")]
    TimedOut {
        /// The limit that was passed.
        seconds: u64,
    },
    /// Loading ran out of host or device memory.
    #[error("loading the model ran out of memory: {0}")]
    Memory(String),
    /// The model's code refused to load.
    #[error("the model did not load: {0}")]
    Load(String),
}
