//! The operations on workflows, apart from the models' because they share none of their parameters.

use serde_json::{Value, json};

use super::schema::{JSON, Operation, any_schema, object, object_schema, status_schema};

const NOT_FOUND: (&str, &str) = ("404", "Workflow not found.");

fn named(operation: Operation) -> Operation {
    operation.path("workflow_name", "Name of the workflow.")
}

pub(super) fn run() -> Value {
    let timeout = "Milliseconds after which the answer is of no use.";
    named(Operation::new("runWorkflow", "Takes this input through the workflow."))
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
            NOT_FOUND,
            ("408", "The deadline passed."),
            ("413", "The body is too large."),
            ("500", "A node failed as often as it may be tried."),
            ("503", "A node has no worker or a full queue; Retry-After says when to come again."),
        ])
        .done()
}

pub(super) fn list() -> Value {
    Operation::new("listWorkflows", "Workflows by name, in pages.")
        .query("limit", "integer", "Most workflows on a page, at most 100.")
        .query("next_page_token", "integer", "Token of the page before.")
        .answers("200", "A page.", JSON, object(&[("workflows", "array")]))
        .done()
}

pub(super) fn register() -> Value {
    Operation::new("registerWorkflow", "Registers a workflow; also takes a JSON body.")
        .query("url", "string", "File in the workflow store, directory or URL. Required.")
        .query("workflow_name", "string", "Overrides the archive's name.")
        .query("response_timeout", "integer", "Seconds a batch of a node may run.")
        .query("startup_timeout", "integer", "Seconds a worker of a node may take to load.")
        .answers("200", "Registered, all nodes loaded.", JSON, status_schema())
        .fails(&[
            ("400", "No url, a failed download, or nodes in no order."),
            ("404", "No archive at this place."),
            ("409", "The name is taken."),
            ("500", "No workflow, or a node did not start; nothing is registered."),
        ])
        .done()
}

pub(super) fn describe() -> Value {
    let array = json!({ "type": "array", "items": object_schema() });
    named(Operation::new("describeWorkflow", "Settings and nodes of a workflow."))
        .answers("200", "The description.", JSON, array)
        .fails(&[NOT_FOUND])
        .done()
}

pub(super) fn unregister() -> Value {
    named(Operation::new("unregisterWorkflow", "Removes a workflow with its nodes."))
        .answers("200", "Removed.", JSON, status_schema())
        .fails(&[NOT_FOUND])
        .done()
}
