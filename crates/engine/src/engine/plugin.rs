//! Plugins: the operator's own Python processes beside the models (`docs/adr/0010`).
//!
//! To the pool a plugin is one more model, with one worker that takes many requests at a time; it
//! stands in no registry, so no client finds, lists or removes it. What its answers mean is the
//! server's business. It is started again for ever, and what it was answering is never tried twice.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::{Draft, Engine};
use crate::changes::Changes;
use crate::error::ScaleError;
use crate::model::{Intake, Model, ModelIdentity};
use crate::observer::Observer;
use crate::python::{Devices, Environment, LoadOrder};
use crate::settings::{Declared, PolicyName, Settings};
use crate::shares::Shares;
use crate::store::ModelYaml;

/// The module that a plugin's process runs.
const HOST: &str = "jitney.plugin.host:handle";
/// Requests that a plugin works on at a time, and that may wait for it beside them.
const SLOTS: u8 = 100;
const QUEUE_MAX: u32 = 1000;
/// How long it may take to load.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// A process that leaves a request unanswered for so many of its timeouts is started anew.
const PATIENCE: u32 = 3;
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

impl Engine {
    /// Starts a plugin and waits until it is loaded.
    ///
    /// # Errors
    /// It could not be loaded; the log has its traceback.
    pub async fn start_plugin(&self, plan: &PluginPlan) -> Result<Arc<Model>, ScaleError> {
        let draft = self.plugin_draft(plan);
        let ids = Arc::new(AtomicU32::new(1));
        let (model, task) = draft.build(&self.admission, &self.refusing, &ids, &Changes::default());
        self.data[0].spawn(task.run());
        let started = model.scale(1, 1).await;
        if started.is_err() {
            model.close(Duration::ZERO).await;
        }
        started?;
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&model));
        Ok(model)
    }

    fn plugin_draft(&self, plan: &PluginPlan) -> Draft {
        let nobody: Arc<dyn Observer> = Arc::new(());
        let environment = Environment::shared(&self.python);
        let devices = Devices::new(0, &ModelYaml::default(), &self.gpu_turn);
        let launcher = self.python_launcher(order(plan), environment, devices, &nobody);
        Draft {
            identity: ModelIdentity {
                name: plan.name.clone(),
                version: "plugin".to_owned(),
                url: plan.source.clone(),
                sha256: None,
                at_startup: true,
                workflow: None,
            },
            settings: settings(plan.timeout),
            intake: Intake::Python,
            launcher: Arc::new(launcher),
            observer: nobody,
            dir: None,
            fetched: None,
        }
    }
}

fn order(plan: &PluginPlan) -> LoadOrder {
    let dir: &Path = &plan.dir;
    LoadOrder {
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
            "mode": "concurrent",
        }),
        sequence_headers: Arc::default(),
    }
}

fn settings(timeout: Duration) -> Settings {
    Settings {
        batch_size: 1,
        batch_delay: Duration::ZERO,
        wait_max: None,
        policy: PolicyName::Opportunistic,
        latency_max: None,
        queue_max: QUEUE_MAX,
        mix_origins: true,
        isolate: false,
        job_ticket: false,
        slots: SLOTS,
        workers_min: 1,
        workers_max: 1,
        response_timeout: timeout.saturating_mul(PATIENCE),
        startup_timeout: STARTUP_TIMEOUT,
        retry_window: FOR_EVER,
        client_timeout: Duration::ZERO,
        runtime: "python".to_owned(),
        handler: HOST.to_owned(),
        shares: Shares::default(),
        sequence_headers: Arc::default(),
        declared: Declared::default(),
    }
}
