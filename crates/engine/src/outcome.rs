//! How a batch, a worker or its start can end, in facts rather than in status codes: the server turns
//! causes into codes.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::process::ProcessEnd;
use crate::tensors::NamedTensor;

/// What a model said about one item's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Status and reason phrase, when the handler set them.
    pub status: Option<(u16, String)>,
    /// Headers that the handler set, in its spelling.
    pub headers: Vec<(String, String)>,
    /// The answer.
    pub body: Bytes,
    /// The answer to a request in tensors, from models that give tensors; the body is empty then.
    pub tensors: Option<Box<[NamedTensor]>>,
}

impl Output {
    /// The bytes of the answer.
    pub fn bytes(&self) -> usize {
        let tensors = self.tensors.iter().flatten().map(|tensor| tensor.data().len());
        self.body.len() + tensors.sum::<usize>()
    }
}

/// Why the model's code did not answer; as words for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Cause {
    /// The handler raised.
    #[error("the model raised an exception")]
    Raised,
    /// It ran out of host or device memory.
    #[error("the model ran out of memory")]
    Memory,
    /// It raised a `PredictionException` with a status of its own.
    #[error("the model chose the status of the answer")]
    Prediction,
    /// It returned something that is not a list.
    #[error("the model returned no list")]
    NotAList,
    /// It returned a list of another length than the batch.
    #[error("the model returned another number of answers than the batch has items")]
    WrongLength,
    /// An element of its answer cannot be serialised.
    #[error("the model returned something that cannot be sent")]
    UnsupportedOutput,
    /// A definition in Python failed an item, and its status means what HTTP says it means.
    #[error("the model chose the status of the answer")]
    Stated,
    /// Its answer is larger than the server passes on.
    #[error("the answer is too large")]
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
    /// The fields of the request that do not fit, each with the reason.
    pub fields: Vec<(String, String)>,
}

impl ModelFailure {
    /// A failure without a status of its own.
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, status: None, message: message.into(), fields: Vec::new() }
    }

    /// The failure of a model that raised.
    pub fn raised(message: impl Into<String>) -> Self {
        Self::new(Cause::Raised, message)
    }

    /// The failure of a request that the model cannot be run on, whoever tries it: 400.
    pub fn unfit(message: impl Into<String>) -> Self {
        Self::new(Cause::Stated, message).with_status(Some(400))
    }

    /// A failure with the status that the model asked for.
    pub fn with_status(self, status: Option<u16>) -> Self {
        Self { status, ..self }
    }
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
    TimedOut {
        /// The limit that was passed.
        limit: Duration,
    },
    /// It needed more memory than it may have, and aborted or was ended.
    OutOfMemory {
        /// What it asked for, where it says that.
        bytes: Option<u64>,
    },
    /// It sent something that is not in the protocol.
    BrokeProtocol,
    /// It was killed, and the kernel counted a process that it ended because memory ran out, or does not
    /// tell.
    KilledForMemory {
        /// Whether the kernel counted one.
        certain: bool,
        /// The bytes that it held when it was last looked at.
        memory: Option<u64>,
    },
    /// It ran on another machine, which was lost, or the connection to it.
    Lost,
}

/// What is said of a worker that the kernel killed, and of one that it may have killed.
const KERNEL: &str = "the kernel's out-of-memory killer ended it";
const PERHAPS: &str = "perhaps out of memory";

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The kinds of exits, as metrics name them.
pub const EXIT_KINDS: [&str; 5] =
    ["exited", "killed", "timed_out", "broke_protocol", "out_of_memory"];

impl WorkerExit {
    /// The end of a thread, or of a process of which nothing more is known.
    pub(crate) const UNEXPLAINED: Self = Self::Ended { status: None, signal: None };

    /// The end of a process, if that is known.
    pub(crate) fn of_process(end: Option<ProcessEnd>) -> Self {
        let Some(ProcessEnd { status, out_of_memory, memory, beyond_limit, lost }) = end else {
            return Self::UNEXPLAINED;
        };
        if lost {
            return Self::Lost;
        }
        if beyond_limit {
            return Self::OutOfMemory { bytes: None };
        }
        match (status.signal(), out_of_memory) {
            (Some(SIGKILL), Some(true)) => Self::KilledForMemory { certain: true, memory },
            (Some(SIGKILL), None) => Self::KilledForMemory { certain: false, memory },
            (signal, _) => Self::Ended { status: status.code(), signal },
        }
    }

