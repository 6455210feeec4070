//! Which endpoint a request is for: a pure function of the listener, the method and the path.
//!
//! TorchServe decodes the path before it splits it, ignores a trailing slash and takes any method
//! for predictions, which no off-the-shelf router does. Nothing here touches a model or a body.

mod claimed;
mod model_ref;
mod open_inference;

use std::borrow::Cow;

pub use self::claimed::{MountedRoute, is_fixed};
pub use self::model_ref::ModelRef;
pub use self::open_inference::{OpenInferenceRoute, SharedMemoryAction, SharedMemoryRoute};

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
    /// SageMaker's health and execution parameters, beside inference.
    pub sagemaker: bool,
    /// Whether health and readiness need no token.
    pub open_health: bool,
    /// Whether `/` leads browsers to the dashboard, beside management.
    pub home: bool,
}

/// The path of a prediction. The routes differ in what the handler sees, as in TorchServe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictRoute<'a> {
    /// The model.
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

impl<'a> PredictRoute<'a> {
    /// A route on which the handler sees nothing but the request.
    pub fn new(target: ModelRef<'a>) -> Self {
        Self { target, explain: None, url_path: None, query_counts: false, open_inference: false }
    }

    /// The same, with the query's fields as parameters.
    pub fn with_query(target: ModelRef<'a>) -> Self {
        Self { query_counts: true, ..Self::new(target) }
    }
}

