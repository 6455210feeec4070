//! The keys of TorchServe 0.12's `config.properties` that no other source sets, and what becomes of
//! each of them here. TorchServe's defaults are written as its documentation writes them.

use crate::setting::settings;
use crate::{PropertyEffect, Setting, SettingKind, TimeUnit, model, server};
use PropertyEffect::{Instead, Java, Silent};

const FLAG: SettingKind = SettingKind::Flag;
const MILLIS: SettingKind = SettingKind::Time(TimeUnit::Millis);
const PATH: SettingKind = SettingKind::Path;
const PORT: SettingKind = SettingKind::Whole { min: 0, max: 65535 };
const SECONDS: SettingKind = SettingKind::Time(TimeUnit::Seconds);
const TEXT: SettingKind = SettingKind::Text;

const ADDRESS: &str = "http://HOST:PORT, https://HOST:PORT or unix:PATH";
const AGE: &str = "Age at which a gRPC connection is closed";
const GRACE: &str = "Time that its calls then have to end";
const HEADER: &str = "Header that names a sequence";
const KEYSTORE: &str = "Rejected where an https address needs it: convert it to PEM";
const TUNES_JAVA: &str = "Tunes the Java server";
const NOT_READ: &str = "TorchServe writes or ignores it itself";
const DISTRIBUTION: &str =
    "no worker has several ranks; a handler that starts its own sets MASTER_PORT itself";
const CPU_LAUNCHER: &str =
    "`cpus: auto` below `jitney:` in model-config.yaml keeps every worker to processors of its own";

const fn key(name: &'static str, kind: SettingKind, about: &'static str) -> Setting {
    Setting::new(name, kind, about).property(name)
}

const fn java(name: &'static str) -> Setting {
    key(name, TEXT, TUNES_JAVA).effect(Java)
}

const fn silent(name: &'static str) -> Setting {
    key(name, TEXT, NOT_READ).effect(Silent).file_only()
}

