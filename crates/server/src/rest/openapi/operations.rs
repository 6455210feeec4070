//! What an operation takes and answers, without its path.

use serde_json::{Map, Value, json};

use super::schema::{ApiOperation, JSON, any_schema, object, object_schema, status_schema};
use crate::plugins::PluginEndpoint;

pub(super) fn ping() -> ApiOperation {
    ApiOperation::new("ping", "Health of the server.")
        .answers("200", "Every model has its workers.", JSON, status_schema())
        .answers(
            "500",
            "Some model has not, or the server is shutting down.",
            JSON,
            status_schema(),
        )
}

pub(super) fn prediction(id: &str, path: &str) -> ApiOperation {
    in_path(predicting(id), path)
}

pub(super) fn predicting(id: &str) -> ApiOperation {
    let timeout = "Milliseconds after which the answer is no longer needed.";
    let priority = "interactive (the default) or bulk.";
    ApiOperation::new(id, "Runs the model on this input.")
        .header("x-jitney-timeout-ms", "integer", timeout)
        .header("x-jitney-priority", "string", priority)
        .header(
            "x-jitney-tenant",
            "string",
            "Who sends it; tenants take turns when not all requests fit.",
        )
        .header(
            "x-jitney-cost",
            "integer",
            "Its cost, for models whose batches are limited by cost.",
        )
        .any_body()
        .answers("200", "The model's answer; it may set another status.", "*/*", any_schema())
        .fails(&[
            ("400", "The request does not fit the model."),
            ("404", "Model or version not found."),
            ("408", "The deadline passed."),
            ("413", "The body is too large."),
            ("429", "The client's limit is reached."),
            ("500", "The worker died."),
            (
                "503",
                "No worker, a full queue, or the model failed; Retry-After says when to try again.",
            ),
            ("507", "The model ran out of memory."),
        ])
}

pub(super) fn list() -> ApiOperation {
    ApiOperation::new("listModels", "Models by name, in pages.")
        .query("limit", "integer", "Most models on a page, at most 100.")
        .query("next_page_token", "integer", "Token of the page before.")
        .answers("200", "A page.", JSON, object(&[("models", "array")]))
}

pub(super) fn register() -> ApiOperation {
    let operation =
        ApiOperation::new("registerModel", "Registers a model; also takes a JSON body.")
            .query("url", "string", "File in the store, directory or URL. Required.")
            .query("model_name", "string", "Overrides the archive's name.")
            .query("handler", "string", "Overrides the archive's handler.")
            .query("runtime", "string", "Overrides the archive's runtime.")
            .query("initial_workers", "integer", "Workers to start with.")
            .query("synchronous", "boolean", "Wait for the workers; true by default.")
            .query("response_timeout", "integer", "Seconds a batch may run.")
            .query("startup_timeout", "integer", "Seconds a worker may take to load.");
    batching(operation)
        .answers("200", "Registered.", JSON, status_schema())
        .answers("202", "Workers are starting.", JSON, status_schema())
        .fails(&[
            ("400", "A parameter or the archive is unusable."),
            ("404", "No archive at this URL."),
            ("405", "The model API is off."),
            ("409", "Name and version are taken."),
            ("500", "Workers did not start; the model is not registered."),
            ("507", "Workers ran out of memory; the model is not registered."),
        ])
}

pub(super) fn describe(id: &str, path: &str) -> ApiOperation {
    in_path(ApiOperation::new(id, "Settings, workers and queue of a model."), path)
        .query("customized", "boolean", "Also ask the handler about itself.")
        .answers("200", "Descriptions.", JSON, json!({ "type": "array", "items": object_schema() }))
        .fails(&[("404", "Model or version not found."), ("503", "No worker to ask.")])
}

pub(super) fn batching_report(id: &str, path: &str) -> ApiOperation {
    let what = "What the batcher has learned, and its last decisions with their reasons.";
    in_path(ApiOperation::new(id, what), path)
        .answers("200", "Policy, learned curve, decisions.", JSON, object_schema())
        .fails(&[("404", "Model or version not found.")])
}

pub(super) fn scale(id: &str, path: &str) -> ApiOperation {
    let operation = in_path(ApiOperation::new(id, "Changes workers and batching."), path)
        .query("min_worker", "integer", "Workers wanted.")
        .query("max_worker", "integer", "Workers allowed.")
        .query("synchronous", "boolean", "Wait for the workers; false by default.")
        .query(
            "endpoint",
            "string",
            "The endpoint whose max_batch_size or max_latency_ms changes.",
        );
    batching(operation)
        .answers("200", "Done.", JSON, status_schema())
        .answers("202", "Workers are starting or ending.", JSON, status_schema())
        .fails(&[
            ("400", "A parameter is unusable."),
            ("404", "Model or version not found."),
            ("500", "Workers did not start."),
        ])
}

pub(super) fn unregister(id: &str, path: &str) -> ApiOperation {
    in_path(ApiOperation::new(id, "Removes a model or version."), path)
        .answers("200", "Removed.", JSON, status_schema())
        .fails(&[
            ("403", "The default version cannot be removed while there are others."),
            ("404", "Model or version not found."),
            ("405", "The model API is off."),
        ])
}

pub(super) fn set_default(path: &str) -> ApiOperation {
    in_path(ApiOperation::new("setDefault", "Makes this version the default."), path)
        .answers("200", "Changed.", JSON, status_schema())
        .fails(&[("404", "Model or version not found.")])
}

