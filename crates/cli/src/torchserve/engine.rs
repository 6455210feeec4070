//! What `config.properties` says about the engine: defaults of models, the stores' limits, workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::settings::{ModelDefaults, PolicyName};
use jitney_engine::store::Limits;

use super::sequences;
use super::values::Values;
use crate::failure::Failure;
use crate::machine;
use crate::plan::EnginePlan;
use crate::units::Size;
use crate::url_rule::UrlRule;
use crate::worker_env::Hidden;

/// Long enough for anybody who looks at a worker with a debugger.
const DEBUG_SECONDS: u64 = 7 * 24 * 60 * 60;

/// What TorchServe takes from a `model-config.yaml` that says nothing about a time.
const SILENT_YAML_TIMEOUT: Duration = Duration::from_secs(120);

const ANY_URL: &str = "file://.*|http(s)?://.*";

/// How models are stored, started and batched.
pub(super) fn engine(
    values: &Values,
    store: &Path,
    python: PathBuf,
    gpus: u32,
) -> Result<EnginePlan, Failure> {
    let text = |key| values.text(key).map(str::to_owned);
    let urls = UrlRule::patterns(values.text("allowed_urls").unwrap_or(ANY_URL))?;
    Ok(EnginePlan {
        defaults: defaults(values, gpus)?,
        model_store: Some(store.to_owned()),
        workflow_store: values.text("workflow_store").map(PathBuf::from),
        store_limits: store_limits(values)?,
        urls: Arc::new(urls),
        python,
        hidden: Hidden::pattern(values.text("blacklist_env_vars"))?,
        decode_input: values.truth("decode_input_request", true),
        limit_max_image_pixels: values.truth("limit_max_image_pixels", true),
        envelope: text("service_envelope"),
        first_worker_id: values.number("initial_worker_port", 9000)?,
        install_requirements: values.truth("install_py_dep_per_model", false),
        response_bytes_max: values.read("max_response_size")?,
        gpus,
        worker_env: ipex(values).into_iter().chain(sequences::variables(values)).collect(),
    })
}

/// Intel's extension is switched on inside the workers.
fn ipex(values: &Values) -> Vec<(&'static str, String)> {
    [("ipex_enable", "TS_IPEX_ENABLE"), ("ipex_gpu_enable", "TS_IPEX_GPU_ENABLE")]
        .into_iter()
        .filter(|(key, _)| values.truth(key, false))
        .map(|(_, variable)| (variable, "true".to_owned()))
        .collect()
}

fn store_limits(values: &Values) -> Result<Limits, Failure> {
    let ours = Limits::default();
    let bytes = |key, default: u64| -> Result<u64, Failure> {
        Ok(values.read::<Size>(key)?.map_or(default, |size| size.0))
    };
    Ok(Limits {
        fetched_bytes_max: bytes("max_download_size", ours.fetched_bytes_max)?,
        unpacked_bytes_max: bytes("max_unpacked_size", ours.unpacked_bytes_max)?,
        files_max: values.number("max_unpacked_files", ours.files_max)?,
    })
}

/// Without a number, start-up models get a worker per GPU, or per processor where there is none;
/// models registered later get none.
///
/// With `debug` it is one worker, which may take its time.
pub(super) fn defaults(values: &Values, gpus: u32) -> Result<ModelDefaults, Failure> {
    let ours = ModelDefaults::default();
    // Zero is TorchServe's word for "as many as the machine has".
    let workers: Option<u32> = values.read("default_workers_per_model")?;
    let workers = workers.filter(|workers| *workers > 0);
    let debug = values.truth("debug", false);
    let by_machine = match gpus {
        _ if debug => 1,
        0 => machine::cpus(),
        gpus => gpus,
    };
    let seconds = |key: &str, ours: u64| {
        values.number(key, ours).map(|seconds| if debug { DEBUG_SECONDS } else { seconds })
    };
    let unregister_s =
        values.number("unregister_model_timeout", ours.unregister_timeout.as_secs())?;
    Ok(ModelDefaults {
        workers: workers.unwrap_or(ours.workers),
        startup_workers: workers.unwrap_or(by_machine),
        response_timeout_s: seconds("default_response_timeout", ours.response_timeout_s)?,
        startup_timeout_s: seconds("default_startup_timeout", ours.startup_timeout_s)?,
        silent_yaml_timeout: (!debug).then_some(SILENT_YAML_TIMEOUT),
        queue_max: values.number("job_queue_size", ours.queue_max)?,
        // TorchServe has one queue for both its doors.
        mix_origins: true,
        policy: policy(values)?,
        handler: values.text("default_service_handler").map(str::to_owned),
        models: per_model(values)?,
        unregister_timeout: Duration::from_secs(unregister_s),
        sequence_headers: Arc::new(sequences::headers(values)?),
    })
}

fn policy(values: &Values) -> Result<Option<PolicyName>, Failure> {
    let named = values.text("batching_policy").map(str::parse::<PolicyName>);
    named.transpose().map_err(|why| Failure::failed(format!("batching_policy: {why}")))
}

fn per_model(values: &Values) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    let Some(text) = values.text("models") else { return Ok(serde_json::Map::new()) };
    serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("models: not a JSON object: {error}")))
}
