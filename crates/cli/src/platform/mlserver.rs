//! MLServer's variables and `model-settings.json`, as KServe's runtimes for it and its own images have them. Classes of
//! MLServer's name a format here, which the folder shows as well; classes of users are not run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, WORKERS};
use jitney_settings::server::{GRPC_PORT, HOST, INFERENCE_PORT, METRICS_PORT};
use jitney_settings::{Setting, SettingSource, Values};
use serde::Deserialize;

use super::plan::{PlatformPlan, in_container, take};
use crate::definition::in_folder;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::plan::Startup;

const FILE: &str = "model-settings.json";
/// The port of MLServer's for gRPC.
const PORT_OF_GRPC: u64 = 9000;
const BATCH_TIME: &str = "MLSERVER_MODEL_MAX_BATCH_TIME";

/// Variables of single settings; of two that say the same, the first one counts.
const SETTINGS: [(&str, &Setting); 7] = [
    ("MLSERVER_HTTP_PORT", &INFERENCE_PORT),
    ("MLSERVER_GRPC_PORT", &GRPC_PORT),
    ("MLSERVER_METRICS_PORT", &METRICS_PORT),
    ("MLSERVER_HOST", &HOST),
    ("MLSERVER_MODEL_MAX_BATCH_SIZE", &MAX_BATCH_SIZE),
    ("MLSERVER_MODEL_PARALLEL_WORKERS", &WORKERS),
    ("MLSERVER_PARALLEL_WORKERS", &WORKERS),
];

/// What is read of `model-settings.json`.
#[derive(Debug, Default, Deserialize)]
struct MlserverModel {
    name: Option<String>,
    implementation: Option<String>,
    max_batch_size: Option<u64>,
    max_batch_time: Option<f64>,
    parallel_workers: Option<u64>,
    #[serde(default)]
    parameters: MlserverParameters,
}

#[derive(Debug, Default, Deserialize)]
struct MlserverParameters {
    uri: Option<String>,
    version: Option<String>,
}

/// What the variables and the file say.
pub(super) fn read(env: &Env) -> Result<PlatformPlan, Failure> {
    let mut above = Values::default();
    for (name, setting) in SETTINGS {
        // Without workers of its own MLServer runs a model in its one process.
        if !above.has(setting) && env.text(name) != Some("0") {
            take(env, name, setting, &mut above)?;
        }
    }
    if let Some(text) = env.text(BATCH_TIME).filter(|text| !text.is_empty()) {
        let wrong = || Failure::usage(format!("{BATCH_TIME} must be seconds, not {text:?}"));
        let time = text.parse().ok().and_then(seconds).ok_or_else(wrong)?;
        above.set(&MAX_BATCH_DELAY, time, SettingSource::Variable(BATCH_TIME.to_owned()));
    }
    let below = in_container().with(&GRPC_PORT, PORT_OF_GRPC, SettingSource::Default);
    let named = ["MLSERVER_MODEL_URI", "MLSERVER_MODELS_DIR", "MODELS_DIR"];
    let folder = named.into_iter().find_map(|name| env.path(name));
    let folder = folder.unwrap_or_else(|| PathBuf::from("/mnt/models"));
    let artifacts = Some(folder.to_string_lossy().into_owned());
    let models = model(env, &folder)?.into_iter().collect();
    Ok(PlatformPlan { above, below, models, artifacts, ..PlatformPlan::default() })
}

/// The model of the folder, with what its file says; none where there is no folder.
fn model(env: &Env, folder: &Path) -> Result<Option<Startup>, Failure> {
    if !folder.exists() {
        return Ok(None);
    }
    let settings = settings_of(&folder.join(FILE))?;
    let class = env.text("MLSERVER_MODEL_IMPLEMENTATION").map(str::to_owned);
    let class = class.or(settings.implementation).filter(|class| !class.is_empty());
    if let Some(class) = class.filter(|class| !class.starts_with("mlserver")) {
        return Err(Failure::usage(format!(
            "{class} is a class for MLServer, which is not run here"
        ))
        .hint("write it as a definition: docs/guides/getting-started.md"));
    }
    let path = settings.parameters.uri.map_or_else(|| folder.to_owned(), |uri| folder.join(uri));
    let path = std::path::absolute(path).map_err(cannot("find the folder of the model"))?;
    let mut values = Values::default();
    let source = || SettingSource::File { path: folder.join(FILE).into(), line: None };
    if let Some(size) = settings.max_batch_size.filter(|size| *size > 0) {
        values.set(&MAX_BATCH_SIZE, size, source());
    }
    if let Some(time) = settings.max_batch_time.filter(|time| *time > 0.0).and_then(seconds) {
        values.set(&MAX_BATCH_DELAY, time, source());
    }
    if let Some(workers) = settings.parallel_workers.filter(|workers| *workers > 0) {
        values.set(&WORKERS, workers, source());
    }
    let name = env.text("MLSERVER_MODEL_NAME").map(str::to_owned).or(settings.name);
    let version = settings.parameters.version;
    Ok(Some(Startup { name, version, settings: values, ..in_folder(&path) }))
}

fn settings_of(file: &Path) -> Result<MlserverModel, Failure> {
    if !file.is_file() {
        return Ok(MlserverModel::default());
    }
    let text = std::fs::read(file).map_err(cannot("read model-settings.json"))?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

fn seconds(time: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(time).ok()
}
