//! OpenAPI 3.0.1 documents: one per listener, one per model and API.
//!
//! The operations are listed in `paths`, in the order in which TorchServe lists them; this
//! file puts the documents together and answers with them.

mod operations;
mod paths;
mod plugged;
mod schema;
mod workflows;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::errors::Problem;
use crate::listener::RequestContext;
use crate::respond::{self, HttpResponse};
use crate::route::{Apis, ModelRef};

/// What a listener offers.
pub(crate) fn listener(context: &RequestContext<'_>) -> HttpResponse {
    let mut paths = listener_paths(context.apis, context.state.config.metrics.is_some());
    if let Some(plugins) = &context.state.config.plugins {
        paths.extend(plugged::paths(plugins.endpoints(context.apis)));
    }
    let version = &context.state.config.server_version;
    respond::json(StatusCode::OK, &document("TorchServe APIs", version, paths))
}

/// How one model is asked for predictions.
pub(crate) fn predictions(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
) -> Result<HttpResponse, Problem> {
    let model = context.state.engine.model(target.model, target.version)?;
    let title = format!("RESTful API for: {}", model.name());
    let paths = paths::model_predictions(model.name());
    Ok(respond::json(StatusCode::OK, &document(&title, "1.0.0", paths)))
}

/// How one model is managed.
pub(crate) fn management(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
) -> Result<HttpResponse, Problem> {
    let model = context.state.engine.model(target.model, target.version)?;
    let title = format!("RESTful Management API for: {}", model.name());
    let paths = paths::model_management(model.name());
    Ok(respond::json(StatusCode::OK, &document(&title, "1.0.0", paths)))
}

/// TorchServe names `/metrics` on every listener while there are metrics at all.
fn listener_paths(apis: Apis, metrics: bool) -> Map<String, Value> {
    let mut paths = Map::new();
    if apis.inference {
        paths.extend(paths::inference());
    }
    if apis.inference && apis.sagemaker {
        paths.extend(paths::sagemaker());
    }
    if apis.inference && apis.oip {
        paths.extend(paths::open_inference());
    }
    if apis.management {
        paths.extend(paths::management());
    }
    if metrics || apis.metrics {
        paths.extend(paths::metrics());
    }
    paths
}

fn document(title: &str, version: &str, paths: Map<String, Value>) -> Value {
    json!({
        "openapi": "3.0.1",
        "info": {
            "title": title,
            "description":
                "TorchServe's REST API, served by Jitney.",
            "version": version,
        },
        "paths": paths,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(apis: Apis) -> Vec<String> {
        listener_paths(apis, true).keys().cloned().collect()
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
                "/models",
                "/models/{model_name}",
                "/models/{model_name}/batching",
                "/models/{model_name}/{model_version}",
                "/models/{model_name}/{model_version}/batching",
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
            sagemaker: true,
        };
        let mut ids = Vec::new();
        for (path, operations) in listener_paths(apis, true) {
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
}
