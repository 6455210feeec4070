//! Everything that can go wrong, and how each protocol reports it.
//!
//! `table` has every [`ErrorCode`] in each protocol; here every error of the engine gets its code and its
//! message, in matches without wildcards. Nothing else in this crate picks a status for a failure.

use std::borrow::Cow;
use std::time::Duration;

use jitney_engine::admission::CutReason;
use jitney_engine::error::{
    CallError, LookupError, RegisterError, RepositoryError, ScaleError, TrafficError,
    UnregisterError,
};
use jitney_engine::outcome::{Cause, LaunchError, ModelFailure};
use jitney_engine::store::{Excess, StoreError};
use jitney_engine::workflow::{RunError, UnknownWorkflow, WorkflowError};
use jitney_net::BodyError;
use jitney_net::compression::CodingError;
use jitney_net::http::HeadError;
use jitney_telemetry::FollowError;

mod grpc;
mod jobs;
mod loading;
mod rejection;
mod table;

pub(crate) use grpc::grpc_code_of;
pub use table::{ErrorCode, ErrorRow, Fault};

use jitney_settings::Dialect;

/// A failure as a client gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind it is.
    pub code: ErrorCode,
    /// The table's HTTP status, unless the handler asked for another.
    pub status: u16,
    /// One sentence for the client.
    pub message: String,
    /// What TorchServe's sentence leaves out.
    pub reason: Option<String>,
    /// The fields of the request that do not fit, each with the reason; clients of TorchServe do not get them.
    pub fields: Vec<(String, String)>,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// A failure with a message of its own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let (status, message) = (code.row().status, message.into());
        Self { code, status, message, reason: None, fields: Vec::new(), retry_after: None }
    }

    /// Whether the caller may not do it. That an operation which changes something is switched off counts too.
    pub(crate) fn is_denial(&self, changes: bool) -> bool {
        use ErrorCode::{Denied, ForeignOrigin, InvalidKey, MethodNotAllowed, UnknownKey};
        matches!(self.code, InvalidKey | UnknownKey | Denied | ForeignOrigin)
            || changes && self.code == MethodNotAllowed
    }

    /// The message with its reason, for protocols that have one text only.
    pub fn full_message(&self) -> Cow<'_, str> {
        match &self.reason {
            None => Cow::Borrowed(&self.message),
            Some(reason) => Cow::Owned(format!("{} ({reason})", self.message)),
        }
    }

    /// A request that contradicts itself.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// A path that no endpoint has.
    pub fn not_found() -> Self {
        let message = "Requested resource is not found, please refer to API document.";
        Self::new(ErrorCode::ResourceNotFound, message)
    }

    /// A method that the path does not take.
    pub fn method_not_allowed() -> Self {
        let message = "Requested method is not allowed, please refer to API document.";
        Self::new(ErrorCode::MethodNotAllowed, message)
    }

    /// A key that is missing, or that is in force no more.
    pub fn unknown_key() -> Self {
        let message = "The key is missing, unknown, revoked or expired: send Authorization: Bearer KEY with a key of \
                       this server.";
        Self::new(ErrorCode::UnknownKey, message)
    }

    /// A body beyond the server's limit.
    pub fn too_large(limit: u64) -> Self {
        let message = format!("The request body is larger than {limit} bytes.");
        Self::new(ErrorCode::TooLarge, message)
    }

    /// A body that was cut on its way in, or for which there is no memory.
    pub fn cut(reason: CutReason) -> Self {
        let (code, message) = match reason {
            CutReason::Room => (
                ErrorCode::NoRoom,
                "The server has no memory for this request now (max_request_memory). Try again \
                 later. [reason: no_room]",
            ),
            CutReason::Key => (
                ErrorCode::Quota,
                "The key has its share of the server's memory under way (max_request_share). Try again when some of \
                 its requests are answered. [reason: quota]",
            ),
            CutReason::TooSlow => (
                ErrorCode::TooSlow,
                "The request body came too slowly (min_body_rate). [reason: too_slow]",
            ),
            CutReason::TooLong | CutReason::Unread => (
                ErrorCode::TooSlow,
                "The request body took too long to come (body_timeout). [reason: too_long]",
            ),
        };
        let retry_after =
            matches!(reason, CutReason::Room | CutReason::Key).then_some(Duration::from_secs(1));
        Self { retry_after, ..Self::new(code, message) }
    }

    /// Workers that did not start; TorchServe writes `null` for an absent version.
    pub fn scale(dialect: Dialect, error: &ScaleError, model: &str, version: Option<&str>) -> Self {
        let code = match error {
            ScaleError::Launch(LaunchError::Memory(_) | LaunchError::NoRoom { .. }) => {
                ErrorCode::LoadOutOfMemory
            }
            ScaleError::Launch(
                LaunchError::Spawn(_)
                | LaunchError::Ended { .. }
                | LaunchError::TimedOut { .. }
                | LaunchError::Load(_)
                | LaunchError::Unwanted,
            )
            | ScaleError::Gone => ErrorCode::LoadFailed,
        };
        let version = version.unwrap_or("null");
        let message = format!("Failed to start workers for model {model} version: {version}");
        match error {
            ScaleError::Launch(error) => Self::new(code, message).explained(dialect, ": ", error),
            ScaleError::Gone => Self::new(code, message),
        }
    }

    /// Adds what happened: to the message, or beside TorchServe's.
    fn explained(mut self, dialect: Dialect, link: &str, error: &dyn std::fmt::Display) -> Self {
        match dialect {
            Dialect::Jitney => self.message = format!("{}{link}{error}", self.message),
            Dialect::TorchServe => self.reason = Some(error.to_string()),
        }
        self
    }

    /// An unknown name, with the message of set-default.
    pub fn set_default(error: &LookupError) -> Self {
        match error {
            LookupError::UnknownModel { .. } | LookupError::NotYet { .. } => error.into(),
            LookupError::UnknownVersion { model, version } => Self::new(
                ErrorCode::VersionNotFound,
                format!("Model version {version} does not exist for model {model}"),
            ),
        }
    }
}

