//! What a caller asks for when registering a model, before anybody has looked at the model.
//!
//! The same for every door: query parameters, flags and files all end here. What is left out is not
//! decided here but in `resolve`, where the archive and the operator are heard too.

use std::collections::BTreeMap;

use super::PolicyName;
use crate::shares::Cost;
use crate::store::Sha256;

/// What a caller asks when registering a model; everything but the url may be left out.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
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
    /// Most items in a batch.
    pub batch_size: Option<u32>,
    /// TorchServe's window in milliseconds.
    pub max_batch_delay_ms: Option<u64>,
    /// The latency objective in milliseconds; 0 for none, whatever the archive says.
    pub max_latency_ms: Option<u64>,
    /// What single endpoints of a definition take, where it is not what the model does.
    pub endpoints: BTreeMap<String, EndpointWishes>,
    /// When batches leave.
    pub policy: Option<PolicyName>,
    /// Workers to start with.
    pub initial_workers: Option<u32>,
    /// Most workers.
    pub max_workers: Option<u32>,
    /// Seconds a batch may run.
    pub response_timeout_s: Option<u64>,
    /// Seconds a worker may take to load.
    pub startup_timeout_s: Option<u64>,
    /// Requests that may wait.
    pub queue_max: Option<u32>,
    /// Weights of tenants.
    pub tenants: Option<Vec<(String, u32)>>,
    /// What an item weighs.
    pub cost: Option<Cost>,
    /// Most cost in a batch.
    pub max_cost: Option<u64>,
    /// Whether the server itself loads it at start-up.
    pub at_startup: bool,
    /// The workflow that the model is a node of.
    pub workflow: Option<String>,
    /// The sum its file must have.
    pub sha256: Option<Sha256>,
    /// Fetch it from S3 with the server's own credentials, although its url is an `https://` one.
    pub s3_sse_kms: bool,
}

/// What is asked of one endpoint of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointWishes {
    /// Most items in a batch of its own; never more than the model's batches take.
    pub batch_size: Option<u32>,
    /// The latency objective in milliseconds; 0 for none.
    pub max_latency_ms: Option<u64>,
}
