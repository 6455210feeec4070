//! Which endpoint a request is for: a pure function of the listener, the method and the path.
//!
//! TorchServe decodes the path before it splits it, ignores a trailing slash and takes any method
//! for predictions, which no off-the-shelf router does. Nothing here touches a model or a body.

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
pub struct Target<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The version; the default one when absent.
    pub version: Option<&'a str>,
}

/// How a path asks for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ride<'a> {
    /// Whom it is for.
    pub target: Target<'a>,
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
    Predict(Ride<'a>),
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
    PredictDescription(Target<'a>),
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
    Describe(Target<'a>),
    /// What a model's batcher has learned and decided.
    Batching(Target<'a>),
    /// Another number of workers, or other settings.
    Scale(Target<'a>),
    /// The end of a model or version.
    Unregister(Target<'a>),
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
    ManageDescription(Target<'a>),
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
    let segments = Segments::split(path.strip_prefix('/').unwrap_or(path));
    let segments = segments.as_slice();
    match segments {
        [""] if method == Method::OPTIONS => return Route::Description,
        [""] => return Route::MethodNotAllowed,
        ["api-description"] => return Route::Description,
        _ => {}
    }
    let mut found = Route::NotFound;
    if apis.inference && apis.sagemaker {
        found = sagemaker_extras(method, segments);
    }
    if found == Route::NotFound && apis.inference {
        found = described(method, inference(segments));
    }
    if found == Route::NotFound && apis.inference && apis.oip {
        found = open_inference(segments);
    }
    if found == Route::NotFound && apis.management {
        found = management(method, segments);
    }
    if found == Route::NotFound && apis.metrics && segments[0] == "metrics" {
        found = Route::Metrics;
    }
    if found == Route::NotFound && apis.inference && apis.natural {
        found = natural(segments);
    }
    found
}

/// `OPTIONS` on any way to a model asks how it is used and runs nothing.
fn described<'a>(method: &Method, found: Route<'a>) -> Route<'a> {
    if let Route::Predict(ride) = found
        && method == Method::OPTIONS
    {
        return Route::PredictDescription(ride.target);
    }
    found
}

fn inference<'a>(segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["predictions", model] => prediction(model, None, ""),
        ["predictions", model, version] => prediction(model, Some(version), ""),
        ["predictions", model, version, rest] => prediction(model, Some(version), rest),
        ["explanations", model] => explanation(model, None, ""),
        ["explanations", model, version] => explanation(model, Some(version), ""),
        ["explanations", model, version, rest] => explanation(model, Some(version), rest),
        ["ping"] => Route::Ping,
        ["invocations"] => Route::Invocations,
        [".jitney", "handle"] => Route::Handle,
        ["v1", "models", model] => kserve_v1(model),
        ["v2", "models", model, "infer"] => kserve_v2(model),
        ["v2", "models", model, "explain"] => kserve(model, true),
        ["models", model, "invoke"] => sagemaker(model, None),
        ["models", ..] => Route::NotFound,
        [model, "predict"] => sagemaker(model, None),
        [model, version, "predict"] => sagemaker(model, Some(version)),
        [first, workflow] if first.eq_ignore_ascii_case("wfpredict") => {
            Route::RunWorkflow(workflow)
        }
        _ => Route::NotFound,
    }
}

fn sagemaker_extras<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["ping"] => Route::SagemakerPing,
        ["execution-parameters"] if method == Method::GET => Route::ExecutionParameters,
        ["execution-parameters"] => Route::MethodNotAllowed,
        _ => Route::NotFound,
    }
}

fn prediction<'a>(model: &'a str, version: Option<&'a str>, rest: &'a str) -> Route<'a> {
    ride(Target { model, version }, Some(false), Some(rest), false)
}

fn explanation<'a>(model: &'a str, version: Option<&'a str>, rest: &'a str) -> Route<'a> {
    ride(Target { model, version }, Some(true), Some(rest), false)
}

fn kserve(model: &str, explain: bool) -> Route<'_> {
    ride(Target { model, version: None }, Some(explain), None, false)
}

