//! Every operation of every API, in the order in which the documents list them.

use serde_json::{Map, Value, json};

use super::schema::{Operation, any_schema, object, object_schema, status_schema};
use super::workflows;

const JSON: &str = "application/json";
const METHODS: [&str; 3] = ["post", "put", "get"];

type Paths = Map<String, Value>;

fn add(paths: &mut Paths, path: &str, method: &str, operation: Value) {
    let entry = paths.entry(path).or_insert_with(|| json!({}));
    entry[method] = operation;
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
    let invocations = predicting("invocations")
        .query("model_name", "string", "Name of the model; may be left out if there is but one.")
        .done();
    add(&mut paths, "/invocations", "post", invocations);
    let invoke = "/models/{model_name}/invoke";
    add(&mut paths, invoke, "post", prediction("invoke", invoke));
    add(&mut paths, "/wfpredict/{workflow_name}", "post", workflows::run());
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
    let operation = Operation::new("executionParameters", "How batch transforms should ask.")
        .answers("200", "SageMaker's parameters.", JSON, fields);
    add(&mut paths, "/execution-parameters", "get", operation.done());
    paths
}

/// The Open Inference Protocol's health and metadata.
pub(super) fn open_inference() -> Paths {
    let mut paths = Paths::new();
    for (path, id, field) in
        [("/v2/health/live", "serverLive", "live"), ("/v2/health/ready", "serverReady", "ready")]
    {
        let operation = Operation::new(id, "Health of the server.").answers(
            "200",
            "The server's word.",
            JSON,
            object(&[(field, "boolean")]),
        );
        add(&mut paths, path, "get", operation.done());
    }
    let metadata = Operation::new("serverMetadata", "Name and version of the server.").answers(
        "200",
        "Metadata.",
        JSON,
        object(&[("name", "string"), ("version", "string")]),
    );
    add(&mut paths, "/v2", "get", metadata.done());
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
        let batching = batching_told(&format!("describeBatching{suffix}"), path);
        add(&mut paths, &format!("{path}/batching"), "get", batching);
        add(&mut paths, path, "put", scale(&format!("setAutoScale{suffix}"), path));
        add(&mut paths, path, "delete", unregister(&format!("unregisterModel{suffix}"), path));
        let options = Operation::new(&format!("modelManagement{suffix}"), "This model's own API.");
        let options = in_path(options, path).answers("200", "OpenAPI.", JSON, object_schema());
        add(&mut paths, path, "options", options.done());
    }
    let path = "/models/{model_name}/{model_version}/set-default";
    add(&mut paths, path, "put", set_default(path));
    let path = "/v1/models/{model_name}";
    let ready = in_path(Operation::new("modelReady", "Whether the model has workers."), path)
        .answers(
            "200",
            "KServe's status.",
            JSON,
            object(&[("name", "string"), ("ready", "boolean")]),
        )
        .fails(&[("404", "Model not found.")]);
    add(&mut paths, path, "get", ready.done());
    add(&mut paths, "/workflows", "get", workflows::list());
    add(&mut paths, "/workflows", "post", workflows::register());
    add(&mut paths, "/workflows/{workflow_name}", "get", workflows::describe());
    add(&mut paths, "/workflows/{workflow_name}", "delete", workflows::unregister());
    describe_self(&mut paths, "/api-description", "get", "managementApiDescriptionAlias");
    paths
}

/// Prometheus text.
pub(super) fn metrics() -> Paths {
    let operation = Operation::new("metrics", "Metrics in Prometheus' text format.")
        .query("name[]", "string", "Only metrics of this name; may be repeated.")
        .answers("200", "Metrics.", "text/plain; version=0.0.4; charset=utf-8", any_schema());
    let mut paths = Paths::new();
    add(&mut paths, "/metrics", "get", operation.done());
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
    add(&mut paths, &format!("{own}/batching"), "get", batching_told("describeBatching", &own));
    add(&mut paths, &own, "put", scale("setAutoScale", &own));
    add(&mut paths, &own, "delete", unregister("unregisterModel", &own));
    paths
}

fn describe_self(paths: &mut Paths, path: &str, method: &str, id: &str) {
    let operation = Operation::new(id, "This document.").answers(
        "200",
        "OpenAPI 3.0.1.",
        JSON,
        object_schema(),
    );
    add(paths, path, method, operation.done());
}

fn ping() -> Value {
    Operation::new("ping", "Health of the server.")
        .answers("200", "Every model has the workers it wants.", JSON, status_schema())
        .answers("500", "Some model has not, or the server is ending.", JSON, status_schema())
        .done()
}

/// The parameters that the path names.
fn in_path(mut operation: Operation, path: &str) -> Operation {
    if path.contains("{model_name}") {
        operation = operation.path("model_name", "Name of the model.");
    }
    if path.contains("{model_version}") {
        operation = operation.path("model_version", "Version of the model.");
    }
    operation
}

fn prediction(id: &str, path: &str) -> Value {
    in_path(predicting(id), path).done()
}

