//! The one table of everything that can go wrong and how each door says it.
//!
//! [`ErrorCode::row`] holds HTTP status, gRPC code, TorchServe's type name, retryability and fault
//! side by side; below it every error of the engine finds its code and its words, in matches without
//! wildcards. Nothing else in this crate picks a status for a failure.

use std::time::Duration;

use jitney_engine::error::{CallError, LookupError, RegisterError, ScaleError, UnregisterError};
use jitney_engine::outcome::{Cause, LaunchError, ModelFailure};

mod grpc;
mod refusal;
mod store;
mod workflow;

pub(crate) use grpc::grpc_code_of;

/// Who has to change something for the error to go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Whoever sent the request.
    Client,
    /// Whoever runs the server.
    Server,
    /// Whoever wrote the model.
    Model,
}

/// Every kind of failure that a client can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// No endpoint has this path.
    ResourceNotFound,
    /// The endpoint does not take this method, or the model API is off.
    MethodNotAllowed,
    /// The request contradicts itself or the model.
    BadRequest,
    /// The token is missing, wrong, expired or meant for something else.
    InvalidKey,
    /// The operator's plugin said no.
    Denied,
    /// The body is larger than the server or any batch takes.
    TooLarge,
    /// No model of this name, or no archive at this place.
    ModelNotFound,
    /// No such version of the model.
    VersionNotFound,
    /// No workflow of this name, or no archive of one at this place.
    WorkflowNotFound,
    /// The archive is no workflow.
    InvalidWorkflow,
    /// The workflow's nodes have no order that a request could take.
    InvalidDag,
    /// A node of the workflow did not come up.
    WorkflowFailed,
    /// A node of the workflow did not answer, as often as it was tried.
    NodeFailed,
    /// The archive is no model.
    InvalidModel,
    /// What the model requires could not be installed.
    Unequipped,
    /// The archive could not be downloaded.
    DownloadFailed,
    /// Name and version are taken.
    Conflict,
    /// The default version stays while there are others.
    DefaultVersion,
    /// The deadline passed.
    Expired,
    /// The client went away; nobody reads this.
    Cancelled,
    /// Nobody is there to run the model.
    NoWorker,
    /// As much waits or runs as may.
    Busy,
    /// The client's own share is used up.
    Quota,
    /// The server or the model is ending.
    Ending,
    /// A plugin that is needed does not answer.
    PluginAway,
    /// A plugin failed on the request.
    PluginFailed,
    /// The handler failed on the request.
    Prediction,
    /// The handler ran out of memory.
    OutOfMemory,
    /// The worker died under the request.
    WorkerDied,
    /// The worker was killed under the request, as for want of memory.
    WorkerKilled,
    /// A worker did not come up.
    LoadFailed,
    /// A worker ran out of memory while it came up.
    LoadOutOfMemory,
    /// The server's own failure.
    Internal,
}

/// What the doors say about an [`ErrorCode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status.
    pub status: u16,
    /// gRPC code.
    pub grpc: u8,
    /// TorchServe's name for it, as `type` in the body.
    pub kind: &'static str,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Who has to change something.
    pub fault: Fault,
}

impl ErrorCode {
    /// The table.
    #[rustfmt::skip]
    pub const fn row(self) -> Row {
        use Fault::{Client, Model, Server};
        match self {
            //                          HTTP gRPC  type                              retry  fault
            Self::ResourceNotFound => row(404, 12, "ResourceNotFoundException",       false, Client),
            Self::MethodNotAllowed => row(405,  7, "MethodNotAllowedException",       false, Client),
            Self::BadRequest       => row(400,  3, "BadRequestException",             false, Client),
            Self::InvalidKey       => row(400,  7, "InvalidKeyException",             false, Client),
            Self::Denied           => row(403,  7, "AccessDeniedException",           false, Client),
            Self::TooLarge         => row(413, 11, "RequestEntityTooLargeException",  false, Client),
            Self::ModelNotFound    => row(404,  5, "ModelNotFoundException",          false, Client),
            Self::VersionNotFound  => row(404,  5, "ModelVersionNotFoundException",   false, Client),
            Self::WorkflowNotFound => row(404,  5, "WorkflowNotFoundException",       false, Client),
            Self::InvalidWorkflow  => row(500,  3, "InvalidWorkflowException",        false, Client),
            Self::InvalidDag       => row(400,  3, "InvalidDAGException",             false, Client),
            Self::WorkflowFailed   => row(500, 13, "WorkflowException",               false, Model),
            Self::NodeFailed       => row(500, 13, "InternalServerException",         true,  Model),
            Self::InvalidModel     => row(400,  3, "InvalidModelException",           false, Model),
            Self::Unequipped       => row(400,  3, "ModelException",                  true,  Model),
            Self::DownloadFailed   => row(400,  3, "DownloadArchiveException",        true,  Client),
            Self::Conflict         => row(409,  6, "ConflictStatusException",         false, Client),
            Self::DefaultVersion   => row(403,  9, "InvalidModelVersionException",    false, Client),
            Self::Expired          => row(408,  4, "RequestTimeoutException",         true,  Server),
            Self::Cancelled        => row(499,  1, "RequestCancelledException",       true,  Client),
            Self::NoWorker         => row(503, 14, "ServiceUnavailableException",     true,  Server),
            Self::Busy             => row(503,  8, "ServiceUnavailableException",     true,  Server),
            Self::Quota            => row(429,  8, "TooManyRequestsException",        true,  Client),
            Self::Ending           => row(503, 14, "ServiceUnavailableException",     true,  Server),
            Self::PluginAway       => row(503, 14, "ServiceUnavailableException",     true,  Server),
            Self::PluginFailed     => row(500, 13, "InternalServerException",         false, Server),
            Self::Prediction       => row(503, 14, "InternalServerException",         false, Model),
            Self::OutOfMemory      => row(507, 13, "InternalServerException",         false, Model),
            Self::WorkerDied       => row(500, 13, "InternalServerException",         true,  Model),
            Self::WorkerKilled     => row(507, 13, "InternalServerException",         true,  Model),
            Self::LoadFailed       => row(500, 13, "InternalServerException",         false, Model),
            Self::LoadOutOfMemory  => row(507, 13, "InternalServerException",         false, Model),
            Self::Internal         => row(500, 13, "InternalServerException",         false, Server),
        }
    }
}

