//! The table itself: every kind of failure with HTTP status, gRPC code, TorchServe's type name,
//! retryability and fault side by side, so that no two server can tell the same failure differently.

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

/// What the server say about an [`ErrorCode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRow {
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
    pub const fn row(self) -> ErrorRow {
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

const fn row(status: u16, grpc: u8, kind: &'static str, retryable: bool, fault: Fault) -> ErrorRow {
    ErrorRow { status, grpc, kind, retryable, fault }
}
