//! Which endpoint a request is for: a pure function of the listener, the method and the path.
//!
//! TorchServe decodes the path before it splits it, ignores a trailing slash and takes any method
//! for predictions, which no off-the-shelf router does. Nothing here touches a model or a body.

mod inference;
mod management;

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// Which APIs a listener offers; several when addresses coincide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apis {
    /// Predictions and health.
    pub inference: bool,
    /// Models and workers.
    pub management: bool,
    /// Prometheus text.
    pub metrics: bool,
    /// The health and metadata endpoints of the Open Inference Protocol, beside inference.
    pub oip: bool,
    /// Models under their own names, `/docs` and `/openapi.json`, beside inference.
    pub natural: bool,
    /// SageMaker's own health and its question about parallelism, beside inference.
    pub sagemaker: bool,
}

/// A model, and perhaps a version, that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRef<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The version; the default one when absent.
    pub version: Option<&'a str>,
}

/// How a path asks for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictRoute<'a> {
    /// Whom it is for.
    pub target: ModelRef<'a>,
    /// The header `explain` that the handler sees, where the route has one.
    pub explain: Option<bool>,
    /// The header `url_path` that the handler sees, where the route has one.
    pub url_path: Option<&'a str>,
    /// Whether the query's fields become parameters.
    pub query_counts: bool,
    /// Whether the body is the Open Inference Protocol's JSON.
    pub open_inference: bool,
}

/// The endpoint that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// The listener's own OpenAPI document.
    Description,
    /// Health, as TorchServe tells it.
    Ping,
    /// A prediction.
    Predict(PredictRoute<'a>),
    /// A prediction whose model is named elsewhere than in the path.
    Invocations,
    /// A request for a workflow.
    RunWorkflow(&'a str),
    /// A connection of Python calls.
    Handle,
    /// SageMaker: whether models are there.
    SagemakerPing,
    /// SageMaker: how batch transforms should ask.
    ExecutionParameters,
    /// The OpenAPI document of a model's predictions.
    PredictDescription(ModelRef<'a>),
    /// Open Inference Protocol: the server lives.
    OipLive,
    /// Open Inference Protocol: the server is ready.
    OipReady,
    /// Open Inference Protocol: what server this is.
    OipServer,
    /// Open Inference Protocol: versions in the path, which TorchServe does not serve.
    OipVersions,
    /// All models.
    List,
    /// A new model.
    Register,
    /// What a model is and how it does.
    Describe(ModelRef<'a>),
    /// What a model's batcher has learned and decided.
    Batching(ModelRef<'a>),
    /// Another number of workers, or other settings.
    Scale(ModelRef<'a>),
    /// The end of a model or version.
    Unregister(ModelRef<'a>),
    /// Another default version.
    SetDefault {
        /// The model.
        model: &'a str,
        /// The version that answers from now on.
        version: &'a str,
    },
    /// All workflows.
    ListWorkflows,
    /// A new workflow.
    RegisterWorkflow,
    /// What a workflow is made of.
    DescribeWorkflow(&'a str),
    /// The end of a workflow and its nodes.
    UnregisterWorkflow(&'a str),
    /// The OpenAPI document of a model's management.
    ManageDescription(ModelRef<'a>),
    /// KServe's question whether a model is ready.
    ModelReady(&'a str),
    /// A new key in place of an old one.
    RenewToken,
    /// The OpenAPI document of all models that describe themselves.
    OpenApi,
    /// The page on which that document is tried out.
    Docs,
    /// Prometheus text.
    Metrics,
    /// A known path, an unfit method.
    MethodNotAllowed,
    /// Nothing here.
    NotFound,
}

/// The path as TorchServe compares it; costs nothing unless it is encoded.
pub fn decode(path: &str) -> Cow<'_, str> {
    if path.contains('%') {
        percent_decode_str(path).decode_utf8_lossy()
    } else {
        Cow::Borrowed(path)
    }
}

/// Finds the endpoint for a decoded path. The first API that knows the path has it.
pub fn route<'a>(apis: Apis, method: &Method, path: &'a str) -> Route<'a> {
    let path = path.trim_end_matches('/');
    let segments = PathSegments::split(path.strip_prefix('/').unwrap_or(path));
    let segments = segments.as_slice();
    match segments {
        [""] if method == Method::OPTIONS => return Route::Description,
        [""] => return Route::MethodNotAllowed,
        ["api-description"] => return Route::Description,
        _ => {}
    }
    let mut found = Route::NotFound;
    if apis.inference && apis.sagemaker {
        found = inference::sagemaker_extras(method, segments);
    }
    if found == Route::NotFound && apis.inference {
        found = inference::find(method, segments);
    }
    if found == Route::NotFound && apis.inference && apis.oip {
        found = inference::open_inference(segments);
    }
    if found == Route::NotFound && apis.management {
        found = management::find(method, segments);
    }
    if found == Route::NotFound && apis.metrics && segments[0] == "metrics" {
        found = Route::Metrics;
    }
    if found == Route::NotFound && apis.inference && apis.natural {
        found = inference::natural(segments);
    }
    found
}

/// Up to four segments on the stack; the fourth holds whatever follows the third.
struct PathSegments<'a> {
    parts: [&'a str; 4],
    count: usize,
}

impl<'a> PathSegments<'a> {
    fn split(path: &'a str) -> Self {
        let mut segments = Self { parts: [""; 4], count: 0 };
        for part in path.splitn(4, '/') {
            segments.parts[segments.count] = part;
            segments.count += 1;
        }
        segments
    }

    fn as_slice(&self) -> &[&'a str] {
        &self.parts[..self.count]
    }
}

#[cfg(test)]
mod tests;
