//! Registers and removes workflows: their nodes are registered as models named `WORKFLOW__NODE`, all of
//! them or none, and are removed with the workflow.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, MAX_WORKERS, WORKERS};
use jitney_settings::{SettingSource, Values};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::opener::{OpenedModel, blocking};
use super::registrar::{Registered, Registrar};
use crate::error::RegisterError;
use crate::model::{Model, check_name};
use crate::settings::RegisterOptions;
use crate::store::{DownloadRequest, FetchedFile, Manifest, ModelDir, Package, ShownUrl, Store};
use crate::workflow::{
    ModelNode, NodeGraph, NodeSettings, UnknownWorkflow, Workflow, WorkflowArchive, WorkflowError,
    WorkflowNode, WorkflowOptions, WorkflowTable,
};

/// The version of every function; models have their archives'.
const FUNCTION_VERSION: &str = "1.0";

/// All workflows, and what their nodes are registered with.
pub struct Workflows {
    table: WorkflowTable,
    /// Where their archives come from.
    store: Arc<Store>,
    models: Arc<Registrar>,
}

impl Workflows {
    /// Without a store of their own, workflows come from the models' store.
    pub(super) fn new(models: Arc<Registrar>, store: Option<Arc<Store>>) -> Self {
        let store = store.unwrap_or_else(|| Arc::clone(&models.opener.store));
        Self { table: WorkflowTable::default(), store, models }
    }

    /// The workflow of this name.
    pub fn find(&self, name: &str) -> Result<Arc<Workflow>, UnknownWorkflow> {
        self.table.find(name)
    }

    /// All workflows, sorted by name.
    pub fn all(&self) -> Vec<Arc<Workflow>> {
        self.table.all()
    }

    /// Registers a workflow and starts all its nodes; if one of them fails, none is left.
    pub async fn register(&self, options: WorkflowOptions) -> Result<Arc<Workflow>, WorkflowError> {
        if self.models.draining.load(Ordering::Relaxed) {
            return Err(WorkflowError::Draining);
        }
        let archive = open(&self.store, &options.url).await?;
        let name = name_of(&archive, &options)?;
        let reserved = self.table.reserve(&name)?;
        let nodes = self.start_nodes(&name, &archive, &options).await?;
        let WorkflowArchive { spec, package, .. } = archive;
        package.downloaded.iter().for_each(FetchedFile::keep);
        let workflow = Arc::new(Workflow {
            name,
            url: ShownUrl::of(&options.url),
            graph: Arc::new(NodeGraph { dag: spec.dag.clone(), nodes }),
            spec,
            rejecting: Arc::clone(&self.models.rejecting),
            running: Default::default(),
            package,
        });
        reserved.publish(Arc::clone(&workflow));
        tracing::info!(workflow = workflow.name(), "workflow registered");
        Ok(workflow)
    }

    /// Removes a workflow: new requests do not find it, those under way are answered, then its nodes end.
    pub async fn unregister(&self, name: &str) -> Result<(), UnknownWorkflow> {
        let (workflow, reserved) = self.table.withdraw(name)?;
        workflow.idle(self.models.defaults().unregister_timeout).await;
        self.stop_nodes(workflow.graph.nodes.iter().map(|node| &node.model)).await;
        let removed = Arc::clone(&workflow);
        // It cannot panic.
        let _ =
            blocking(move || removed.package.downloaded.iter().for_each(FetchedFile::remove)).await;
        drop(reserved);
        tracing::info!(workflow = workflow.name(), "workflow unregistered");
        Ok(())
    }

    /// Lets every request come to the end of its workflow, within the grace.
    pub(super) async fn finish(&self, grace: Duration) {
        let started = Instant::now();
        for workflow in self.table.all() {
            workflow.idle(grace.saturating_sub(started.elapsed())).await;
        }
    }

    /// All nodes with their workers, or none and a sentence about each that failed.
    async fn start_nodes(
        &self,
        workflow: &str,
        archive: &WorkflowArchive,
        options: &WorkflowOptions,
    ) -> Result<Vec<WorkflowNode>, WorkflowError> {
        let (mut nodes, mut starts, mut failures) = (Vec::new(), JoinSet::new(), Vec::new());
        for name in &archive.spec.dag.nodes {
            match self.register_node(workflow, name, archive, options).await {
                Ok((node, registered)) => {
                    starts.spawn(scaled(registered));
                    nodes.push(node);
                }
                Err(error) => failures.push(failure(&model_name(workflow, name), &error)),
            }
        }
        while let Some(started) = starts.join_next().await {
            failures.extend(started.unwrap_or_else(|panic| Err(panic.to_string())).err());
        }
        if failures.is_empty() {
            return Ok(nodes);
        }
        self.stop_nodes(nodes.iter().map(|node| &node.model)).await;
        tracing::warn!(workflow, error = failures.join("; "), "a workflow was not registered");
        Err(WorkflowError::Failed { workflow: workflow.to_owned(), failures })
    }

