//! What the workers of one model version are told to load.

use std::path::PathBuf;
use std::sync::Arc;

use jitney_settings::model::{GPU_MEMORY_FRACTION, GPU_TURNS, MEMORY_LIMIT};
use serde_json::{Value, json};

use super::placed_model::PlacedModel;
use super::workers::{PythonConfig, PythonWorkers};
use crate::call::SequenceHeaders;
use crate::model::ModelIdentity;
use crate::settings::{ModelSettings, WorkerMode};
use crate::store::Package;

/// The command that makes a worker load a model (`protocol/spec.md`). Made once for a model version and
/// sent to each of its workers, which add only what differs between them: their GPUs, and how many
/// they are.
#[derive(Clone, Debug)]
pub(crate) struct LoadCommand {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) dir: PathBuf,
    /// The `Load` message of `protocol/spec.md` as text, which takes a fifth of the memory: most models of a server
    /// with very many are never asked.
    pub(crate) message: Box<str>,
    /// Whether handlers' metrics are wanted with the ids of their requests.
    pub(crate) metric_ids: bool,
    pub(crate) mode: WorkerMode,
    /// Bytes that one of its workers may use.
    pub(crate) memory_limit: Option<u64>,
    /// Whether its workers take turns with those of other models on their GPU.
    pub(crate) gpu_turns: bool,
    /// Whether its workers may call models.
    pub(crate) calls: bool,
    /// The headers in which its handler reads about sequences.
    pub(crate) sequence_headers: Arc<SequenceHeaders>,
}

impl LoadCommand {
    /// What the workers of an archive load.
    pub(crate) fn of(
        identity: &ModelIdentity,
        package: &Package,
        settings: &ModelSettings,
        python: &PythonConfig,
        model_metrics: Value,
        compile_cache: Option<PathBuf>,
    ) -> Self {
        let (ModelIdentity { name, version, .. }, mode) = (identity, settings.worker_mode());
        let mut message = json!({
            "model_name": name,
            "model_version": version,
            "model_dir": package.dir.path(),
            "handler": settings.handler,
            "batch_size": settings.batch_size,
            "gpu_id": null,
            "envelope": package.manifest.envelope.as_ref().or(python.envelope.as_ref()),
            "limit_max_image_pixels": python.limit_max_image_pixels,
            "max_image_pixels": python.image_pixels_max,
            "image_formats": python.image_formats,
            "max_expanded_size": python.expanded_bytes_max,
            "debug_errors": python.debug_errors,
            "strict_json": python.strict_json,
            "garbage_collection": python.garbage_collection.as_str(),
            "decode_input": python.decode_input,
            "manifest": package.manifest_json,
            "model_yaml_config": package.yaml_json,
            "server_version": "0.12.0",
            "workers": settings.workers_max.max(1),
            "mode": mode.as_str(),
            "model_metrics": model_metrics,
        });
        let values = &settings.values;
        let share: Option<f64> = values.read(&GPU_MEMORY_FRACTION);
        let list = |list: &[u32]| (!list.is_empty()).then(|| json!(list));
        // There only where they say something.
        for (key, value) in [
            ("sizes", list(&settings.sizes)),
            ("lengths", list(&settings.lengths)),
            ("compile_cache", compile_cache.map(|path| json!(path))),
            ("gpu_memory_fraction", share.map(|share| json!(share))),
        ] {
            if let Some(value) = value {
                message[key] = value;
            }
        }
        let (gpu_turns, memory_limit) = (values.flag(&GPU_TURNS), values.read(&MEMORY_LIMIT));
        let dir = package.dir.path().to_owned();
        let sequence_headers = Arc::clone(&settings.sequence_headers);
        let (model, version) = (name.clone(), version.clone());
        let calls = package.api.is_some();
        Self {
            model,
            version,
            dir,
            message: message.to_string().into(),
            metric_ids: true,
            mode,
            memory_limit,
            gpu_turns,
            calls,
            sequence_headers,
        }
    }

    /// The model with this load command on a cluster, if there is one.
    pub(crate) fn placed(
        &self,
        python: &PythonWorkers,
        settings: &ModelSettings,
    ) -> Option<PlacedModel> {
        let placement = Arc::clone(python.placement.as_ref()?);
        let name = format!("{} {}", self.model, self.version);
        // One that does not read is told to whoever starts a worker.
        let load = (&*self.dir, &self.message().unwrap_or_default());
        Some(PlacedModel::of((placement, &python.packages), name, load, &settings.values))
    }

    /// The message as it is sent, but for what differs between workers.
    pub(super) fn message(&self) -> serde_json::Result<Value> {
        let mut message: Value = serde_json::from_str(&self.message)?;
        message["metric_ids"] = self.metric_ids.into();
        Ok(message)
    }
}
