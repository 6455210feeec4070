//! Plugins: the operator's own Python processes beside the models (`docs/adr/0010`).
//!
//! A plugin is a model with one worker that takes many requests at a time. It is in no registry, so no
//! client finds, lists or removes it; the server reads its answers. It is started again for ever, and its
//! requests are never tried twice.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jitney_settings::Values;
use serde_json::json;

use super::registrar::Registrar;
use crate::changes::Changes;
use crate::error::ScaleError;
use crate::model::draft::Draft;
use crate::model::{Intake, Model, ModelIdentity};
use crate::observer::Observer;
use crate::python::{Environment, LoadCommand, PythonLauncher};
use crate::settings::{ModelSettings, PolicyName, WorkerMode};
use crate::store::ShownUrl;

/// The module that a plugin's process runs.
const HOST: &str = "jitney.plugin.host:handle";
/// Requests that a plugin works on at a time, and that may wait for it beside them.
const SLOTS: u8 = 100;
const QUEUE_MAX: u32 = 1000;
/// How long it may take to load.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// A process that leaves a request unanswered for so many of its timeouts is started anew.
const TIMEOUTS_MAX: u32 = 3;
/// Longer than any server runs.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A plugin to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPlan {
    /// Its name in logs and messages.
    pub name: String,
    /// The Python file, or the name of a module.
    pub source: String,
    /// Where its process runs.
    pub dir: PathBuf,
    /// How long its callers wait for an answer.
    pub timeout: Duration,
}

/// The plugins that run.
pub struct RunningPlugins {
    models: Arc<Registrar>,
    running: Mutex<Vec<Arc<Model>>>,
}

impl RunningPlugins {
    pub(super) fn new(models: Arc<Registrar>) -> Self {
        Self { models, running: Mutex::default() }
    }

    /// Starts a plugin and waits until it is loaded.
    ///
    /// # Errors
    /// It could not be loaded; the log has its traceback.
    pub async fn start(&self, plan: &PluginPlan) -> Result<Arc<Model>, ScaleError> {
        let Registrar { admission, rejecting, data, .. } = &*self.models;
        let ids = Arc::new(AtomicU32::new(1));
        let (draft, changes) = (self.draft(plan), Changes::default());
        let model = draft.build(admission, rejecting, &ids, &changes, data.take_turn());
        let started = model.scale(1, 1).await;
        if started.is_err() {
            model.close(Duration::ZERO).await;
        }
        started?;
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&model));
        Ok(model)
    }

    /// All plugins, to be ended.
    pub(super) fn take(&self) -> Vec<Arc<Model>> {
        std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn draft(&self, plan: &PluginPlan) -> Draft {
        let unobserved: Arc<dyn Observer> = Arc::new(());
        let python = &self.models.python;
        let environment = Environment::shared(&python.config);
        let gpus = python.gpus(0, &Values::default());
        let observer = Arc::clone(&unobserved);
        let launcher = PythonLauncher::new(python, command(plan), environment, gpus, observer);
        Draft {
            identity: ModelIdentity {
                name: plan.name.clone(),
                version: "plugin".to_owned(),
                url: ShownUrl::of(&plan.source),
                sha256: None,
                at_startup: true,
                workflow: None,
                labels: Arc::default(),
            },
            settings: settings(plan.timeout),
            intake: Intake::Python,
            launcher: Arc::new(launcher),
            observer: unobserved,
            dir: None,
            fetched: None,
            declared: None,
            budget: None,
        }
    }
}

fn command(plan: &PluginPlan) -> LoadCommand {
    let dir: &Path = &plan.dir;
    LoadCommand {
        calls: false,
        memory_limit: None,
        model: plan.name.clone(),
        version: "plugin".to_owned(),
        dir: dir.to_owned(),
        message: json!({
            "model_name": plan.name,
            "model_version": "plugin",
            "model_dir": dir,
            "handler": HOST,
            "batch_size": 1,
            "gpu_id": null,
            "decode_input": false,
            "model_yaml_config": { "plugin": plan.source },
            "mode": WorkerMode::Concurrent.as_str(),
        })
        .to_string()
        .into(),
        metric_ids: true,
        mode: WorkerMode::Concurrent,
        gpu_turns: false,
        sequence_headers: Arc::default(),
    }
}

fn settings(timeout: Duration) -> ModelSettings {
    ModelSettings {
        batch_size: 1,
        policy: PolicyName::Opportunistic,
        queue_max: QUEUE_MAX,
        mix_origins: true,
        slots: SLOTS,
        workers_min: 1,
        workers_max: 1,
        response_timeout: timeout.saturating_mul(TIMEOUTS_MAX),
        startup_timeout: STARTUP_TIMEOUT,
        startup_wait: STARTUP_TIMEOUT,
        retry_window: FOR_EVER,
        runtime: "python".to_owned(),
        handler: HOST.to_owned(),
        ..ModelSettings::default()
    }
}
