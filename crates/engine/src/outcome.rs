//! How a batch can end, in facts rather than in status codes: the server turns causes into codes.

use bytes::Bytes;

/// What a model said about one item's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Status and reason phrase, when the handler set them.
    pub status: Option<(u16, String)>,
    /// Headers that the handler set, in its spelling.
    pub headers: Vec<(String, String)>,
    /// The answer.
    pub body: Bytes,
}

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
    /// Its answer is larger than the server passes on.
    TooLarge,
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
pub enum WorkerExit {
    /// The process or thread ended by itself, or something outside of the server ended it.
    Ended {
        /// The exit status of a process.
        status: Option<i32>,
        /// The signal that killed it.
        signal: Option<i32>,
    },
    /// It did not answer in time and was killed by its supervisor.
    TimedOut,
    /// It asked for more memory than it may have, and aborted.
    OutOfMemory {
        /// What it asked for.
        bytes: u64,
    },
    /// It sent something that is not in the protocol.
    BrokeProtocol,
}

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

impl WorkerExit {
    /// The end of a thread, or of a process of which nothing more is known.
    pub(crate) const UNEXPLAINED: Self = Self::Ended { status: None, signal: None };

    /// Whether it was killed as the kernel kills when memory runs out.
    pub(crate) fn is_killed(self) -> bool {
        matches!(self, Self::Ended { signal: Some(SIGKILL), .. })
    }

    /// Whether something else than its own code may have ended it: the kernel, an operator.
    pub(crate) fn is_from_outside(self) -> bool {
        matches!(self, Self::Ended { signal: Some(SIGKILL | SIGTERM), .. })
    }
}

impl std::fmt::Display for WorkerExit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Ended { signal: Some(SIGKILL), .. } => {
                write!(out, "killed by signal {SIGKILL} (out of memory?)")
            }
            Self::Ended { signal: Some(signal), .. } => write!(out, "killed by signal {signal}"),
            Self::Ended { status: Some(status), .. } => write!(out, "exit status {status}"),
            Self::Ended { .. } => out.write_str("ended"),
            Self::TimedOut => out.write_str("did not answer in time"),
            Self::OutOfMemory { bytes } => {
                write!(out, "ran out of memory when it asked for {bytes} bytes more")
            }
            Self::BrokeProtocol => out.write_str("broke the protocol"),
        }
    }
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
    /// The model's code did not load.
    #[error("the model did not load: {0}")]
    Load(String),
}

#[cfg(test)]
mod tests {
    use super::WorkerExit;

    #[test]
    fn an_exit_is_told_as_people_look_for_it() {
        let ended = |status, signal| WorkerExit::Ended { status, signal }.to_string();
        assert_eq!(ended(Some(3), None), "exit status 3");
        assert_eq!(ended(None, Some(11)), "killed by signal 11");
        assert_eq!(ended(None, Some(9)), "killed by signal 9 (out of memory?)");
        assert_eq!(WorkerExit::UNEXPLAINED.to_string(), "ended");
    }
}