/// The fields that registration and scaling share.
fn batching(operation: ApiOperation) -> ApiOperation {
    operation
        .query("batch_size", "integer", "Most items in a batch; also max_batch_size.")
        .query("max_batch_delay", "integer", "Window in milliseconds; only a bound if adaptive.")
        .query("max_latency_ms", "integer", "The latency target.")
        .query("policy", "string", "adaptive, window or opportunistic.")
        .query("job_queue_size", "integer", "Requests that may wait.")
        .query(
            "tenants",
            "string",
            "Weights of tenants such as gold:4,trial:1; they replace the old ones.",
        )
}

/// The parameters that the path names.
pub(super) fn in_path(mut operation: ApiOperation, path: &str) -> ApiOperation {
    if path.contains("{model_name}") {
        operation = operation.path("model_name", "Name of the model.");
    }
    if path.contains("{model_version}") {
        operation = operation.path("model_version", "Version of the model.");
    }
    operation
}

// -- workflows ----------------------------------------------------------------------------

const NO_WORKFLOW: (&str, &str) = ("404", "Workflow not found.");

fn workflow_path(operation: ApiOperation) -> ApiOperation {
    operation.path("workflow_name", "Name of the workflow.")
}

pub(super) fn run_workflow() -> ApiOperation {
    let timeout = "Milliseconds after which the answer is no longer needed.";
    workflow_path(ApiOperation::new("runWorkflow", "Takes this input through the workflow."))
        .header("x-jitney-timeout-ms", "integer", timeout)
        .header("x-jitney-priority", "string", "interactive (the default) or bulk.")
        .any_body()
        .answers(
            "200",
            "The last node's answer, or an object with those of all.",
            "*/*",
            any_schema(),
        )
        .fails(&[
            ("400", "The request does not fit a node."),
            NO_WORKFLOW,
            ("408", "The deadline passed."),
            ("413", "The body is too large."),
            ("500", "A node failed in all its attempts."),
            ("503", "A node has no worker or a full queue; Retry-After says when to try again."),
        ])
}

pub(super) fn list_workflows() -> ApiOperation {
    ApiOperation::new("listWorkflows", "Workflows by name, in pages.")
        .query("limit", "integer", "Most workflows on a page, at most 100.")
        .query("next_page_token", "integer", "Token of the page before.")
        .answers("200", "A page.", JSON, object(&[("workflows", "array")]))
}

pub(super) fn register_workflow() -> ApiOperation {
    ApiOperation::new("registerWorkflow", "Registers a workflow; also takes a JSON body.")
        .query("url", "string", "File in the workflow store, directory or URL. Required.")
        .query("workflow_name", "string", "Overrides the archive's name.")
        .query("response_timeout", "integer", "Seconds a batch of a node may run.")
        .query("startup_timeout", "integer", "Seconds a worker of a node may take to load.")
        .answers("200", "Registered, all nodes loaded.", JSON, status_schema())
        .fails(&[
            ("400", "No url, a failed download, or nodes in no order."),
            ("404", "No archive at this URL."),
            ("409", "The name is taken."),
            ("500", "No workflow, or a node did not start; nothing is registered."),
        ])
}

pub(super) fn describe_workflow() -> ApiOperation {
    let array = json!({ "type": "array", "items": object_schema() });
    workflow_path(ApiOperation::new("describeWorkflow", "Settings and nodes of a workflow."))
        .answers("200", "The description.", JSON, array)
        .fails(&[NO_WORKFLOW])
}

pub(super) fn unregister_workflow() -> ApiOperation {
    workflow_path(ApiOperation::new("unregisterWorkflow", "Removes a workflow with its nodes."))
        .answers("200", "Removed.", JSON, status_schema())
        .fails(&[NO_WORKFLOW])
}

// -- plugins ------------------------------------------------------------------------------

/// OpenAPI's methods; a plugin may take others, which the document has no place for.
const PLUGIN_METHODS: [&str; 8] =
    ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// One entry per path, one operation per method. ServerAddresses may coincide, and then paths may too.
pub(super) fn plugin_paths<'a>(
    endpoints: impl Iterator<Item = &'a PluginEndpoint>,
) -> Map<String, Value> {
    let mut paths = Map::new();
    for endpoint in endpoints {
        let entry = paths.entry(&endpoint.path).or_insert_with(|| json!({}));
        for method in endpoint.methods.iter().map(|method| method.as_str().to_lowercase()) {
            if PLUGIN_METHODS.contains(&method.as_str()) {
                entry[&method] = json!(plugin_operation(endpoint, &method));
            }
        }
    }
    paths
}

fn plugin_operation(endpoint: &PluginEndpoint, method: &str) -> ApiOperation {
    let id = format!("{}_{}_{method}", endpoint.plugin(), identifier(&endpoint.path));
    let usual = format!("Answered by the plugin {}.", endpoint.plugin());
    let own = Some(endpoint.description.as_str()).filter(|own| !own.is_empty());
    let operation = ApiOperation::new(&id, own.unwrap_or(&usual));
    let takes_body = ["post", "put", "patch"].contains(&method);
    let operation = if takes_body { operation.any_body() } else { operation };
    operation.answers("200", "The plugin's answer.", "*/*", any_schema()).fails(&[
        ("500", "The plugin failed."),
        ("503", "The plugin is away or does not answer in time."),
    ])
}

/// A path as part of an operation's id.
fn identifier(path: &str) -> String {
    let letters = path.trim_matches('/').chars();
    letters.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
