//! What a caller gives when registering a model, before the model was opened. The same for query
//! parameters, flags and files.

use std::collections::BTreeMap;

use jitney_settings::Values;

use crate::store::Sha256;

/// What a caller gives when registering a model; everything but the url may be left out.
#[derive(Clone, Debug, Default)]
pub struct RegisterOptions {
    /// File in the store, directory, `file://` URL, or a path to an `.onnx` file.
    pub url: String,
    /// Overrides the archive's own name.
    pub model_name: Option<String>,
    /// Overrides the archive's own version (only `jitney serve` offers it).
    pub version: Option<String>,
    /// Overrides the manifest's handler.
    pub handler: Option<String>,
    /// Overrides the manifest's runtime.
    pub runtime: Option<String>,
    /// The settings that the caller gives.
    pub settings: Values,
    /// What single endpoints of a definition take, where it is not what the model does.
    pub endpoints: BTreeMap<String, EndpointOptions>,
    /// Whether the server itself loads it at start-up.
    pub at_startup: bool,
    /// Whether a snapshot is restored: its workers win over the archive's.
    pub restored: bool,
    /// The workflow that the model is a node of.
    pub workflow: Option<String>,
    /// The sum its file must have.
    pub sha256: Option<Sha256>,
    /// Fetch it from S3 with the server's own credentials, although its url is an `https://` one.
    pub s3_sse_kms: bool,
}

/// What is asked of one endpoint of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Most items in a batch of its own; never more than the model's batches take.
    pub batch_size: Option<u32>,
    /// The latency target in milliseconds; 0 for none.
    pub max_latency_ms: Option<u64>,
}