fn predicting(id: &str) -> Operation {
    let timeout = "Milliseconds after which the answer is of no use.";
    let priority = "interactive (the default) or bulk.";
    Operation::new(id, "Asks the model about this input.")
        .header("x-jitney-timeout-ms", "integer", timeout)
        .header("x-jitney-priority", "string", priority)
        .header("x-jitney-tenant", "string", "Who sends it; tenants take turns where not all requests fit.")
        .header("x-jitney-cost", "integer", "What it weighs, where the model's batches are limited by cost.")
        .any_body()
        .answers("200", "What the model said; it may set another status.", "*/*", any_schema())
        .fails(&[
            ("400", "The request does not fit the model."),
            ("404", "Model or version not found."),
            ("408", "The deadline passed."),
            ("413", "The body is too large."),
            ("429", "The client's share is used up."),
            ("500", "The worker died."),
            ("503", "No worker, a full queue, or the model failed; Retry-After says when to come again."),
            ("507", "The model ran out of memory."),
        ])
}

fn list() -> Value {
    Operation::new("listModels", "Models by name, in pages.")
        .query("limit", "integer", "Most models on a page, at most 100.")
        .query("next_page_token", "integer", "Token of the page before.")
        .answers("200", "A page.", JSON, object(&[("models", "array")]))
        .done()
}

/// The fields that registration and scaling share.
fn batching(operation: Operation) -> Operation {
    operation
        .query("batch_size", "integer", "Most items in a batch; also max_batch_size.")
        .query("max_batch_delay", "integer", "Window in milliseconds; only a bound if adaptive.")
        .query("max_latency_ms", "integer", "The latency asked for.")
        .query("policy", "string", "adaptive, window or opportunistic.")
        .query("job_queue_size", "integer", "Requests that may wait.")
        .query(
            "tenants",
            "string",
            "Weights of tenants such as gold:4,trial:1, in place of those there are.",
        )
}

fn register() -> Value {
    let operation = Operation::new("registerModel", "Registers a model; also takes a JSON body.")
        .query("url", "string", "File in the store, directory or URL. Required.")
        .query("model_name", "string", "Overrides the archive's name.")
        .query("handler", "string", "Overrides the archive's handler.")
        .query("runtime", "string", "Overrides the archive's runtime.")
        .query("initial_workers", "integer", "Workers to start with.")
        .query("synchronous", "boolean", "Wait for the workers; true unless said otherwise.")
        .query("response_timeout", "integer", "Seconds a batch may run.")
        .query("startup_timeout", "integer", "Seconds a worker may take to load.");
    batching(operation)
        .answers("200", "Registered.", JSON, status_schema())
        .answers("202", "Workers are starting.", JSON, status_schema())
        .fails(&[
            ("400", "A parameter or the archive is unusable."),
            ("404", "No archive at this place."),
            ("405", "The model API is off."),
            ("409", "Name and version are taken."),
            ("500", "Workers did not start; the model is not registered."),
            ("507", "Workers ran out of memory; the model is not registered."),
        ])
        .done()
}

fn describe(id: &str, path: &str) -> Value {
    in_path(Operation::new(id, "Settings, workers and queue of a model."), path)
        .query("customized", "boolean", "Also ask the handler about itself.")
        .answers("200", "Descriptions.", JSON, json!({ "type": "array", "items": object_schema() }))
        .fails(&[("404", "Model or version not found."), ("503", "No worker to ask.")])
        .done()
}

fn batching_told(id: &str, path: &str) -> Value {
    let what = "What the batcher has learned, and its last decisions with their reasons.";
    in_path(Operation::new(id, what), path)
        .answers("200", "Policy, learned curve, decisions.", JSON, object_schema())
        .fails(&[("404", "Model or version not found.")])
        .done()
}

fn scale(id: &str, path: &str) -> Value {
    let operation = in_path(Operation::new(id, "Changes workers and batching."), path)
        .query("min_worker", "integer", "Workers wanted.")
        .query("max_worker", "integer", "Workers allowed.")
        .query("synchronous", "boolean", "Wait for the workers; false unless said otherwise.")
        .query("endpoint", "string", "The endpoint of a definition whose max_batch_size changes.");
    batching(operation)
        .answers("200", "Done.", JSON, status_schema())
        .answers("202", "Workers are starting or ending.", JSON, status_schema())
        .fails(&[
            ("400", "A parameter is unusable."),
            ("404", "Model or version not found."),
            ("500", "Workers did not start."),
        ])
        .done()
}

fn unregister(id: &str, path: &str) -> Value {
    in_path(Operation::new(id, "Removes a model or version."), path)
        .answers("200", "Removed.", JSON, status_schema())
        .fails(&[
            ("403", "The default version stays while there are others."),
            ("404", "Model or version not found."),
            ("405", "The model API is off."),
        ])
        .done()
}

fn set_default(path: &str) -> Value {
    in_path(Operation::new("setDefault", "Lets this version answer by default."), path)
        .answers("200", "Changed.", JSON, status_schema())
        .fails(&[("404", "Model or version not found.")])
        .done()
}
