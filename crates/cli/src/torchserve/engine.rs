//! What `config.properties` says about the engine: defaults of models, the stores' limits, workers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::RepositoryConfig;
use jitney_engine::call::SequenceHeaders;
use jitney_engine::python::PythonConfig;
use jitney_engine::settings::{ModelDefaults, Precedence};
use jitney_settings::model::{MIX_ORIGINS, RESPONSE_TIMEOUT, STARTUP_TIMEOUT, WORKERS};
use jitney_settings::server::{GPU_MEMORY, MAX_WORKERS_PER_MODEL, MEMORY};
use jitney_settings::torchserve::{
    ALLOWED_URLS, BLACKLIST_ENV_VARS, DEBUG, DECODE_INPUT_REQUEST, DEFAULT_SERVICE_HANDLER,
    INITIAL_WORKER_PORT, IPEX_ENABLE, IPEX_GPU_ENABLE, LIMIT_MAX_IMAGE_PIXELS, MAX_RESPONSE_SIZE,
    MODELS, SEQUENCE_END_HEADER, SEQUENCE_ID_HEADER, SEQUENCE_START_HEADER, SERVICE_ENVELOPE,
    UNREGISTER_MODEL_TIMEOUT, WORKFLOW_STORE,
};
use jitney_settings::{Setting, SettingSource, Values, model};

use crate::env::{Env, Hidden};
use crate::failure::Failure;
use crate::gpu::FoundDevices;
use crate::plan::EnginePlan;
use crate::url_rule::UrlRule;
use crate::{machine, parts};

/// Long enough to look at a worker with a debugger.
const DEBUG_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What TorchServe takes from a `model-config.yaml` that gives no timeouts.
const SILENT_YAML_TIMEOUT: Duration = Duration::from_secs(120);

/// How models are stored, started and batched.
pub(super) fn engine(
    values: &Values,
    store: &Path,
    python: PathBuf,
    (devices, gpus): (&FoundDevices, u32),
    env: &Env,
) -> Result<EnginePlan, Failure> {
    let gpu_memory = devices.memory(values.value(&GPU_MEMORY), gpus);
    let by_memory = gpu_memory.is_some();
    let urls = UrlRule::patterns(&values.value::<String>(&ALLOWED_URLS))?;
    Ok(EnginePlan {
        defaults: defaults(values, gpus)?,
        model_store: Some(store.to_owned()),
        workflow_store: values.read(&WORKFLOW_STORE),
        repository: RepositoryConfig {
            store: Some(store.to_owned()),
            ..RepositoryConfig::default()
        },
        limits: parts::admission_limits(values),
        memory: values.value(&MEMORY),
        gpu_memory,
        store_limits: parts::store_limits(values),
        urls: Arc::new(urls),
        python: PythonConfig {
            env: devices.in_order(worker_env(values, env)?, by_memory),
            decode_input: values.flag(&DECODE_INPUT_REQUEST),
            limit_max_image_pixels: values.flag(&LIMIT_MAX_IMAGE_PIXELS),
            strict_json: false,
            envelope: values.read(&SERVICE_ENVELOPE),
            response_bytes_max: values.read(&MAX_RESPONSE_SIZE),
            gpus,
            gpu_nodes: devices.nodes(),
            ..parts::python(values, python)
        },
        first_worker_id: values.value(&INITIAL_WORKER_PORT),
    })
}

/// The server's variables that workers see, and those that switch on Intel's extension and name the
/// headers of sequences inside the workers.
fn worker_env(values: &Values, env: &Env) -> Result<Vec<(OsString, OsString)>, Failure> {
    let hidden = Hidden::pattern(values.show(&BLACKLIST_ENV_VARS).as_deref())?;
    let ipex = [(&IPEX_ENABLE, "TS_IPEX_ENABLE"), (&IPEX_GPU_ENABLE, "TS_IPEX_GPU_ENABLE")]
        .into_iter()
        .filter(|(setting, _)| values.flag(setting))
        .map(|(_, variable)| (variable, "true".to_owned()));
    let more = ipex.chain(sequence_variables(values));
    let more = more.map(|(name, value)| (name.into(), value.into()));
    Ok(hidden.filter(env).into_iter().chain(more).collect())
}

/// Without a number, start-up models get a worker per GPU, or per processor where there is none;
/// models registered later get none. With `debug` it is one worker, which may take its time.
fn defaults(values: &Values, gpus: u32) -> Result<ModelDefaults, Failure> {
    let debug = values.flag(&DEBUG);
    let by_machine = match gpus {
        _ if debug => 1,
        0 => machine::cpus(),
        gpus => gpus,
    };
    let mut settings = values.only(model::SETTINGS);
    // Zero is TorchServe's word for "as many as the machine has".
    if settings.read(&WORKERS) == Some(0_u32) {
        settings.remove(&WORKERS);
    }
    if debug {
        let source = values.source(&DEBUG);
        settings.set(&RESPONSE_TIMEOUT, DEBUG_TIMEOUT, source.clone());
        settings.set(&STARTUP_TIMEOUT, DEBUG_TIMEOUT, source);
    }
    // TorchServe has one queue for both its protocols.
    settings.set(&MIX_ORIGINS, true, SettingSource::Default);
    Ok(ModelDefaults {
        precedence: Precedence::TorchServe,
        settings,
        startup_workers: by_machine,
        workers_limit: values.read(&MAX_WORKERS_PER_MODEL),
        silent_yaml_timeout: (!debug).then_some(SILENT_YAML_TIMEOUT),
        handler: values.read(&DEFAULT_SERVICE_HANDLER),
        handles_folder: |_| true,
        models: per_model(values)?,
        models_source: values.source(&MODELS),
        unregister_timeout: values.value(&UNREGISTER_MODEL_TIMEOUT),
        sequence_headers: Arc::new(sequence_headers(values)?),
    })
}

pub(super) fn per_model(
    values: &Values,
) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    let Some(text) = values.show(&MODELS) else { return Ok(serde_json::Map::new()) };
    serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("models: not a JSON object: {error}")))
}

/// Where handlers read the names, by the setting.
const VARIABLES: [(&Setting, &str); 3] = [
    (&SEQUENCE_ID_HEADER, "TS_REQUEST_SEQUENCE_ID"),
    (&SEQUENCE_START_HEADER, "TS_REQUEST_SEQUENCE_START"),
    (&SEQUENCE_END_HEADER, "TS_REQUEST_SEQUENCE_END"),
];

/// The names that the configuration gives, else TorchServe's.
fn sequence_headers(values: &Values) -> Result<SequenceHeaders, Failure> {
    let name = |setting: &Setting| {
        let name: String = values.value(setting);
        if is_header(&name) {
            return Ok(name);
        }
        Err(Failure::failed(format!("{}={name}: not the name of a header", setting.name)))
    };
    Ok(SequenceHeaders {
        id: name(&SEQUENCE_ID_HEADER)?,
        start: name(&SEQUENCE_START_HEADER)?,
        end: name(&SEQUENCE_END_HEADER)?,
    })
}

/// What workers are told, as far as the configuration says anything.
fn sequence_variables(values: &Values) -> impl Iterator<Item = (&'static str, String)> {
    VARIABLES.into_iter().filter_map(|(setting, variable)| {
        let is_set = values.source(setting) != SettingSource::Default;
        values.show(setting).filter(|_| is_set).map(|name| (variable, name))
    })
}

/// HTTP's own rule for names.
fn is_header(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(sound)
}
