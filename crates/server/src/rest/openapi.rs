//! OpenAPI documents: in TorchServe's 3.0.1 one per listener and one per model and API; in 3.1 one for all models
//! that describe themselves, with a page to try it. The page is a single file that loads nothing else.
//!
//! The rows of `endpoints` say what there is; this file builds the documents.

mod model_paths;
mod operations;
mod shell_example;
mod tensor_schema;

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use self::model_paths::{ERROR, Schemas, error_schema, protocol_tag};
use self::operations::{Paths, plugin_paths};
pub use self::shell_example::{file_example, shell_example};
use super::context::RequestContext;
use super::endpoint::{Endpoint, EndpointApi};
use crate::auth::{Gate, GuardedOperation};
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{Apis, PathNames};

const DOCS_PAGE: &[u8] = include_bytes!("docs.html");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// Names the one script and the one style of the page by their sums, so that no other runs; tests/test_definitions.py
/// says what they must be.
const DOCS_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'sha256-FxtyCSMFPWqBuAgyjr/+kM/DOKzKHpEya7iubt6Uwfg='; \
     style-src 'sha256-1BGbwQYBP/D0B9m+7+ExJaHs2MPYPqBe1WxDVavf4AA='; connect-src 'self'; img-src blob: data:",
);

/// What a listener offers.
pub(super) fn listener(
    context: &RequestContext<'_>,
    _: PathNames<'_>,
    rows: &[Endpoint],
) -> HttpResult {
    let config = &context.state.config;
    let mut paths = listener_paths(rows, context.apis, config.metrics.is_some());
    if let Some(plugins) = &context.state.parts.plugins {
        paths.extend(plugin_paths(plugins.endpoints(context.apis)));
    }
    let document = document("TorchServe APIs", &config.server_version, paths);
    Ok(respond::json(StatusCode::OK, &document))
}

/// The predictions of one model.
pub(super) fn predictions(
    context: &RequestContext<'_>,
    names: PathNames<'_>,
    rows: &[Endpoint],
) -> HttpResult {
    of_model(context, names, rows, "RESTful API for", &["predictions", "v1Predict", "v2Infer"])
}

/// The management of one model.
pub(super) fn management(
    context: &RequestContext<'_>,
    names: PathNames<'_>,
    rows: &[Endpoint],
) -> HttpResult {
    let ids =
        ["describeModel", "describeBatching", "statistics", "setAutoScale", "unregisterModel"];
    of_model(context, names, rows, "RESTful Management API for", &ids)
}

fn of_model(
    context: &RequestContext<'_>,
    names: PathNames<'_>,
    rows: &[Endpoint],
    title: &str,
    ids: &[&str],
) -> HttpResult {
    let target = names.target();
    let model = context.state.engine.model(target.model, target.version)?;
    let title = format!("{title}: {}", model.name());
    let document = document(&title, "1.0.0", operations::model_paths(rows, ids, model.name()));
    Ok(respond::json(StatusCode::OK, &document))
}

/// All models that the caller may use, each with what it takes.
pub(super) fn models(context: &RequestContext<'_>) -> HttpResponse {
    let mut paths = Paths::new();
    let mut schemas = Schemas::from_iter([(ERROR.to_owned(), error_schema())]);
    let mut tags = Vec::new();
    let may_use =
        |name| context.admit(Gate::Inference, GuardedOperation::Predict, Some(name)).is_ok();
    for model in context.state.engine.models().iter().filter(|model| may_use(model.name())) {
        paths.extend(model_paths::paths(model, &mut schemas));
        let name = model.name();
        tags.extend([json!({ "name": name }), json!({ "name": protocol_tag(name) })]);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Models served by Jitney", "version": "1.0.0" },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": paths,
        "components": { "schemas": schemas },
    });
    respond::json(StatusCode::OK, &document)
}

