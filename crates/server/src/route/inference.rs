//! The paths that ask a model something: TorchServe's, KServe's, SageMaker's, the Open Inference
//! Protocol's, and a model's own name.
//!
//! They differ in what the handler sees (`explain`, `url_path`, the query), which is TorchServe's to
//! the letter and is decided here alone.

use http::Method;

use super::{ModelRef, PredictRoute, Route};

/// `OPTIONS` on any way to a model asks how it is used and runs nothing.
pub(super) fn find<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    let found = by_path(segments);
    if let Route::Predict(route) = found
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
        ["v1", "models", model] => kserve_v1(model),
        ["v2", "models", model, "infer"] => kserve_v2(model),
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

pub(super) fn sagemaker_extras<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["ping"] => Route::SagemakerPing,
        ["execution-parameters"] if method == Method::GET => Route::ExecutionParameters,
        ["execution-parameters"] => Route::MethodNotAllowed,
        _ => Route::NotFound,
    }
}

pub(super) fn open_inference<'a>(segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["v2"] => Route::OipServer,
        ["v2", "health", "live"] => Route::OipLive,
        ["v2", "health", "ready"] => Route::OipReady,
        ["v2", "models", _, rest] if rest.starts_with("versions/") => Route::OipVersions,
        _ => Route::NotFound,
    }
}

/// What no other route wants: a model under its own name, then one of its endpoints.
pub(super) fn natural<'a>(segments: &[&'a str]) -> Route<'a> {
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

fn prediction<'a>(model: &'a str, version: Option<&'a str>, rest: &'a str) -> Route<'a> {
    predict(ModelRef { model, version }, Some(false), Some(rest), false)
}

fn explanation<'a>(model: &'a str, version: Option<&'a str>, rest: &'a str) -> Route<'a> {
    predict(ModelRef { model, version }, Some(true), Some(rest), false)
}

pub(super) fn kserve(model: &str, explain: bool) -> Route<'_> {
    predict(ModelRef { model, version: None }, Some(explain), None, false)
}

fn kserve_v1(model_and_verb: &str) -> Route<'_> {
    match model_and_verb.split_once(':') {
        Some((model, "predict")) => kserve(model, false),
        Some((model, "explain")) => kserve(model, true),
        Some(_) | None => Route::NotFound,
    }
}

pub(super) fn kserve_v2(model: &str) -> Route<'_> {
    let target = ModelRef { model, version: None };
    let (explain, url_path, query_counts) = (Some(false), None, false);
    Route::Predict(PredictRoute { target, explain, url_path, query_counts, open_inference: true })
}

pub(super) fn sagemaker<'a>(model: &'a str, version: Option<&'a str>) -> Route<'a> {
    predict(ModelRef { model, version }, None, None, true)
}

fn named<'a>(model: &'a str, endpoint: &'a str) -> Route<'a> {
    predict(ModelRef { model, version: None }, None, Some(endpoint), true)
}

pub(super) fn predict<'a>(
    target: ModelRef<'a>,
    explain: Option<bool>,
    url_path: Option<&'a str>,
    query_counts: bool,
) -> Route<'a> {
    Route::Predict(PredictRoute { target, explain, url_path, query_counts, open_inference: false })
}