settings! {
    /// The keys that only `config.properties` has.
    SETTINGS:
    INFERENCE_ADDRESS = key("inference_address", TEXT, ADDRESS).or("http://127.0.0.1:8080");
    MANAGEMENT_ADDRESS = key("management_address", TEXT, ADDRESS).or("http://127.0.0.1:8081");
    METRICS_ADDRESS = key("metrics_address", TEXT, ADDRESS).or("http://127.0.0.1:8082");
    GRPC_INFERENCE_ADDRESS = key("grpc_inference_address", TEXT, "Host for predictions over gRPC").or("127.0.0.1");
    GRPC_MANAGEMENT_ADDRESS = key("grpc_management_address", TEXT, "Host for management over gRPC").or("127.0.0.1");
    GRPC_INFERENCE_AGE = key("grpc_inference_max_connection_age_ms", MILLIS, AGE).or_else("no limit");
    GRPC_INFERENCE_GRACE = key("grpc_inference_max_connection_age_grace_ms", MILLIS, GRACE).or_else("no limit");
    GRPC_MANAGEMENT_AGE = key("grpc_management_max_connection_age_ms", MILLIS, AGE).or_else("no limit");
    GRPC_MANAGEMENT_GRACE = key("grpc_management_max_connection_age_grace_ms", MILLIS, GRACE).or_else("no limit");
    ENABLE_GRPC_SSL = key("enable_grpc_ssl", FLAG, "Speak TLS on the gRPC ports").or("false");
    WORKFLOW_STORE = key("workflow_store", PATH, "Directory with the workflow archives").or_else("the model store");
    LOAD_MODELS = key("load_models", TEXT, "Models to load at start-up: all, none, or FILE and NAME=FILE separated by commas").or("none");
    MODELS = key("models", TEXT, "Settings of single models, as JSON by name and version").file_only();
    MODEL_SNAPSHOT = key("model_snapshot", TEXT, "The models of a snapshot, as JSON").file_only();
    UNREGISTER_MODEL_TIMEOUT = key("unregister_model_timeout", SECONDS, "Time that a model has to answer what it admitted when it is unregistered").or("120");
    NUMBER_OF_GPU = key("number_of_gpu", SettingKind::from(0), "Most GPUs to use").or_else("all");
    MAX_RESPONSE_SIZE = key("max_response_size", SettingKind::Size, "Largest answer; a larger one fails alone").or_else("no limit");
    LIMIT_MAX_IMAGE_PIXELS = key("limit_max_image_pixels", FLAG, "Keep Pillow's limit of pixels").or("true");
    DECODE_INPUT_REQUEST = key("decode_input_request", FLAG, "Decode texts and JSON before the handler gets them").or("true");
    DEFAULT_SERVICE_HANDLER = key("default_service_handler", TEXT, "Handler of archives that name none");
    SERVICE_ENVELOPE = key("service_envelope", TEXT, "Envelope of requests: body, json, kserve or kservev2");
    ALLOWED_URLS = key("allowed_urls", TEXT, "Patterns of model URLs that may be opened, separated by commas; a path counts as file://PATH, link-local hosts have to stand in a pattern").or("file://.*|http(s)?://.*");
    USE_ENV_ALLOWED_URLS = key("use_env_allowed_urls", FLAG, "Whether TS_ALLOWED_URLS counts").or("false").file_only();
    BLACKLIST_ENV_VARS = key("blacklist_env_vars", TEXT, "Pattern of variables that workers do not see");
    ENABLE_METRICS_API = key("enable_metrics_api", FLAG, "Listen on the metrics address").or("true");
    ENABLE_ENVVARS_CONFIG = key("enable_envvars_config", FLAG, "Whether TS_ variables count").or("false").file_only();
    INITIAL_WORKER_PORT = key("initial_worker_port", PORT, "The first worker's number; no port is opened").or("9000");
    TS_OPEN_INFERENCE_PROTOCOL = key("ts_open_inference_protocol", FLAG, "Serve KServe's Open Inference Protocol").or("false");
    DISABLE_TOKEN_AUTHORIZATION = key("disable_token_authorization", FLAG, "Ask for no tokens").or("false");
    ENABLE_MODEL_API = key("enable_model_api", FLAG, "Allow models to be registered and unregistered").or("false");
    TOKEN_EXPIRATION_MIN = key("token_expiration_min", SettingKind::Time(TimeUnit::Minutes), "Minutes that a token is valid").or("60");
    PRIVATE_KEY_FILE = key("private_key_file", PATH, "Private key of https addresses, PEM");
    CERTIFICATE_FILE = key("certificate_file", PATH, "Certificate of https addresses, PEM");
    KEYSTORE_FILE = key("keystore", PATH, KEYSTORE);
    KEYSTORE_PASS = key("keystore_pass", TEXT, KEYSTORE).or("changeit");
    KEYSTORE_TYPE = key("keystore_type", TEXT, KEYSTORE).or("PKCS12");
    METRICS_CONFIG = key("metrics_config", PATH, "YAML file that declares metrics");
    METRICS_MODE = key("metrics_mode", TEXT, "Where metrics go: log, prometheus or legacy").or("log");
    MODEL_METRICS_AUTO_DETECT = key("model_metrics_auto_detect", FLAG, "Accept metrics of handlers that are not declared").or("false");
    DISABLE_SYSTEM_METRICS = key("disable_system_metrics", FLAG, "Do not measure the machine").or("false");
    SYSTEM_METRICS_CMD = key("system_metrics_cmd", TEXT, "Not run: the server measures the machine itself").file_only();
    METRIC_TIME_INTERVAL = key("metric_time_interval", SECONDS, "Time between two measurements of the machine").or("60").file_only();
    SAGEMAKER = key("sagemaker", FLAG, "Serve SageMaker's routes").or("false");
    PLUGINS = key("plugins", TEXT, "Python files with plugins, separated by commas").file_only();
    PLUGIN_TIMEOUT = key("plugin_timeout", SECONDS, "Time that a plugin has for an answer").or("10");
    PLUGINS_PATH = key("plugins_path", PATH, "Directory whose Python files are plugins").file_only();
    DEBUG = key("debug", FLAG, "One worker per model, with a week for each batch").or("false");
    IPEX_ENABLE = key("ipex_enable", FLAG, "Switch Intel's extension on in workers").or("false");
    IPEX_GPU_ENABLE = key("ipex_gpu_enable", FLAG, "Switch Intel's extension for GPUs on in workers").or("false");
    SEQUENCE_ID_HEADER = key("ts_header_key_sequence_id", TEXT, HEADER).or("ts_request_sequence_id");
    SEQUENCE_START_HEADER = key("ts_header_key_sequence_start", TEXT, HEADER).or("ts_request_sequence_start");
    SEQUENCE_END_HEADER = key("ts_header_key_sequence_end", TEXT, HEADER).or("ts_request_sequence_end");
    INITIAL_DISTRIBUTION_PORT = key("initial_distribution_port", TEXT, DISTRIBUTION).or("29500").effect(Instead(DISTRIBUTION));
    CPU_LAUNCHER_ENABLE = key("cpu_launcher_enable", TEXT, CPU_LAUNCHER).or("false").effect(Instead(CPU_LAUNCHER));
    CPU_LAUNCHER_ARGS = key("cpu_launcher_args", TEXT, CPU_LAUNCHER).effect(Instead(CPU_LAUNCHER));
    NUMBER_OF_NETTY_THREADS = java("number_of_netty_threads").or("0");
    NETTY_CLIENT_THREADS = java("netty_client_threads").or("0");
    ASYNC_LOGGING = key("async_logging", FLAG, "Write lines of requests and metrics off the requests' way; `false` written out writes them before the answer is sent").or("true");
    PREFER_DIRECT_BUFFER = java("prefer_direct_buffer").or("false");
    USE_NATIVE_IO = java("use_native_io").or("true").file_only();
    IO_RATIO = java("io_ratio").or("50").file_only();
    VMARGS = java("vmargs").file_only();
    CPP_LOG_CONFIG = java("cpp_log_config");
    MODEL_SERVER_HOME = java("model_server_home");
    TS_CONFIG_FILE = silent("tsConfigFile");
    VERSION = silent("version");
    NUM_WORKERS = silent("NUM_WORKERS");
    METRICS_FORMAT = silent("metrics_format");
}

/// Every setting that `config.properties` can set.
pub fn properties() -> impl Iterator<Item = &'static Setting> {
    let all = SETTINGS.iter().chain(server::SETTINGS).chain(model::SETTINGS);
    all.copied().filter(|setting| setting.property.is_some())
}

/// The setting of a key.
pub fn property(key: &str) -> Option<&'static Setting> {
    properties().find(|setting| setting.property == Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_follow_torchserves_naming_and_its_exceptions() {
        for (key, expected) in [
            ("job_queue_size", Some("TS_JOB_QUEUE_SIZE")),
            ("token_expiration_min", Some("TS_TOKEN_EXPIRATION_TIME_MIN")),
            ("ts_open_inference_protocol", Some("TS_OPEN_INFERENCE_PROTOCOL")),
            ("ts_header_key_sequence_id", Some("TS_HEADER_KEY_SEQUENCE_ID")),
            ("models", None),
        ] {
            let variable = property(key).and_then(Setting::torchserve_variable);
            assert_eq!(variable.as_deref(), expected, "{key}");
        }
    }
}