/// The page on which that document is tried out.
pub(super) fn docs_page() -> HttpResponse {
    let mut reply = respond::plain(StatusCode::OK, Bytes::from_static(DOCS_PAGE));
    reply.headers_mut().insert(CONTENT_TYPE, HTML);
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, DOCS_POLICY);
    reply
}

/// TorchServe names `/metrics` on every listener while there are metrics at all.
fn listener_paths(rows: &[Endpoint], apis: Apis, metrics: bool) -> Paths {
    let sections = [
        EndpointApi::Inference,
        EndpointApi::Sagemaker,
        EndpointApi::OpenInference,
        EndpointApi::Management,
        EndpointApi::Metrics,
    ];
    let offered =
        |api: &EndpointApi| api.is_offered(apis) || *api == EndpointApi::Metrics && metrics;
    sections.into_iter().filter(offered).flat_map(|api| operations::paths(rows, api)).collect()
}

fn document(title: &str, version: &str, paths: Paths) -> Value {
    json!({
        "openapi": "3.0.1",
        "info": {
            "title": title,
            "description": "TorchServe's REST API, served by Jitney.",
            "version": version,
        },
        "paths": paths,
    })
}

#[cfg(test)]
mod tests {
    use super::super::endpoints::ENDPOINTS;
    use super::*;

    fn names(apis: Apis) -> Vec<String> {
        listener_paths(ENDPOINTS, apis, true).keys().cloned().collect()
    }

    #[test]
    fn every_listener_lists_its_own() {
        let inference = Apis { inference: true, ..Apis::default() };
        assert_eq!(
            names(inference),
            [
                "/",
                "/ping",
                "/v1/models/{model_name}:predict",
                "/v1/models/{model_name}:explain",
                "/v2/models/{model_name}/infer",
                "/v2/models/{model_name}/explain",
                "/predictions/{model_name}",
                "/predictions/{model_name}/{model_version}",
                "/explanations/{model_name}",
                "/explanations/{model_name}/{model_version}",
                "/invocations",
                "/jobs",
                "/jobs/{id}",
                "/jobs/{id}/result",
                "/models/{model_name}/invoke",
                "/wfpredict/{workflow_name}",
                "/api-description",
                "/metrics",
            ]
        );
        let management = Apis { management: true, ..Apis::default() };
        assert_eq!(
            names(management),
            [
                "/",
                "/overview",
                "/overview/history",
                "/overview/stream",
                "/logs",
                "/logs/stream",
                "/log-level",
                "/dashboard",
                "/models",
                "/models/{model_name}",
                "/models/{model_name}/batching",
                "/models/{model_name}/statistics",
                "/models/{model_name}/{model_version}",
                "/models/{model_name}/{model_version}/batching",
                "/models/{model_name}/{model_version}/statistics",
                "/models/{model_name}/{model_version}/set-default",
                "/v1/models/{model_name}",
                "/workflows",
                "/workflows/{workflow_name}",
                "/api-description",
                "/metrics",
            ]
        );
        assert_eq!(names(Apis { metrics: true, ..Apis::default() }), ["/metrics"]);
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_answers() {
        let apis = Apis {
            inference: true,
            management: true,
            metrics: true,
            oip: true,
            natural: true,
            open_health: false,
            home: false,
            sagemaker: true,
        };
        let mut ids = Vec::new();
        for (path, operations) in listener_paths(ENDPOINTS, apis, true) {
            for (method, operation) in operations.as_object().unwrap() {
                ids.push(operation["operationId"].as_str().unwrap().to_owned());
                assert!(operation["responses"]["200"].is_object(), "{method} {path}");
                let named = operation["parameters"].as_array().map_or(0, |all| {
                    all.iter().filter(|parameter| parameter["in"] == "path").count()
                });
                assert_eq!(named, path.matches('{').count(), "{method} {path}");
            }
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn the_page_loads_no_other_file() {
        let text = std::str::from_utf8(DOCS_PAGE).expect("text");
        assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("src="));
    }
}
