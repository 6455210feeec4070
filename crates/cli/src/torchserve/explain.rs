//! Every key with its effective value and its origin, for `jitney config torchserve`. The defaults
//! are TorchServe's, as its documentation writes them.

use super::config::{config_file, startups};
use super::engine::defaults;
use super::keys::{self, Effect};
use super::properties;
use super::values::Values;
use crate::config::{Row, model};
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::gpu;
use crate::origin::Origin;

/// Defaults that are not "nothing".
const DEFAULTS: &[(&str, &str)] = &[
    ("inference_address", "http://127.0.0.1:8080"),
    ("management_address", "http://127.0.0.1:8081"),
    ("metrics_address", "http://127.0.0.1:8082"),
    ("grpc_inference_address", "127.0.0.1"),
    ("grpc_management_address", "127.0.0.1"),
    ("grpc_inference_port", "7070"),
    ("grpc_management_port", "7071"),
    ("enable_grpc_ssl", "false"),
    ("load_models", "none"),
    ("default_response_timeout", "120"),
    ("default_startup_timeout", "120"),
    ("unregister_model_timeout", "120"),
    ("job_queue_size", "100"),
    ("number_of_netty_threads", "0"),
    ("netty_client_threads", "0"),
    ("async_logging", "false"),
    ("keystore_pass", "changeit"),
    ("keystore_type", "PKCS12"),
    ("max_request_size", "6553500"),
    ("limit_max_image_pixels", "true"),
    ("decode_input_request", "true"),
    ("prefer_direct_buffer", "false"),
    ("allowed_urls", "file://.*|http(s)?://.*"),
    ("use_env_allowed_urls", "false"),
    ("install_py_dep_per_model", "false"),
    ("enable_metrics_api", "true"),
    ("metrics_mode", "log"),
    ("model_metrics_auto_detect", "false"),
    ("disable_system_metrics", "false"),
    ("metric_time_interval", "60"),
    ("enable_envvars_config", "false"),
    ("initial_worker_port", "9000"),
    ("initial_distribution_port", "29500"),
    ("debug", "false"),
    ("ipex_enable", "false"),
    ("ipex_gpu_enable", "false"),
    ("cpu_launcher_enable", "false"),
    ("ts_open_inference_protocol", "false"),
    ("token_expiration_min", "60"),
    ("ts_header_key_sequence_id", "ts_request_sequence_id"),
    ("ts_header_key_sequence_start", "ts_request_sequence_start"),
    ("ts_header_key_sequence_end", "ts_request_sequence_end"),
    ("disable_token_authorization", "false"),
    ("enable_model_api", "false"),
    ("plugin_timeout", "10"),
    ("use_native_io", "true"),
    ("io_ratio", "50"),
    ("max_download_size", "68719476736"),
    ("max_unpacked_size", "68719476736"),
    ("max_unpacked_files", "200000"),
    ("drain_delay", "0s"),
    ("drain_timeout", "30s"),
];

/// Values that nobody should read over a shoulder.
const SECRET: &str = "keystore_pass";

/// The rows: the server's keys, then the start-up models'.
pub fn explain(flags: &TorchserveFlags, env: &Env) -> Result<Vec<Row>, Failure> {
    let file = config_file(flags, env)?;
    let properties = file.as_deref().map(|file| properties::read(file, env)).transpose()?;
    let values = Values::resolve(properties.unwrap_or_default(), flags, env)?;
    let known = keys::names().filter(|key| keys::effect(key) != Some(Effect::Silent));
    let mut rows: Vec<Row> = known.map(|key| row(key, &values)).collect();
    rows.extend(models(&values, env)?);
    Ok(rows)
}

fn row(key: &str, values: &Values) -> Row {
    let default = || DEFAULTS.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let given = values.text(key);
    let value = given.or_else(default).map(|value| if key == SECRET { "***" } else { value });
    let origin = given.and_then(|_| values.origin(key)).cloned().unwrap_or(Origin::Default);
    Row { model: None, key: key.to_owned(), value: value.map(str::to_owned), origin }
}

fn models(values: &Values, env: &Env) -> Result<Vec<Row>, Failure> {
    let Some(store) = values.text("model_store") else { return Ok(Vec::new()) };
    let store = std::path::Path::new(store);
    let gpus = gpu::count(env).min(values.number("number_of_gpu", u32::MAX)?);
    let defaults = defaults(values, gpus)?;
    let said_in = values.origin(super::snapshot::KEY).cloned().unwrap_or(Origin::Default);
    let startups = startups(values, store, &mut Vec::new())?;
    let rows = startups.iter().flat_map(|startup| {
        model::rows(&model::About {
            startup,
            said_by: &|_| said_in.clone(),
            store: Some(store),
            temp_dir: &env.temp_dir(),
            defaults: &defaults,
            operator: values.origin("models").cloned().unwrap_or(Origin::Default),
        })
    });
    Ok(rows.collect())
}