/// The endpoint that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// The listener's own OpenAPI document.
    Description,
    /// Where browsers find the dashboard, and KServe's clients that the server lives.
    Home,
    /// The dashboard, or a file that belongs to it.
    Dashboard(&'a str),
    /// The state of the server and of all models in one document.
    Overview,
    /// The same document again and again.
    OverviewStream,
    /// The last lines of the log.
    Logs,
    /// The lines of the log as they come.
    LogStream,
    /// What is logged.
    LogLevel {
        /// Whether it is to be changed.
        changes: bool,
    },
    /// TorchServe's health.
    Ping,
    /// KServe's version 1: the server lives.
    Alive,
    /// A prediction.
    Predict(PredictRoute<'a>),
    /// A request that goes to a model's endpoint as it came.
    Mounted(MountedRoute<'a>),
    /// KServe's version 1: a prediction for each of the instances that the body lists.
    Instances(PredictRoute<'a>),
    /// OpenAI's embeddings; the body names the model.
    Embeddings,
    /// A prediction whose model is named elsewhere than in the path.
    Invocations,
    /// A request for a workflow.
    RunWorkflow(&'a str),
    /// A connection of Python calls.
    Handle,
    /// SageMaker: whether models are there.
    SagemakerPing,
    /// SageMaker: parameters of batch transforms.
    ExecutionParameters,
    /// The OpenAPI document of a model's predictions.
    PredictDescription(ModelRef<'a>),
    /// What the Open Inference Protocol has beside predictions.
    OpenInference(OpenInferenceRoute<'a>),
    /// Open Inference Protocol: versions in the path, which TorchServe does not serve.
    OipVersions,
    /// Every model of the repository with its state.
    RepositoryIndex,
    /// A model of the repository is to be served.
    RepositoryLoad(&'a str),
    /// A model of the repository is to be served no more.
    RepositoryUnload(&'a str),
    /// All models.
    List,
    /// A new model.
    Register,
    /// A model's settings and workers.
    Describe(ModelRef<'a>),
    /// What a model's batcher has learned and decided.
    Batching(ModelRef<'a>),
    /// What the batches of a model's versions came to, by their size.
    Statistics(ModelRef<'a>),
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
    /// KServe's version 1 and OpenAI's: a model, and whether it is ready.
    ModelReady(ModelRef<'a>),
    /// KServe's version 1 and OpenAI's: the models.
    ModelNames,
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
        [""] if apis.management && apis.home && method == Method::GET => return Route::Home,
        [""] if apis.inference && apis.natural && method == Method::GET => return Route::Alive,
        [""] => return Route::MethodNotAllowed,
        ["api-description"] => return Route::Description,
        _ => {}
    }
    let mut found = Route::NotFound;
    if apis.inference && apis.sagemaker {
        found = sagemaker_admin(method, segments);
    }
    if found == Route::NotFound && apis.inference {
        found = inference(method, segments);
    }
    if found == Route::NotFound && apis.inference && apis.oip {
        found = open_inference(apis, method, segments);
    }
    if found == Route::NotFound && apis.oip {
        found = repository(method, segments);
    }
    if found == Route::NotFound && apis.management {
        found = management(method, segments);
    }
    if found == Route::NotFound && apis.metrics && segments[0] == "metrics" {
        found = Route::Metrics;
    }
    if found == Route::NotFound && apis.inference && apis.natural {
        found = natural(method, segments);
    }
    let runs = matches!(found, Route::Predict(_) | Route::Invocations | Route::RunWorkflow(_));
    let only_posts = matches!(
        found,
        Route::Predict(PredictRoute { open_inference: true, .. }) | Route::Instances(_)
    );
    let posts = only_posts && method != Method::POST;
    if apis.natural && (posts || runs && !is_usual(method)) {
        return Route::MethodNotAllowed;
    }
    found
}

/// The methods with which people ask for predictions: forms and scripts, curl, `curl -T`. TorchServe
/// runs the model for any other too.
fn is_usual(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::GET)
}

/// The methods that a path takes, for whoever came with another; `GET` only where the model may be asked
/// without a body.
pub fn allowed(apis: Apis, path: &str, without_body: impl Fn(ModelRef<'_>) -> bool) -> String {
    let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
    let takes = |method: &&Method| {
        let found = route(apis, method, path);
        if let (Route::Predict(route), &&Method::GET) = (&found, method) {
            return without_body(route.target);
        }
        !matches!(found, Route::MethodNotAllowed | Route::NotFound)
    };
    let taken: Vec<_> = methods.iter().filter(takes).map(Method::as_str).collect();
    taken.join(", ")
}

/// Paths of predictions. `OPTIONS` asks for a description and runs nothing.
fn inference<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    let found = by_path(segments);
    if let Route::Predict(route) | Route::Instances(route) = found
        && method == Method::OPTIONS
    {
        return Route::PredictDescription(route.target);
    }
    found
}

fn by_path<'a>(segments: &[&'a str]) -> Route<'a> {
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
        ["v1", "models", model] => kserve_v1(model, None),
        ["v1", "models", model, rest] => kserve_v1_version(model, rest),
        ["v2", "models", model, "infer"] => {
            Route::Predict(kserve_v2(ModelRef { model, version: None }))
        }
        ["v2", "models", model, "explain"] => kserve(model, true),
        ["models", model, "invoke"] => sagemaker(model, None),
        ["models", ..] => Route::NotFound,
        [model, "predict"] => sagemaker(model, None),
        [model, version, "predict"] => sagemaker(model, Some(version)),
        [first, workflow, ..] if first.eq_ignore_ascii_case("wfpredict") => {
            Route::RunWorkflow(workflow)
        }
        _ => Route::NotFound,
    }
}

fn sagemaker_admin<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["ping"] => Route::SagemakerPing,
        ["execution-parameters"] if method == Method::GET => Route::ExecutionParameters,
        ["execution-parameters"] => Route::MethodNotAllowed,
        _ => Route::NotFound,
    }
}

fn open_inference<'a>(apis: Apis, method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["v1", "models", model] if !model.contains(':') => {
            Route::ModelReady(ModelRef { model, version: None })
        }
        ["v2", "models", _, rest] if rest.starts_with("versions/") && !apis.natural => {
            Route::OipVersions
        }
        ["v2", ref below @ ..] => {
            let found = open_inference::find(method, below);
            if let OpenInferenceRoute::Infer(target) = found {
                return Route::Predict(kserve_v2(target));
            }
            if found == OpenInferenceRoute::WrongMethod {
                return Route::MethodNotAllowed;
            }
            let known = found != OpenInferenceRoute::Unknown;
            if known { Route::OpenInference(found) } else { Route::NotFound }
        }
        _ => Route::NotFound,
    }
}

/// Paths of the repository, on the listeners of both APIs. Triton takes a `POST` for all of them.
fn repository<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    let found = match *segments {
        ["v2", "repository", "index"] => Route::RepositoryIndex,
        ["v2", "repository", "models", rest] => match rest.rsplit_once('/') {
            Some((model, "load")) => Route::RepositoryLoad(model),
            Some((model, "unload")) => Route::RepositoryUnload(model),
            Some(_) | None => Route::NotFound,
        },
        _ => Route::NotFound,
    };
    if found == Route::NotFound || method == Method::POST { found } else { Route::MethodNotAllowed }
}

/// Any other path: a model under its own name, then one of its endpoints.
fn natural<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["v1", "models"] if method == Method::GET => Route::ModelNames,
        ["v1", "embeddings"] if method == Method::POST => Route::Embeddings,
        ["v1", "models" | "embeddings"] => Route::MethodNotAllowed,
        ["v1", "models", model, rest] => match rest.strip_prefix("versions/") {
            Some(version) if !version.contains(['/', ':']) => {
                Route::ModelReady(ModelRef { model, version: Some(version) })
            }
            Some(_) | None => Route::NotFound,
        },
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

fn prediction<'a>(model: &'a str, version: Option<&'a str>, rest: &'a str) -> Route<'a> {
    torchserve(model, version, false, rest)
}

fn explanation<'a>(model: &'a str, version: Option<&'a str>, rest: &'a str) -> Route<'a> {
    torchserve(model, version, true, rest)
}

fn torchserve<'a>(
    model: &'a str,
    version: Option<&'a str>,
    explain: bool,
    url_path: &'a str,
) -> Route<'a> {
    let (explain, url_path) = (Some(explain), Some(url_path));
    let plain = PredictRoute::new(ModelRef { model, version });
    Route::Predict(PredictRoute { explain, url_path, ..plain })
}

