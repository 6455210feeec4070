//! Workflows come and go: their nodes are registered as models named `WORKFLOW__NODE`, all of them or
//! none, and leave with the workflow.
//!
//! Apart from the engine's own file because a workflow is several models at once; what it is and how a
//! request goes through it is `workflow`'s.

use std::sync::Arc;
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, MAX_WORKERS, WORKERS};
use jitney_settings::{SettingSource, Values};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Engine, Registered, blocking};
use crate::error::RegisterError;
use crate::model::Model;
use crate::resolve::is_sound;
use crate::settings::RegisterOptions;
use crate::store::{DownloadRequest, FetchedFile, Manifest, ModelDir, Package, Store};
use crate::workflow::{
    Course, ModelNode, Node, NodeSettings, UnknownWorkflow, War, Workflow, WorkflowError,
    WorkflowOptions,
};

/// The version of every function; models have their archives'.
const FUNCTION_VERSION: &str = "1.0";

impl Engine {
    /// The workflow of this name.
    pub fn workflow(&self, name: &str) -> Result<Arc<Workflow>, UnknownWorkflow> {
        self.workflows.find(name)
    }

    /// All workflows, sorted by name.
    pub fn workflows(&self) -> Vec<Arc<Workflow>> {
        self.workflows.all()
    }

    /// Registers a workflow and starts all its nodes; if one of them fails, none is left.
    pub async fn register_workflow(
        &self,
        options: WorkflowOptions,
    ) -> Result<Arc<Workflow>, WorkflowError> {
        if self.draining() {
            return Err(WorkflowError::Draining);
        }
        let war = open(&self.workflow_store, &options.url).await?;
        let name = name_of(&war, &options)?;
        let place = self.workflows.reserve(&name)?;
        let nodes = self.start_nodes(&name, &war, &options).await?;
        let War { spec, package, .. } = war;
        package.downloaded.iter().for_each(FetchedFile::keep);
        let course = Arc::new(Course { dag: spec.dag.clone(), nodes });
        let workflow = Arc::new(Workflow {
            name,
            url: options.url,
            spec,
            course,
            refusing: Arc::clone(&self.refusing),
            under_way: Default::default(),
            package,
        });
        place.settle(Arc::clone(&workflow));
        tracing::info!(workflow = workflow.name(), "workflow registered");
        Ok(workflow)
    }

    /// Removes a workflow: new requests do not find it, those under way are answered, then its nodes end.
    pub async fn unregister_workflow(&self, name: &str) -> Result<(), UnknownWorkflow> {
        let (workflow, place) = self.workflows.withdraw(name)?;
        workflow.idle(self.defaults.unregister_timeout).await;
        self.stop_nodes(workflow.course.nodes.iter().map(|node| &node.model)).await;
        let leaving = Arc::clone(&workflow);
        // It cannot panic, and nobody waits for more than its end.
        let _ =
            blocking(move || leaving.package.downloaded.iter().for_each(FetchedFile::remove)).await;
        drop(place);
        tracing::info!(workflow = workflow.name(), "workflow unregistered");
        Ok(())
    }

    /// Lets every request come to the end of its workflow, within the grace.
    pub(super) async fn finish_workflows(&self, grace: Duration) {
        let started = Instant::now();
        for workflow in self.workflows.all() {
            workflow.idle(grace.saturating_sub(started.elapsed())).await;
        }
    }

