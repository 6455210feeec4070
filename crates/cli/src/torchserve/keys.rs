//! Every key of TorchServe 0.12's configuration and what becomes of it here. The table is the one
//! place to look up whether a key is acted on, and the list that a typo is compared with.

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what TorchServe documents.
    Acts,
    /// It tunes the Java server; there is nothing here to tune.
    Java,
    /// It does nothing here; something else does what it is for.
    Instead(&'static str),
    /// TorchServe writes or ignores it itself.
    Silent,
}

use Effect::{Acts, Instead, Java, Silent};

/// Whether the environment may set a key, given `enable_envvars_config=true`.
const ENV: bool = true;
/// The environment never sets this key.
const NO_ENV: bool = false;

const DISTRIBUTION: &str =
    "no worker has several ranks; a handler that starts its own sets MASTER_PORT itself";
const CPU_LAUNCHER: &str = "pin the whole server with `numactl` or `taskset`, and set OMP_NUM_THREADS \
    for the threads of each worker";

/// The keys: name, effect, whether `TS_<NAME>` may set it.
const KEYS: &[(&str, Effect, bool)] = &[
    ("inference_address", Acts, ENV),
    ("management_address", Acts, ENV),
    ("metrics_address", Acts, ENV),
    ("grpc_inference_address", Acts, ENV),
    ("grpc_management_address", Acts, ENV),
    ("grpc_inference_port", Acts, ENV),
    ("grpc_management_port", Acts, ENV),
    ("grpc_inference_max_connection_age_ms", Acts, ENV),
    ("grpc_inference_max_connection_age_grace_ms", Acts, ENV),
    ("grpc_management_max_connection_age_ms", Acts, ENV),
    ("grpc_management_max_connection_age_grace_ms", Acts, ENV),
    ("model_store", Acts, ENV),
    ("workflow_store", Acts, ENV),
    ("load_models", Acts, ENV),
    ("models", Acts, NO_ENV),
    ("model_snapshot", Acts, NO_ENV),
    ("default_workers_per_model", Acts, ENV),
    ("default_response_timeout", Acts, ENV),
    ("default_startup_timeout", Acts, ENV),
    ("unregister_model_timeout", Acts, ENV),
    ("job_queue_size", Acts, ENV),
    ("number_of_gpu", Acts, ENV),
    ("cors_allowed_origin", Acts, ENV),
    ("cors_allowed_methods", Acts, ENV),
    ("cors_allowed_headers", Acts, ENV),
    ("max_request_size", Acts, ENV),
    ("limit_max_image_pixels", Acts, ENV),
    ("decode_input_request", Acts, ENV),
    ("default_service_handler", Acts, ENV),
    ("service_envelope", Acts, ENV),
    ("allowed_urls", Acts, ENV),
    ("use_env_allowed_urls", Acts, NO_ENV),
    ("blacklist_env_vars", Acts, ENV),
    ("enable_metrics_api", Acts, ENV),
    ("enable_envvars_config", Acts, NO_ENV),
    ("initial_worker_port", Acts, ENV),
    ("ts_open_inference_protocol", Acts, ENV),
    ("disable_token_authorization", Acts, ENV),
    ("enable_model_api", Acts, ENV),
    ("token_expiration_min", Acts, ENV),
    ("private_key_file", Acts, ENV),
    ("certificate_file", Acts, ENV),
    // Refused where an https address would need them.
    ("keystore", Acts, ENV),
    ("keystore_pass", Acts, ENV),
    ("keystore_type", Acts, ENV),
    ("python", Acts, NO_ENV),
    ("metrics_config", Acts, ENV),
    ("metrics_mode", Acts, ENV),
    ("model_metrics_auto_detect", Acts, ENV),
    ("disable_system_metrics", Acts, ENV),
    // Remarked on, see `metrics`.
    ("system_metrics_cmd", Acts, NO_ENV),
    ("metric_time_interval", Acts, NO_ENV),
    // Ours.
    ("batching_policy", Acts, ENV),
    ("sagemaker", Acts, ENV),
    ("io_threads", Acts, ENV),
    ("max_download_size", Acts, ENV),
    ("max_unpacked_size", Acts, ENV),
    ("max_unpacked_files", Acts, ENV),
    ("drain_delay", Acts, ENV),
    ("drain_timeout", Acts, ENV),
    ("plugins", Acts, NO_ENV),
    ("plugin_timeout", Acts, ENV),
    // Python files; jars are remarked on.
    ("plugins_path", Acts, NO_ENV),
    ("enable_grpc_ssl", Acts, ENV),
    ("max_response_size", Acts, ENV),
    ("install_py_dep_per_model", Acts, ENV),
    ("debug", Acts, ENV),
    ("ipex_enable", Acts, ENV),
    ("ipex_gpu_enable", Acts, ENV),
    ("initial_distribution_port", Instead(DISTRIBUTION), ENV),
    ("cpu_launcher_enable", Instead(CPU_LAUNCHER), ENV),
    ("cpu_launcher_args", Instead(CPU_LAUNCHER), ENV),
    ("ts_header_key_sequence_id", Acts, ENV),
    ("ts_header_key_sequence_start", Acts, ENV),
    ("ts_header_key_sequence_end", Acts, ENV),
    // Of the Java server.
    ("number_of_netty_threads", Java, ENV),
    ("netty_client_threads", Java, ENV),
    ("async_logging", Java, ENV),
    ("prefer_direct_buffer", Java, ENV),
    ("use_native_io", Java, NO_ENV),
    ("io_ratio", Java, NO_ENV),
    ("vmargs", Java, NO_ENV),
    ("cpp_log_config", Java, ENV),
    ("model_server_home", Java, ENV),
    // Written by snapshots, or seen in files of the wild that TorchServe ignores.
    ("tsConfigFile", Silent, NO_ENV),
    ("version", Silent, NO_ENV),
    ("NUM_WORKERS", Silent, NO_ENV),
    ("metrics_format", Silent, NO_ENV),
];

/// What becomes of a key; nothing for a key that does not exist.
pub fn effect(key: &str) -> Option<Effect> {
    KEYS.iter().find(|(name, ..)| *name == key).map(|(_, effect, _)| *effect)
}

/// Every name.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|(name, ..)| *name)
}

/// Every key the environment may set, with its variable.
pub fn variables() -> impl Iterator<Item = (&'static str, String)> {
    KEYS.iter().filter(|(_, _, env)| *env).map(|(name, ..)| (*name, variable(name)))
}

fn variable(name: &str) -> String {
    match name {
        "token_expiration_min" => "TS_TOKEN_EXPIRATION_TIME_MIN".to_owned(),
        name => format!("TS_{}", name.trim_start_matches("ts_").to_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_follow_torchserves_naming_and_its_exceptions() {
        for (key, expected) in [
            ("job_queue_size", "TS_JOB_QUEUE_SIZE"),
            ("token_expiration_min", "TS_TOKEN_EXPIRATION_TIME_MIN"),
            ("ts_open_inference_protocol", "TS_OPEN_INFERENCE_PROTOCOL"),
            ("ts_header_key_sequence_id", "TS_HEADER_KEY_SEQUENCE_ID"),
        ] {
            assert!(
                variables().any(|(name, variable)| name == key && variable == expected),
                "{key}"
            );
        }
        assert!(variables().all(|(name, _)| name != "models"));
    }

    #[test]
    fn no_key_stands_twice_in_the_table() {
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), names().count());
    }
}
