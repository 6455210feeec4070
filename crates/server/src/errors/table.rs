//! The table itself: every kind of failure with HTTP status, gRPC code, TorchServe's type name,
//! retryability and fault side by side, so that all protocols report a failure alike.

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
    /// Keys have names, and the request brought none that is in force.
    UnknownKey,
    /// The operator's plugin denied the request, or no scope of its key allows it.
    Denied,
    /// A web page of another site sent the request to management.
    ForeignOrigin,
    /// HTTP came where only HTTPS is spoken.
    HttpsOnly,
    /// The head is not what HTTP demands; the connection ends.
    InvalidHead,
    /// The head has more headers than the server takes.
    HeadTooLarge,
    /// The body is larger than the server or any batch takes.
    TooLarge,
    /// The body is compressed in a way that is not known.
    UnknownCoding,
    /// The body came too slowly and was cut.
    TooSlow,
    /// There is no memory for the body.
    NoRoom,
    /// TorchServe does not serve this either.
    NotServed,
    /// No model of this name, or no archive at this URL.
    ModelNotFound,
    /// No such version of the model.
    VersionNotFound,
    /// No workflow of this name, or no archive of one at this URL.
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
    /// The packages that the model requires could not be installed.
    Unequipped,
    /// The archive could not be downloaded.
    DownloadFailed,
    /// Name and version are taken.
    Conflict,
    /// The default version stays while there are others.
    DefaultVersion,
    /// The request belongs to a sequence that another server holds, or nobody any more.
    SequenceLost,
    /// The deadline passed.
    Expired,
    /// The client went away.
    Cancelled,
    /// No worker runs the model.
    NoWorker,
    /// A limit of waiting or running requests is reached.
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
    /// The worker exited while it ran the request.
    WorkerDied,
    /// The worker was killed while it ran the request, as when memory runs out.
    WorkerKilled,
    /// A worker did not come up.
    LoadFailed,
    /// A worker ran out of memory while it came up.
    LoadOutOfMemory,
    /// The disk has no room for the model.
    DiskFull,
    /// The server's own failure.
    Internal,
}

/// A failure in each protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// HTTP status.
    pub status: u16,
    /// gRPC code.
    pub grpc: u8,
    /// The package of TorchServe's class for it.
    pub package: &'static str,
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
            //                          package   HTTP gRPC  type                              retry  fault
            Self::ResourceNotFound => row(HTTP    , 404, 12, "ResourceNotFoundException",       false, Client),
            Self::MethodNotAllowed => row(HTTP    , 405,  7, "MethodNotAllowedException",       false, Client),
            Self::BadRequest       => row(HTTP    , 400,  3, "BadRequestException",             false, Client),
            Self::InvalidKey       => row(HTTP    , 400,  7, "InvalidKeyException",             false, Client),
            Self::UnknownKey       => row(HTTP    , 401, 16, "InvalidKeyException",             false, Client),
            Self::Denied           => row(HTTP    , 403,  7, "AccessDeniedException",           false, Client),
            Self::ForeignOrigin    => row(HTTP    , 403,  7, "ForeignOriginException",          false, Client),
            Self::HttpsOnly        => row(HTTP    , 403,  7, "AccessDeniedException",           false, Client),
            Self::InvalidHead      => row(HTTP    , 400,  3, "BadRequestException",             false, Client),
            Self::HeadTooLarge     => row(HTTP    , 431,  3, "BadRequestException",             false, Client),
            Self::TooLarge         => row(HTTP    , 413, 11, "RequestEntityTooLargeException",  false, Client),
            Self::UnknownCoding    => row(HTTP    , 415, 12, "UnsupportedMediaTypeException",   false, Client),
            Self::TooSlow          => row(HTTP    , 408,  4, "RequestTimeoutException",         true,  Client),
            Self::NoRoom           => row(HTTP    , 503,  8, "ServiceUnavailableException",     true,  Server),
            Self::NotServed        => row(HTTP    , 501, 12, "NotImplementedException",         false, Client),
            Self::ModelNotFound    => row(MODEL   , 404,  5, "ModelNotFoundException",          false, Client),
            Self::VersionNotFound  => row(MODEL   , 404,  5, "ModelVersionNotFoundException",   false, Client),
            Self::WorkflowNotFound => row(WORKFLOW, 404,  5, "WorkflowNotFoundException",       false, Client),
            Self::InvalidWorkflow  => row(WORKFLOW, 400,  3, "InvalidWorkflowException",        false, Client),
            Self::InvalidDag       => row(WORKFLOW, 400,  3, "InvalidDAGException",             false, Client),
            Self::WorkflowFailed   => row(WORKFLOW, 500, 13, "WorkflowException",               false, Model),
            Self::NodeFailed       => row(HTTP    , 500, 13, "InternalServerException",         true,  Model),
            Self::InvalidModel     => row(MODEL   , 400,  3, "InvalidModelException",           false, Model),
            Self::Unequipped       => row(MODEL   , 400,  3, "ModelException",                  true,  Model),
            Self::DownloadFailed   => row(ARCHIVE , 400,  3, "DownloadArchiveException",        true,  Client),
            Self::Conflict         => row(HTTP    , 409,  6, "ConflictStatusException",         false, Client),
            Self::DefaultVersion   => row(HTTP    , 403,  9, "InvalidModelVersionException",    false, Client),
            Self::SequenceLost     => row(HTTP    , 409,  9, "ConflictStatusException",         false, Client),
            Self::Expired          => row(HTTP    , 408,  4, "RequestTimeoutException",         true,  Server),
            Self::Cancelled        => row(HTTP    , 499,  1, "RequestCancelledException",       true,  Client),
            Self::NoWorker         => row(HTTP    , 503, 14, "ServiceUnavailableException",     true,  Server),
            Self::Busy             => row(HTTP    , 503,  8, "ServiceUnavailableException",     true,  Server),
            Self::Quota            => row(HTTP    , 429,  8, "TooManyRequestsException",        true,  Client),
            Self::Ending           => row(HTTP    , 503, 14, "ServiceUnavailableException",     true,  Server),
            Self::PluginAway       => row(HTTP    , 503, 14, "ServiceUnavailableException",     true,  Server),
            Self::PluginFailed     => row(HTTP    , 500, 13, "InternalServerException",         false, Server),
            Self::Prediction       => row(HTTP    , 503, 14, "InternalServerException",         false, Model),
            Self::OutOfMemory      => row(HTTP    , 507, 13, "InternalServerException",         false, Model),
            Self::WorkerDied       => row(HTTP    , 500, 13, "InternalServerException",         true,  Model),
            Self::WorkerKilled     => row(HTTP    , 507, 13, "InternalServerException",         true,  Model),
            Self::LoadFailed       => row(HTTP    , 500, 13, "InternalServerException",         false, Model),
            Self::LoadOutOfMemory  => row(HTTP    , 507, 13, "InternalServerException",         false, Model),
            Self::DiskFull         => row(HTTP    , 507,  8, "InternalServerException",         true,  Server),
            Self::Internal         => row(HTTP    , 500, 13, "InternalServerException",         false, Server),
        }
    }
}

const HTTP: &str = "org.pytorch.serve.http";
const ARCHIVE: &str = "org.pytorch.serve.archive";
const MODEL: &str = "org.pytorch.serve.archive.model";
const WORKFLOW: &str = "org.pytorch.serve.archive.workflow";

const fn row(
    package: &'static str,
    status: u16,
    grpc: u8,
    kind: &'static str,
    retryable: bool,
    fault: Fault,
) -> ErrorRow {
    ErrorRow { package, status, grpc, kind, retryable, fault }
}