    /// All nodes with their workers, or none and a sentence about each that failed.
    async fn start_nodes(
        &self,
        workflow: &str,
        war: &War,
        options: &WorkflowOptions,
    ) -> Result<Vec<Node>, WorkflowError> {
        let (mut nodes, mut starts, mut failures) = (Vec::new(), JoinSet::new(), Vec::new());
        for name in war.spec.dag.nodes() {
            match self.register_node(workflow, name, war, options).await {
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
        tracing::warn!(workflow, ?failures, "a workflow was not registered");
        Err(WorkflowError::Failed { workflow: workflow.to_owned(), failures })
    }

    async fn register_node(
        &self,
        workflow: &str,
        node: &str,
        war: &War,
        options: &WorkflowOptions,
    ) -> Result<(Node, Registered), RegisterError> {
        let common = RegisterOptions {
            model_name: Some(model_name(workflow, node)),
            settings: options.timeouts.clone(),
            workflow: Some(workflow.to_owned()),
            ..RegisterOptions::default()
        };
        let (registered, settings) = match war.spec.model(node) {
            Some(model) => (self.register(node_options(model, common)).await?, &model.settings),
            None => (self.register_function(node, war, common).await?, &war.spec.settings),
        };
        let NodeSettings { timeout, retries, .. } = *settings;
        let model = Arc::clone(&registered.model);
        Ok((Node { name: node.to_owned(), model, timeout, retries }, registered))
    }

    /// A function of the handler file is a model of its own, in the workflow's directory.
    async fn register_function(
        &self,
        function: &str,
        war: &War,
        common: RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let handler = format!("{}:{function}", war.handler.as_deref().unwrap_or_default());
        let name = common.model_name.clone().unwrap_or_default();
        let model = json!({
            "modelName": name, "modelVersion": FUNCTION_VERSION, "handler": handler,
        });
        let package = Package {
            url: String::new(),
            // The workflow owns the directory.
            dir: ModelDir::existing(war.package.dir.path().to_owned()),
            // A function takes what the node before it gives: no envelope, whatever models have.
            manifest: Manifest {
                handler: Some(handler),
                envelope: Some(String::new()),
                ..Manifest::default()
            },
            manifest_json: json!({ "runtime": "python", "model": model }),
            settings: Values::default(),
            yaml_json: json!({}),
            downloaded: None,
            api: None,
        };
        let options = RegisterOptions {
            version: Some(FUNCTION_VERSION.to_owned()),
            settings: workers_and_batches(1, 1, 0).or(&common.settings),
            ..common
        };
        self.register_package(package, &options).await
    }

    /// Takes nodes away, side by side; one that somebody else removed already is fine.
    async fn stop_nodes<'a>(&self, models: impl Iterator<Item = &'a Arc<Model>>) {
        let mut ends = JoinSet::new();
        for model in models {
            let (name, version) = (model.name(), Some(model.version()));
            let is_ours = self.registry.find(name, version).is_ok_and(|it| Arc::ptr_eq(&it, model));
            if is_ours && let Err(error) = self.registry.remove(name, version) {
                tracing::warn!(model = name, %error, "a workflow's node stays in the list");
            }
            let (model, grace) = (Arc::clone(model), self.defaults.unregister_timeout);
            ends.spawn(async move {
                model.close(grace).await;
                super::remove_fetched(&model).await;
            });
        }
        while ends.join_next().await.is_some() {}
        self.changes.note();
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

async fn open(store: &Arc<Store>, url: &str) -> Result<War, WorkflowError> {
    let unread = |error: RegisterError| WorkflowError::Invalid(error.to_string());
    let (finder, theirs) = (Arc::clone(store), url.to_owned());
    let found = blocking(move || finder.find(&theirs, false)).await.map_err(unread)??;
    let found = store.fetch(DownloadRequest { url, signed: false, resume: None }, found).await?;
    let (opener, theirs) = (Arc::clone(store), url.to_owned());
    let read = move || War::read(opener.open(&theirs, found)?);
    blocking(read).await.map_err(unread)?
}

/// The caller's name wins over the archive's.
fn name_of(war: &War, options: &WorkflowOptions) -> Result<String, WorkflowError> {
    let asked = options.name.clone().filter(|name| !name.is_empty()).or_else(|| war.name.clone());
    let name = asked.filter(|name| is_sound(name));
    name.ok_or_else(|| {
        let why = "its name is missing, or has slashes or control characters".to_owned();
        WorkflowError::Invalid(why)
    })
}