    /// The position of its kind in [`EXIT_KINDS`].
    pub(crate) fn kind(self) -> usize {
        match self {
            Self::Ended { signal: None, .. } => 0,
            Self::Ended { signal: Some(_), .. } => 1,
            Self::TimedOut { .. } => 2,
            Self::BrokeProtocol => 3,
            Self::KilledForMemory { certain: false, .. } | Self::Lost => 1,
            Self::OutOfMemory { .. } | Self::KilledForMemory { certain: true, .. } => 4,
        }
    }

    /// Whether it was killed as the kernel kills when memory runs out.
    pub fn is_killed(self) -> bool {
        matches!(self, Self::Ended { signal: Some(SIGKILL), .. } | Self::KilledForMemory { .. })
    }

    /// Whether it aborted.
    pub(crate) fn is_abort(self) -> bool {
        matches!(self, Self::Ended { signal: Some(SIGABRT), .. })
    }

    /// Whether something else than its own code may have ended it: the kernel, an operator.
    pub(crate) fn is_from_outside(self) -> bool {
        self.is_killed() || matches!(self, Self::Lost | Self::Ended { signal: Some(SIGTERM), .. })
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::KilledForMemory { certain, memory } => {
                write!(
                    out,
                    "killed by signal {SIGKILL} ({}",
                    if certain { KERNEL } else { PERHAPS }
                )?;
                memory.map_or(Ok(()), |bytes| {
                    write!(out, "; it held {} a second before", shown_bytes(bytes))
                })?;
                out.write_str(")")
            }
            Self::Ended { signal: Some(signal), .. } => write!(out, "killed by signal {signal}"),
            Self::Ended { status: Some(status), .. } => write!(out, "exit status {status}"),
            Self::Ended { .. } => out.write_str("ended"),
            Self::TimedOut { limit } => {
                write!(out, "ran longer than response_timeout ({} s)", limit.as_secs_f64())
            }
            Self::OutOfMemory { bytes: Some(bytes) } => {
                write!(out, "ran out of memory when it asked for {bytes} bytes more")
            }
            Self::OutOfMemory { bytes: None } => {
                out.write_str("needed more memory than its memory_limit allows")
            }
            Self::BrokeProtocol => out.write_str("broke the protocol"),
            Self::Lost => out.write_str("its node or the connection to it was lost"),
        }
    }
}

/// Bytes for people, such as `3.2 GiB`.
pub(crate) fn shown_bytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes >= 1024.0 {
        format!("{:.1} GiB", mebibytes / 1024.0)
    } else {
        format!("{mebibytes:.0} MiB")
    }
}

/// Why a worker did not come up. Its text is one line, for clients, descriptions and the log alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// The process could not be started at all.
    Spawn(String),
    /// It ended or hung up before it had loaded the model.
    Ended {
        /// How it ended.
        exit: WorkerExit,
        /// The last line that it printed as an error; empty if there was none.
        last_line: String,
    },
    /// The model did not load in time.
    TimedOut {
        /// The limit that was passed.
        seconds: u64,
    },
    /// Loading ran out of host or device memory.
    Memory(LoadFault),
    /// The model's code did not load.
    Load(LoadFault),
    /// It was not started: its model does not fit beside those that stay.
    NoRoom {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that those hold.
        stay: u64,
        /// Bytes for all models.
        limit: u64,
        /// The GPU of whose memory this is said.
        gpu: Option<u32>,
    },
    /// It was not started: those who waited for it have gone.
    Unwanted,
}

impl LaunchError {
    /// The traceback of the model's code; empty where there is none.
    pub(crate) fn traceback(&self) -> &str {
        match self {
            Self::Memory(fault) | Self::Load(fault) => &fault.traceback,
            Self::Spawn(_)
            | Self::Ended { .. }
            | Self::TimedOut { .. }
            | Self::NoRoom { .. }
            | Self::Unwanted => "",
        }
    }

    /// How the process ended, if that is why.
    pub(crate) fn exit(&self) -> Option<WorkerExit> {
        match self {
            Self::Ended { exit, .. } => Some(*exit),
            Self::Spawn(_)
            | Self::TimedOut { .. }
            | Self::Memory(_)
            | Self::Load(_)
            | Self::NoRoom { .. }
            | Self::Unwanted => None,
        }
    }
}

