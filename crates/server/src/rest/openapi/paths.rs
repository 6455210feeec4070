//! Every path of every API, in the order in which the documents list them.

use serde_json::{Map, Value, json};

use super::operations::{
    batching_report, describe, describe_workflow, in_path, list, list_workflows, ping, predicting,
    prediction, register, register_workflow, run_workflow, scale, set_default, unregister,
    unregister_workflow,
};
use super::schema::{ApiOperation, JSON, any_schema, object, object_schema};

const METHODS: [&str; 3] = ["post", "put", "get"];

type Paths = Map<String, Value>;

fn add(paths: &mut Paths, path: &str, method: &str, operation: ApiOperation) {
    let entry = paths.entry(path).or_insert_with(|| json!({}));
    entry[method] = json!(operation);
}

/// Predictions and health.
pub(super) fn inference() -> Paths {
    let mut paths = Paths::new();
    describe_self(&mut paths, "/", "options", "apiDescription");
    add(&mut paths, "/ping", "get", ping());
    for (path, id) in [
        ("/v1/models/{model_name}:predict", "v1Predict"),
        ("/v1/models/{model_name}:explain", "v1Explain"),
        ("/v2/models/{model_name}/infer", "v2Infer"),
        ("/v2/models/{model_name}/explain", "v2Explain"),
    ] {
        add(&mut paths, path, "post", prediction(id, path));
    }
    for (path, id) in [
        ("/predictions/{model_name}", "predictions"),
        ("/predictions/{model_name}/{model_version}", "versionPredictions"),
        ("/explanations/{model_name}", "explanations"),
        ("/explanations/{model_name}/{model_version}", "versionExplanations"),
    ] {
        for method in METHODS {
            add(&mut paths, path, method, prediction(&format!("{id}_{method}"), path));
        }
    }
    let invocations = predicting("invocations").query(
        "model_name",
        "string",
        "Name of the model; may be left out if there is but one.",
    );
    add(&mut paths, "/invocations", "post", invocations);
    let invoke = "/models/{model_name}/invoke";
    add(&mut paths, invoke, "post", prediction("invoke", invoke));
    add(&mut paths, "/wfpredict/{workflow_name}", "post", run_workflow());
    describe_self(&mut paths, "/api-description", "get", "apiDescriptionAlias");
    paths
}

/// What SageMaker asks.
pub(super) fn sagemaker() -> Paths {
    let mut paths = Paths::new();
    let fields = object(&[
        ("MaxConcurrentTransforms", "integer"),
        ("BatchStrategy", "string"),
        ("MaxPayloadInMB", "integer"),
    ]);
    let operation = ApiOperation::new("executionParameters", "How batch transforms should ask.")
        .answers("200", "SageMaker's parameters.", JSON, fields);
    add(&mut paths, "/execution-parameters", "get", operation);
    paths
}

/// The Open Inference Protocol's health and metadata.
pub(super) fn open_inference() -> Paths {
    let mut paths = Paths::new();
    for (path, id, field) in
        [("/v2/health/live", "serverLive", "live"), ("/v2/health/ready", "serverReady", "ready")]
    {
        let operation = ApiOperation::new(id, "Health of the server.").answers(
            "200",
            "The server's state.",
            JSON,
            object(&[(field, "boolean")]),
        );
        add(&mut paths, path, "get", operation);
    }
    let metadata = ApiOperation::new("serverMetadata", "Name and version of the server.").answers(
        "200",
        "Metadata.",
        JSON,
        object(&[("name", "string"), ("version", "string")]),
    );
    add(&mut paths, "/v2", "get", metadata);
    paths
}

/// Models and workers.
pub(super) fn management() -> Paths {
    let mut paths = Paths::new();
    describe_self(&mut paths, "/", "options", "managementApiDescription");
    add(&mut paths, "/models", "get", list());
    add(&mut paths, "/models", "post", register());
    for (path, suffix) in
        [("/models/{model_name}", ""), ("/models/{model_name}/{model_version}", "Version")]
    {
        add(&mut paths, path, "get", describe(&format!("describeModel{suffix}"), path));
        let batching = batching_report(&format!("describeBatching{suffix}"), path);
        add(&mut paths, &format!("{path}/batching"), "get", batching);
        add(&mut paths, path, "put", scale(&format!("setAutoScale{suffix}"), path));
        add(&mut paths, path, "delete", unregister(&format!("unregisterModel{suffix}"), path));
        let options =
            ApiOperation::new(&format!("modelManagement{suffix}"), "This model's own API.");
        let options = in_path(options, path).answers("200", "OpenAPI.", JSON, object_schema());
        add(&mut paths, path, "options", options);
    }
    let path = "/models/{model_name}/{model_version}/set-default";
    add(&mut paths, path, "put", set_default(path));
    let path = "/v1/models/{model_name}";
    let ready = in_path(ApiOperation::new("modelReady", "Whether the model has workers."), path)
        .answers(
            "200",
            "KServe's status.",
            JSON,
            object(&[("name", "string"), ("ready", "boolean")]),
        )
        .fails(&[("404", "Model not found.")]);
    add(&mut paths, path, "get", ready);
    add(&mut paths, "/workflows", "get", list_workflows());
    add(&mut paths, "/workflows", "post", register_workflow());
    add(&mut paths, "/workflows/{workflow_name}", "get", describe_workflow());
    add(&mut paths, "/workflows/{workflow_name}", "delete", unregister_workflow());
    describe_self(&mut paths, "/api-description", "get", "managementApiDescriptionAlias");
    paths
}

/// Prometheus text.
pub(super) fn metrics() -> Paths {
    let operation = ApiOperation::new("metrics", "Metrics in Prometheus' text format.")
        .query("name[]", "string", "Only metrics of this name; may be repeated.")
        .answers("200", "Metrics.", "text/plain; version=0.0.4; charset=utf-8", any_schema());
    let mut paths = Paths::new();
    add(&mut paths, "/metrics", "get", operation);
    paths
}

/// One model's predictions; TorchServe's path has no final s.
pub(super) fn model_predictions(model: &str) -> Paths {
    let mut paths = Paths::new();
    let own = format!("/prediction/{model}");
    add(&mut paths, &own, "post", prediction("predictions", &own));
    for (path, id) in [
        ("/v1/models/{model_name}:predict", "v1Predict"),
        ("/v2/models/{model_name}/infer", "v2Infer"),
    ] {
        add(&mut paths, path, "post", prediction(id, path));
    }
    paths
}

/// One model's management.
pub(super) fn model_management(model: &str) -> Paths {
    let mut paths = Paths::new();
    let own = format!("/models/{model}");
    add(&mut paths, &own, "get", describe("describeModel", &own));
    add(&mut paths, &format!("{own}/batching"), "get", batching_report("describeBatching", &own));
    add(&mut paths, &own, "put", scale("setAutoScale", &own));
    add(&mut paths, &own, "delete", unregister("unregisterModel", &own));
    paths
}

fn describe_self(paths: &mut Paths, path: &str, method: &str, id: &str) {
    let operation = ApiOperation::new(id, "This document.").answers(
        "200",
        "OpenAPI 3.0.1.",
        JSON,
        object_schema(),
    );
    add(paths, path, method, operation);
}
