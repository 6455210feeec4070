//! The command that makes a worker load a model (`protocol/spec.md`).
//!
//! Made once for a model version and sent to each of its workers, which add only what differs between
//! them: their GPUs, and how many they are.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::workers::PythonConfig;
use crate::call::SequenceHeaders;
use crate::model::ModelIdentity;
use crate::settings::ModelSettings;
use crate::store::Package;

/// The command to load a model.
#[derive(Clone, Debug)]
pub(crate) struct LoadCommand {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) dir: PathBuf,
    /// The `Load` message of `protocol/spec.md`.
    pub(crate) message: Value,
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
    ) -> Self {
        let ModelIdentity { name, version, .. } = identity;
        let message = json!({
            "model_name": name,
            "model_version": version,
            "model_dir": package.dir.path(),
            "handler": settings.handler,
            "batch_size": settings.batch_size,
            "gpu_id": null,
            "envelope": package.manifest.envelope.as_ref().or(python.envelope.as_ref()),
            "limit_max_image_pixels": python.limit_max_image_pixels,
            "decode_input": python.decode_input,
            "manifest": package.manifest_json,
            "model_yaml_config": package.yaml_json,
            "server_version": "0.12.0",
            "workers": settings.workers_max.max(1),
            "mode": settings.worker_mode().as_str(),
            "model_metrics": model_metrics,
        });
        let dir = package.dir.path().to_owned();
        let sequence_headers = Arc::clone(&settings.sequence_headers);
        Self { model: name.clone(), version: version.clone(), dir, message, sequence_headers }
    }
}