    async fn register_node(
        &self,
        workflow: &str,
        node: &str,
        archive: &WorkflowArchive,
        options: &WorkflowOptions,
    ) -> Result<(WorkflowNode, Registered), RegisterError> {
        let common = RegisterOptions {
            model_name: Some(model_name(workflow, node)),
            settings: options.timeouts.clone(),
            workflow: Some(workflow.to_owned()),
            ..RegisterOptions::default()
        };
        let (registered, settings) = match archive.spec.model(node) {
            Some(model) => {
                (self.models.register(&node_options(model, common)).await?, &model.settings)
            }
            None => (self.register_function(node, archive, common).await?, &archive.spec.settings),
        };
        let NodeSettings { timeout, retries, .. } = *settings;
        let model = Arc::clone(&registered.model);
        Ok((WorkflowNode { name: node.to_owned(), model, timeout, retries }, registered))
    }

    /// A function of the handler file is a model of its own, in the workflow's directory.
    async fn register_function(
        &self,
        function: &str,
        archive: &WorkflowArchive,
        common: RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let handler = format!("{}:{function}", archive.handler.as_deref().unwrap_or_default());
        let name = common.model_name.clone().unwrap_or_default();
        let model = json!({
            "modelName": name, "modelVersion": FUNCTION_VERSION, "handler": handler,
        });
        let package = Package {
            url: ShownUrl::default(),
            // The workflow owns the directory.
            dir: ModelDir::existing(archive.package.dir.path().to_owned()),
            // A function takes what the node before it gives: no envelope, whatever models have.
            manifest: Manifest {
                handler: Some(handler),
                envelope: Some(String::new()),
                ..Manifest::default()
            },
            manifest_json: json!({ "runtime": "python", "model": model }),
            settings: Values::default(),
            yaml_json: json!({}),
            archive: None,
            downloaded: None,
            api: None,
            tensors: None,
        };
        let options = RegisterOptions {
            version: Some(FUNCTION_VERSION.to_owned()),
            settings: workers_and_batches(1, 1, 0).or(&common.settings),
            ..common
        };
        let opened = OpenedModel::of_package(package, &options)?;
        self.models.register_opened(opened, &options).await
    }

    /// Ends nodes, side by side; one that was removed already is fine.
    async fn stop_nodes<'a>(&self, models: impl Iterator<Item = &'a Arc<Model>>) {
        let mut ends = JoinSet::new();
        for model in models {
            let (registry, name) = (&self.models.registry, model.name());
            if registry.holds(model)
                && let Err(error) = registry.remove(name, Some(model.version()))
            {
                tracing::warn!(model = name, %error, "a workflow's node stays in the list");
            }
            let (models, model) = (Arc::clone(&self.models), Arc::clone(model));
            ends.spawn(async move { models.end(&model).await });
        }
        while ends.join_next().await.is_some() {}
    }
}

/// `max-workers` is what TorchServe starts a node with.
fn node_options(model: &ModelNode, common: RegisterOptions) -> RegisterOptions {
    let NodeSettings { batch_size, batch_delay_ms, workers_max, .. } = model.settings;
    let settings = workers_and_batches(workers_max, batch_size, batch_delay_ms);
    let settings = settings.or(&common.settings);
    RegisterOptions { url: model.url.clone(), settings, ..common }
}

fn workers_and_batches(workers: u32, batch_size: u32, delay_ms: u64) -> Values {
    let source = SettingSource::Registration;
    Values::default()
        .with(&WORKERS, workers, source.clone())
        .with(&MAX_WORKERS, workers, source.clone())
        .with(&MAX_BATCH_SIZE, batch_size, source.clone())
        .with(&MAX_BATCH_DELAY, Duration::from_millis(delay_ms), source)
}

/// What the model of a node is called.
fn model_name(workflow: &str, node: &str) -> String {
    format!("{workflow}__{node}")
}

/// Why a worker did not start is in the log, as it is when a model is registered by itself.
async fn scaled(registered: Registered) -> Result<(), String> {
    let Registered { model, workers_min, workers_max } = registered;
    model.scale(workers_min, workers_max).await.map_err(|error| {
        let (name, version) = (model.name(), model.version());
        tracing::warn!(model = name, %error, "a workflow's node did not start");
        format!("Failed to start workers for model {name} version: {version}")
    })
}

fn failure(node: &str, error: &impl std::fmt::Display) -> String {
    format!("Workflow Node {node} failed to register. Details: {error}")
}

async fn open(store: &Arc<Store>, url: &str) -> Result<WorkflowArchive, WorkflowError> {
    let unread = |error: RegisterError| WorkflowError::Invalid(error.to_string());
    let (finder, theirs) = (Arc::clone(store), url.to_owned());
    let found = blocking(move || finder.find(&theirs, false)).await.map_err(unread)??;
    let found = store.fetch(DownloadRequest { url, signed: false, resume: None }, found).await?;
    let (opener, theirs) = (Arc::clone(store), url.to_owned());
    let turn = store.turn(&found).await;
    let read = move || {
        let _turn = turn;
        WorkflowArchive::read(opener.open(&theirs, found)?)
    };
    blocking(read).await.map_err(unread)?
}

/// The caller's name wins over the archive's. The nodes' names become part of models' names.
fn name_of(archive: &WorkflowArchive, options: &WorkflowOptions) -> Result<String, WorkflowError> {
    let asked =
        options.name.clone().filter(|name| !name.is_empty()).or_else(|| archive.name.clone());
    let name = asked.ok_or_else(|| WorkflowError::Invalid("it has no name".to_owned()))?;
    let nodes = archive.spec.dag.nodes.iter().map(String::as_str);
    nodes.chain([name.as_str()]).try_for_each(check_name).map_err(WorkflowError::Invalid)?;
    Ok(name)
}