impl std::error::Error for LaunchError {}

impl fmt::Display for LaunchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(why) => write!(out, "cannot start the worker: {}", last_line(why)),
            Self::Ended { exit, last_line } if last_line.is_empty() => write!(out, "{exit}"),
            Self::Ended { exit, last_line } => write!(out, "{exit}: {last_line}"),
            Self::TimedOut { seconds } => write!(out, "did not load within {seconds} s"),
            Self::Memory(fault) | Self::Load(fault) => out.write_str(last_line(&fault.message)),
            Self::NoRoom { needed, stay, limit, gpu } => {
                let [needed, stay, limit] = [needed, stay, limit].map(|it| shown_bytes(*it));
                if let Some(gpu) = gpu {
                    return write!(
                        out,
                        "it needs {needed} of a GPU; on GPU {gpu}, which has most room, models that stay and other \
                         programs hold {stay}, and gpu_memory={limit} is for all of them"
                    );
                }
                write!(
                    out,
                    "it needs {needed}, models that stay hold {stay}, and memory={limit} is for all of them"
                )
            }
            Self::Unwanted => out.write_str("nobody waits for it any more"),
        }
    }
}

/// What the model's code said when it did not load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFault {
    /// The exception, in one or more lines.
    pub message: String,
    /// Where it came from; empty where that is not known.
    pub traceback: String,
}

impl<T: Into<String>> From<T> for LoadFault {
    fn from(message: T) -> Self {
        Self { message: message.into(), traceback: String::new() }
    }
}

/// Bytes of an error that are told to others than the log.
const LINE_BYTES_MAX: usize = 500;

/// The last line that is not empty, without what is too long of it.
pub(crate) fn last_line(text: &str) -> &str {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    &line[..line.floor_char_boundary(LINE_BYTES_MAX.min(line.len()))]
}

/// A load that failed, and when the next one is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFailure {
    /// Why it failed.
    pub error: LaunchError,
    /// When the next try begins; none if there is no other.
    pub retry_at: Option<Instant>,
}

impl LoadFailure {
    /// How long it takes until the next try begins.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match &self.error {
            LaunchError::Memory(_) | LaunchError::Load(_) => " with",
            LaunchError::Spawn(_)
            | LaunchError::Ended { .. }
            | LaunchError::TimedOut { .. }
            | LaunchError::NoRoom { .. }
            | LaunchError::Unwanted => ":",
        };
        write!(out, "loading failed{link} {}", self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_told_as_people_look_for_it() {
        let ended = |status, signal| WorkerExit::Ended { status, signal }.to_string();
        assert_eq!(ended(Some(3), None), "exit status 3");
        assert_eq!(ended(None, Some(11)), "killed by signal 11");
        assert_eq!(ended(None, Some(9)), "killed by signal 9");
        let killed = |certain, memory| WorkerExit::KilledForMemory { certain, memory }.to_string();
        assert_eq!(killed(false, None), "killed by signal 9 (perhaps out of memory)");
        assert_eq!(
            killed(true, Some(3_435_973_837)),
            "killed by signal 9 (the kernel's out-of-memory killer ended it; it held 3.2 GiB a second before)"
        );
        assert_eq!(WorkerExit::UNEXPLAINED.to_string(), "ended");
        let late = WorkerExit::TimedOut { limit: Duration::from_secs(3) };
        assert_eq!(late.to_string(), "ran longer than response_timeout (3 s)");
    }

    #[test]
    fn a_failed_load_is_told_in_one_line() {
        let told = |error| LoadFailure { error, retry_at: None }.to_string();
        let syntax =
            "  File \"h.py\", line 1\n    import\n          ^\nSyntaxError: invalid syntax\n";
        assert_eq!(
            told(LaunchError::Load(syntax.into())),
            "loading failed with SyntaxError: invalid syntax"
        );
        let exit = WorkerExit::Ended { status: Some(3), signal: None };
        let ended = |line: &str| LaunchError::Ended { exit, last_line: line.to_owned() };
        assert_eq!(told(ended("")), "loading failed: exit status 3");
        assert_eq!(told(ended("no torch")), "loading failed: exit status 3: no torch");
        let late = LaunchError::TimedOut { seconds: 5 };
        assert_eq!(told(late), "loading failed: did not load within 5 s");
        assert_eq!(last_line(&"ü".repeat(999)).len(), LINE_BYTES_MAX);
    }
}