/// A call that failed, as its message names it.
#[derive(Clone, Copy, Debug)]
pub struct FailedCall<'a> {
    /// The model.
    pub model: &'a str,
    /// The version, if the client named one.
    pub version: Option<&'a str>,
    /// What the worker was to do: `inference` or `describe`.
    pub purpose: &'static str,
    /// How many requests may wait for the model.
    pub queue_max: u32,
    /// Whose words the client reads.
    pub dialect: Dialect,
}

impl FailedCall<'_> {
    /// The failure as a client gets it.
    pub fn problem(&self, error: &CallError) -> Problem {
        match error {
            CallError::Rejected { reason, retry_after } => self.rejection(*reason, *retry_after),
            CallError::ServerFull { what } => self.server_full(what),
            CallError::Sequence(rejection) => self.sequence(*rejection),
            CallError::BadInput(message) => Problem::bad_request(message),
            CallError::UnknownEndpoint(message) => {
                Problem::new(ErrorCode::ResourceNotFound, message.as_str())
            }
            CallError::Model(failure) => self.model_failure(failure),
            CallError::NotLoaded(failure) => self.not_loaded(failure),
            CallError::Loading(wait) => self.loading(*wait),
            CallError::WorkerExited { exit } => self.worker_exited(*exit),
            CallError::Poisonous => self.poisonous(),
            CallError::SlowReader => {
                let message = "The client read its stream too slowly.";
                Problem::new(ErrorCode::Busy, message)
            }
            CallError::Gone => self.gone(),
        }
    }

    /// The model's failure. A handler's 413 is shown as 507, as in TorchServe; a definition's is not.
    fn model_failure(&self, failure: &ModelFailure) -> Problem {
        let code = match failure.cause {
            Cause::Memory => ErrorCode::OutOfMemory,
            Cause::Raised
            | Cause::Prediction
            | Cause::NotAList
            | Cause::WrongLength
            | Cause::UnsupportedOutput
            | Cause::TooLarge => ErrorCode::Prediction,
            Cause::Stated => failure.status.map_or(ErrorCode::Prediction, stated_code),
        };
        let mut problem = Problem::new(code, failure.message.as_str());
        match failure.status {
            // TorchServe's worker dies of an answer that is too large.
            None if failure.cause == Cause::TooLarge => problem.status = 500,
            Some(413) if failure.cause != Cause::Stated => problem.status = 507,
            Some(status @ 200..=999) => problem.status = status,
            Some(_) | None => {}
        }
        if self.dialect == Dialect::Jitney {
            problem.fields.clone_from(&failure.fields);
        }
        problem
    }
}

