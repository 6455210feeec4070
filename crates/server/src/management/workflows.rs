//! Workflows: register, list, describe, unregister.

use std::sync::Arc;

use jitney_engine::workflow::WorkflowOptions;
use jitney_engine::{Engine, Workflow};
use serde::Serialize;

use super::list::slice;
use super::{Notice, finish};
use crate::errors::Problem;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkflowPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
    workflows: Vec<WorkflowEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkflowEntry {
    workflow_name: String,
    workflow_url: String,
}

/// The fields in TorchServe's order; the numbers are those that the specification sets for all nodes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkflowDescription {
    workflow_name: String,
    workflow_url: String,
    min_workers: u32,
    max_workers: u32,
    batch_size: u32,
    max_batch_delay: u64,
    workflow_dag: String,
}

/// Registers a workflow and waits for all its nodes.
pub(crate) async fn register_workflow(
    engine: &Arc<Engine>,
    options: WorkflowOptions,
) -> Result<Notice, Problem> {
    let engine = Arc::clone(engine);
    finish(async move {
        let workflow = engine.workflows().register(options).await.inspect_err(|error| {
            tracing::warn!(%error, "a workflow was not registered");
        })?;
        let name = workflow.name();
        let text = format!("Workflow {name} has been registered and scaled successfully.");
        Ok(Notice::done(text))
    })
    .await
}

/// Removes a workflow with its nodes.
pub(crate) async fn unregister_workflow(
    engine: &Arc<Engine>,
    name: &str,
) -> Result<Notice, Problem> {
    let (engine, name) = (Arc::clone(engine), name.to_owned());
    finish(async move {
        engine.workflows().unregister(&name).await?;
        Ok(Notice::done(format!("Workflow \"{name}\" unregistered")))
    })
    .await
}

/// One page of workflows, sorted by name.
pub(crate) fn list_workflows(
    engine: &Engine,
    limit: Option<i32>,
    start: Option<i32>,
) -> WorkflowPage {
    let entry = |workflow: &Arc<Workflow>| WorkflowEntry {
        workflow_name: workflow.name().to_owned(),
        workflow_url: workflow.url().to_owned(),
    };
    let all = engine.workflows().all().iter().map(entry).collect();
    let (next_page_token, workflows) = slice(all, limit, start);
    WorkflowPage { next_page_token, workflows }
}

/// What a workflow is made of.
pub(crate) fn describe_workflow(
    engine: &Engine,
    name: &str,
) -> Result<WorkflowDescription, Problem> {
    let workflow = engine.workflows().find(name)?;
    let settings = &workflow.spec().settings;
    Ok(WorkflowDescription {
        workflow_name: workflow.name().to_owned(),
        workflow_url: workflow.url().to_owned(),
        min_workers: settings.workers_min,
        max_workers: settings.workers_max,
        batch_size: settings.batch_size,
        max_batch_delay: settings.batch_delay_ms,
        workflow_dag: workflow.spec().dag.to_string(),
    })
}