fn kserve_v1(model_and_verb: &str) -> Route<'_> {
    match model_and_verb.split_once(':') {
        Some((model, "predict")) => kserve(model, false),
        Some((model, "explain")) => kserve(model, true),
        Some(_) | None => Route::NotFound,
    }
}

fn kserve_v2(model: &str) -> Route<'_> {
    let target = Target { model, version: None };
    let (explain, url_path, query_counts) = (Some(false), None, false);
    Route::Predict(Ride { target, explain, url_path, query_counts, open_inference: true })
}

fn sagemaker<'a>(model: &'a str, version: Option<&'a str>) -> Route<'a> {
    ride(Target { model, version }, None, None, true)
}

fn ride<'a>(
    target: Target<'a>,
    explain: Option<bool>,
    url_path: Option<&'a str>,
    query_counts: bool,
) -> Route<'a> {
    Route::Predict(Ride { target, explain, url_path, query_counts, open_inference: false })
}

fn open_inference<'a>(segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["v2"] => Route::OipServer,
        ["v2", "health", "live"] => Route::OipLive,
        ["v2", "health", "ready"] => Route::OipReady,
        ["v2", "models", _, rest] if rest.starts_with("versions/") => Route::OipVersions,
        _ => Route::NotFound,
    }
}

/// What no other route wants: a model under its own name, then one of its endpoints.
fn natural<'a>(segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["docs"] => Route::Docs,
        ["openapi.json"] => Route::OpenApi,
        ["models" | "predictions" | "explanations" | "v1" | "v2" | "favicon.ico", ..] => {
            Route::NotFound
        }
        [model] => named(model, ""),
        [model, endpoint] => named(model, endpoint),
        _ => Route::NotFound,
    }
}

fn named<'a>(model: &'a str, endpoint: &'a str) -> Route<'a> {
    ride(Target { model, version: None }, None, Some(endpoint), true)
}

fn management<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["models"] => match *method {
            Method::GET => Route::List,
            Method::POST => Route::Register,
            _ => Route::MethodNotAllowed,
        },
        ["token"] => match *method {
            Method::GET => Route::RenewToken,
            _ => Route::MethodNotAllowed,
        },
        ["models", model] => managed(method, Target { model, version: None }),
        ["models", model, "batching"] if method == Method::GET => {
            Route::Batching(Target { model, version: None })
        }
        ["models", model, version, "batching"] => match *method {
            Method::GET => Route::Batching(Target { model, version: Some(version) }),
            _ => Route::MethodNotAllowed,
        },
        ["models", model, version] => managed(method, Target { model, version: Some(version) }),
        ["models", model, version, "set-default"] => match *method {
            Method::PUT => Route::SetDefault { model, version },
            _ => Route::MethodNotAllowed,
        },
        ["v1", "models", model] => match *method {
            Method::GET => Route::ModelReady(model),
            _ => Route::MethodNotAllowed,
        },
        ["workflows"] => match *method {
            Method::GET => Route::ListWorkflows,
            Method::POST => Route::RegisterWorkflow,
            _ => Route::MethodNotAllowed,
        },
        ["workflows", workflow] => match *method {
            Method::GET => Route::DescribeWorkflow(workflow),
            Method::DELETE => Route::UnregisterWorkflow(workflow),
            _ => Route::MethodNotAllowed,
        },
        _ => Route::NotFound,
    }
}

fn managed<'a>(method: &Method, target: Target<'a>) -> Route<'a> {
    match *method {
        Method::GET => Route::Describe(target),
        Method::PUT => Route::Scale(target),
        Method::DELETE => Route::Unregister(target),
        Method::OPTIONS => Route::ManageDescription(target),
        _ => Route::MethodNotAllowed,
    }
}

/// Up to four segments on the stack; the fourth holds whatever follows the third.
struct Segments<'a> {
    parts: [&'a str; 4],
    count: usize,
}

impl<'a> Segments<'a> {
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