/// What the status means that a definition failed a request with.
fn stated_code(status: u16) -> ErrorCode {
    match status {
        401 | 403 => ErrorCode::Denied,
        404 => ErrorCode::ResourceNotFound,
        408 | 504 => ErrorCode::Expired,
        409 => ErrorCode::Conflict,
        413 => ErrorCode::TooLarge,
        429 => ErrorCode::Quota,
        400..500 => ErrorCode::BadRequest,
        503 => ErrorCode::Busy,
        _ => ErrorCode::Prediction,
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::too_large(limit),
            BodyError::Cut(reason) => Self::cut(reason),
            BodyError::Ended => Self::bad_request("Invalid HTTP message."),
            BodyError::Coding(error) => error.into(),
            BodyError::Stalled(patience) => {
                let seconds = patience.as_secs_f32();
                let message =
                    format!("Nothing came of the request body for {seconds} s. [reason: too_slow]");
                Self::new(ErrorCode::TooSlow, message)
            }
        }
    }
}

impl From<HeadError> for Problem {
    fn from(error: HeadError) -> Self {
        let code = match error {
            HeadError::NoRoom => return Self::cut(CutReason::Room),
            HeadError::TooManyHeaders(_) => ErrorCode::HeadTooLarge,
            HeadError::BareLf | HeadError::Codings => ErrorCode::InvalidHead,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CodingError> for Problem {
    fn from(error: CodingError) -> Self {
        let code = match error {
            CodingError::Unknown(_) => ErrorCode::UnknownCoding,
            CodingError::Broken { .. } => ErrorCode::BadRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl From<FollowError> for Problem {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Full { .. } => {
                let problem = Self::new(ErrorCode::Busy, error.to_string());
                Self { reason: Some("too_many_streams".to_owned()), ..problem }
            }
            FollowError::Ending => Self::new(ErrorCode::Ending, error.to_string()),
        }
    }
}

impl From<&LookupError> for Problem {
    fn from(error: &LookupError) -> Self {
        let code = match error {
            LookupError::UnknownModel { .. } => ErrorCode::ModelNotFound,
            LookupError::UnknownVersion { .. } => ErrorCode::VersionNotFound,
            LookupError::NotYet { .. } => ErrorCode::NoWorker,
        };
        Self::new(code, error.to_string())
    }
}

impl From<LookupError> for Problem {
    fn from(error: LookupError) -> Self {
        Self::from(&error)
    }
}

impl From<TrafficError> for Problem {
    fn from(error: TrafficError) -> Self {
        match error {
            TrafficError::Lookup(error) => error.into(),
            TrafficError::BadRules(why) => Self::bad_request(why),
        }
    }
}

impl From<RegisterError> for Problem {
    fn from(error: RegisterError) -> Self {
        let code = match &error {
            RegisterError::Store(error) => store_code(error),
            RegisterError::NoName | RegisterError::NotLoadable(_) => ErrorCode::InvalidModel,
            RegisterError::BadRuntime(_) | RegisterError::BadSettings(_) => ErrorCode::BadRequest,
            RegisterError::Pip { .. } | RegisterError::Venv { .. } => ErrorCode::Unequipped,
            RegisterError::Conflict { .. } | RegisterError::PathTaken { .. } => ErrorCode::Conflict,
            RegisterError::NoRoomBeside { .. } => ErrorCode::LoadOutOfMemory,
            RegisterError::Draining => ErrorCode::Ending,
        };
        Self::new(code, error.to_string())
    }
}

impl From<RepositoryError> for Problem {
    fn from(error: RepositoryError) -> Self {
        let code = match &error {
            RepositoryError::Unknown { .. } => ErrorCode::ModelNotFound,
            RepositoryError::NotLoaded { .. } => ErrorCode::InvalidModel,
        };
        Self::new(code, error.to_string())
    }
}

impl From<UnregisterError> for Problem {
    fn from(error: UnregisterError) -> Self {
        match &error {
            UnregisterError::Lookup(error) => error.into(),
            UnregisterError::Needed { .. } => Self::new(ErrorCode::Conflict, error.to_string()),
            UnregisterError::DefaultVersion { .. } => {
                Self::new(ErrorCode::DefaultVersion, error.to_string())
            }
        }
    }
}

/// The code of a failure of the store; the message is the store's own.
fn store_code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::NotConfigured
        | StoreError::EmptyUrl
        | StoreError::RelativePath { .. }
        | StoreError::NotAllowed { .. }
        | StoreError::OutsideStore { .. }
        | StoreError::NotFound { .. } => ErrorCode::ModelNotFound,
        StoreError::DownloadFailed { .. } | StoreError::Checksum { .. } => {
            ErrorCode::DownloadFailed
        }
        StoreError::BadUrl { .. } | StoreError::NoChecksum { .. } => ErrorCode::BadRequest,
        StoreError::TooLarge { excess: Excess::Disk, .. } => ErrorCode::DiskFull,
        StoreError::Corrupt { .. }
        | StoreError::Hostile { .. }
        | StoreError::TooLarge { .. }
        | StoreError::InvalidRuntime { .. }
        | StoreError::InvalidManifest { .. }
        | StoreError::InvalidConfig { .. } => ErrorCode::InvalidModel,
        StoreError::AlreadyExists { .. } | StoreError::Io { .. } => ErrorCode::Internal,
    }
}

impl From<UnknownWorkflow> for Problem {
    fn from(error: UnknownWorkflow) -> Self {
        Self::new(ErrorCode::WorkflowNotFound, error.to_string())
    }
}

impl From<WorkflowError> for Problem {
    fn from(error: WorkflowError) -> Self {
        let code = match &error {
            WorkflowError::NotFound { .. } => ErrorCode::WorkflowNotFound,
            WorkflowError::Store(error) => of_workflow(store_code(error)),
            WorkflowError::Invalid(_) => ErrorCode::InvalidWorkflow,
            WorkflowError::Dag(_) => ErrorCode::InvalidDag,
            WorkflowError::Conflict { .. } => ErrorCode::Conflict,
            WorkflowError::Failed { .. } => ErrorCode::WorkflowFailed,
            WorkflowError::Draining => ErrorCode::Ending,
        };
        Self::new(code, error.to_string())
    }
}

/// The code of a model's archive for a workflow's.
fn of_workflow(code: ErrorCode) -> ErrorCode {
    if code == ErrorCode::ModelNotFound {
        ErrorCode::WorkflowNotFound
    } else if code == ErrorCode::InvalidModel {
        ErrorCode::InvalidWorkflow
    } else {
        code
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        match &error {
            RunError::Failed { .. } => Self::new(ErrorCode::NodeFailed, error.to_string()),
            RunError::Rejected { model, queue_max, error } => {
                let (queue_max, dialect) = (*queue_max, Dialect::TorchServe);
                let purpose = "inference";
                FailedCall { model, version: None, purpose, queue_max, dialect }.problem(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