const fn row(status: u16, grpc: u8, kind: &'static str, retryable: bool, fault: Fault) -> Row {
    Row { status, grpc, kind, retryable, fault }
}

/// A failure, ready to be told to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind it is.
    pub code: ErrorCode,
    /// The table's HTTP status, unless the handler asked for another.
    pub status: u16,
    /// One sentence for the client.
    pub message: String,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// A failure in words of its own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, status: code.row().status, message: message.into(), retry_after: None }
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

    /// A body beyond the server's limit.
    pub fn too_large(limit: u64) -> Self {
        let message = format!("The request body is larger than {limit} bytes.");
        Self::new(ErrorCode::TooLarge, message)
    }

    /// Workers that did not come up; TorchServe says `null` for a version nobody named.
    pub fn scale(error: &ScaleError, model: &str, version: Option<&str>) -> Self {
        let code = match error {
            ScaleError::Launch(LaunchError::Memory(_)) => ErrorCode::LoadOutOfMemory,
            ScaleError::Launch(
                LaunchError::Spawn(_)
                | LaunchError::Ended
                | LaunchError::TimedOut { .. }
                | LaunchError::Load(_),
            )
            | ScaleError::Gone => ErrorCode::LoadFailed,
        };
        let version = version.unwrap_or("null");
        Self::new(code, format!("Failed to start workers for model {model} version: {version}"))
    }

    /// An unknown name, in the words that only set-default uses.
    pub fn set_default(error: &LookupError) -> Self {
        match error {
            LookupError::UnknownModel { .. } => error.into(),
            LookupError::UnknownVersion { model, version } => Self::new(
                ErrorCode::VersionNotFound,
                format!("Model version {version} does not exist for model {model}"),
            ),
        }
    }
}

/// What a call was for, to be named in its failure.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The model.
    pub model: &'a str,
    /// The version, if the client named one.
    pub version: Option<&'a str>,
    /// What the worker was to do: `inference` or `describe`.
    pub purpose: &'static str,
    /// How many requests may wait for the model.
    pub queue_max: u32,
}

impl Asked<'_> {
    /// How this call's failure is told.
    pub fn problem(&self, error: &CallError) -> Problem {
        match error {
            CallError::Refused { reason, retry_after } => self.refusal(*reason, *retry_after),
            CallError::Crowded { what } => self.crowded(what),
            CallError::Sequence(refusal) => self.sequence(*refusal),
            CallError::BadInput(message) => Problem::bad_request(message),
            CallError::Model(failure) => model_failure(failure),
            CallError::WorkerDied { killed: false } => {
                Problem::new(ErrorCode::WorkerDied, "Worker died.")
            }
            CallError::WorkerDied { killed: true } => {
                Problem::new(ErrorCode::WorkerKilled, "Worker died.")
            }
            CallError::Outpaced => {
                let message = "The client read its stream too slowly.";
                Problem::new(ErrorCode::Busy, message)
            }
            CallError::Gone => self.gone(),
        }
    }
}

/// The model's failure. Code 413 from inside a handler is shown as 507, as in TorchServe; definitions
/// mean what they say.
fn model_failure(failure: &ModelFailure) -> Problem {
    let code = match failure.cause {
        Cause::Memory => ErrorCode::OutOfMemory,
        Cause::Raised
        | Cause::Prediction
        | Cause::NotAList
        | Cause::WrongLength
        | Cause::UnsupportedOutput
        | Cause::Stated => ErrorCode::Prediction,
    };
    let mut problem = Problem::new(code, failure.message.as_str());
    match failure.status {
        Some(413) if failure.cause != Cause::Stated => problem.status = 507,
        Some(status @ 200..=999) => problem.status = status,
        Some(_) | None => {}
    }
    problem
}

impl From<&LookupError> for Problem {
    fn from(error: &LookupError) -> Self {
        let code = match error {
            LookupError::UnknownModel { .. } => ErrorCode::ModelNotFound,
            LookupError::UnknownVersion { .. } => ErrorCode::VersionNotFound,
        };
        Self::new(code, error.to_string())
    }
}

impl From<LookupError> for Problem {
    fn from(error: LookupError) -> Self {
        Self::from(&error)
    }
}

impl From<RegisterError> for Problem {
    fn from(error: RegisterError) -> Self {
        let code = match &error {
            RegisterError::Store(error) => store::code(error),
            RegisterError::NoName | RegisterError::Onnx(_) => ErrorCode::InvalidModel,
            RegisterError::BadRuntime(_) | RegisterError::BadSettings(_) => ErrorCode::BadRequest,
            RegisterError::Pip { .. } | RegisterError::Venv { .. } => ErrorCode::Unequipped,
            RegisterError::Conflict { .. } => ErrorCode::Conflict,
            RegisterError::Draining => ErrorCode::Ending,
        };
        Self::new(code, error.to_string())
    }
}

impl From<UnregisterError> for Problem {
    fn from(error: UnregisterError) -> Self {
        match &error {
            UnregisterError::Lookup(error) => error.into(),
            UnregisterError::DefaultVersion { .. } => {
                Self::new(ErrorCode::DefaultVersion, error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests;