fn kserve(model: &str, explain: bool) -> Route<'_> {
    let plain = PredictRoute::new(ModelRef { model, version: None });
    Route::Predict(PredictRoute { explain: Some(explain), ..plain })
}

/// `{model}:predict`, or `{version}:predict` where the model is named before.
fn kserve_v1<'a>(name_and_verb: &'a str, versioned: Option<&'a str>) -> Route<'a> {
    let Some((name, verb)) = name_and_verb.split_once(':') else { return Route::NotFound };
    let target = match versioned {
        Some(model) => ModelRef { model, version: Some(name) },
        None => ModelRef { model: name, version: None },
    };
    let instances = |explain| {
        let route = PredictRoute::new(target);
        Route::Instances(PredictRoute { explain: Some(explain), ..route })
    };
    match verb {
        "predict" => instances(false),
        "explain" => instances(true),
        _ => Route::NotFound,
    }
}

fn kserve_v1_version<'a>(model: &'a str, rest: &'a str) -> Route<'a> {
    let version = rest.strip_prefix("versions/").filter(|version| !version.contains('/'));
    version.map_or(Route::NotFound, |version| kserve_v1(version, Some(model)))
}

fn kserve_v2(target: ModelRef<'_>) -> PredictRoute<'_> {
    let plain = PredictRoute::new(target);
    PredictRoute { explain: Some(false), open_inference: true, ..plain }
}

fn sagemaker<'a>(model: &'a str, version: Option<&'a str>) -> Route<'a> {
    Route::Predict(PredictRoute::with_query(ModelRef { model, version }))
}

fn named<'a>(model: &'a str, endpoint: &'a str) -> Route<'a> {
    let plain = PredictRoute::with_query(ModelRef { model, version: None });
    Route::Predict(PredictRoute { url_path: Some(endpoint), ..plain })
}

/// Paths of management. A known path with another method is not the same as an unknown path.
fn management<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["models"] => match *method {
            Method::GET => Route::List,
            Method::POST => Route::Register,
            _ => Route::MethodNotAllowed,
        },
        ["overview"] => reads(method, Route::Overview),
        ["overview", "stream"] => reads(method, Route::OverviewStream),
        ["logs"] => reads(method, Route::Logs),
        ["logs", "stream"] => reads(method, Route::LogStream),
        ["log-level"] if *method == Method::PUT => Route::LogLevel { changes: true },
        ["log-level"] => reads(method, Route::LogLevel { changes: false }),
        ["dashboard"] => reads(method, Route::Dashboard("")),
        ["dashboard", file] => reads(method, Route::Dashboard(file)),
        ["token"] => match *method {
            Method::GET => Route::RenewToken,
            _ => Route::MethodNotAllowed,
        },
        ["models", model] => managed(method, ModelRef { model, version: None }),
        ["models", model, "batching"] if method == Method::GET => {
            Route::Batching(ModelRef { model, version: None })
        }
        ["models", model, version, "batching"] => match *method {
            Method::GET => Route::Batching(ModelRef { model, version: Some(version) }),
            _ => Route::MethodNotAllowed,
        },
        ["models", model, "statistics"] if method == Method::GET => {
            Route::Statistics(ModelRef { model, version: None })
        }
        ["models", model, version, "statistics"] => match *method {
            Method::GET => Route::Statistics(ModelRef { model, version: Some(version) }),
            _ => Route::MethodNotAllowed,
        },
        ["models", model, version] => managed(method, ModelRef { model, version: Some(version) }),
        ["models", model, version, "set-default"] => match *method {
            Method::PUT => Route::SetDefault { model, version },
            _ => Route::MethodNotAllowed,
        },
        ["v1", "models", model] => match *method {
            Method::GET => Route::ModelReady(ModelRef { model, version: None }),
            _ => Route::MethodNotAllowed,
        },
        ["workflows"] => match *method {
            Method::GET => Route::ListWorkflows,
            Method::POST => Route::RegisterWorkflow,
            _ => Route::MethodNotAllowed,
        },
        // TorchServe looks no further than the name.
        ["workflows", workflow, ..] => match *method {
            Method::GET => Route::DescribeWorkflow(workflow),
            Method::DELETE => Route::UnregisterWorkflow(workflow),
            _ => Route::MethodNotAllowed,
        },
        _ => Route::NotFound,
    }
}

/// What can only be read.
fn reads<'a>(method: &Method, found: Route<'a>) -> Route<'a> {
    if *method == Method::GET { found } else { Route::MethodNotAllowed }
}

fn managed<'a>(method: &Method, target: ModelRef<'a>) -> Route<'a> {
    match *method {
        Method::GET => Route::Describe(target),
        Method::PUT => Route::Scale(target),
        Method::DELETE => Route::Unregister(target),
        Method::OPTIONS => Route::ManageDescription(target),
        _ => Route::MethodNotAllowed,
    }
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
