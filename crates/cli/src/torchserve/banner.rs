//! The start-up banner: what operators of TorchServe are used to find at the top of the log.

use std::fmt::Write as _;
use std::path::Path;

use jitney_settings::torchserve::property;
use jitney_settings::{SettingSource, Values};

use crate::address::Address;
use crate::logs::Style;
use crate::machine;
use crate::url_rule::shown_models;

/// The TorchServe version that this program replaces.
pub const VERSION: &str = "0.12.0";

/// What the banner tells.
pub struct Facts<'a> {
    /// The effective values.
    pub values: &'a Values,
    /// The configuration file, if one was read.
    pub file: Option<&'a Path>,
    /// The model store.
    pub store: &'a Path,
    /// The interpreter of the workers.
    pub python: &'a Path,
    /// Where logs go.
    pub style: &'a Style,
    /// The temporary directory.
    pub temp_dir: &'a Path,
    /// GPUs that are used.
    pub gpus: u32,
    /// Inference, management, metrics.
    pub addresses: [&'a Address; 3],
}

/// The banner, one line per fact, in TorchServe's order.
pub fn text(facts: &Facts<'_>) -> String {
    let mut text = String::new();
    for (key, value) in facts_of_start(facts).into_iter().chain(limit_lines(facts)) {
        let _ = write!(text, "\n{key}: {value}");
    }
    text
}

type Line = (&'static str, String);

fn facts_of_start(facts: &Facts<'_>) -> Vec<Line> {
    let show = |path: &Path| path.display().to_string();
    let here = std::env::current_dir().map_or_else(|_| ".".to_owned(), |path| show(&path));
    let [inference, management, metrics] = facts.addresses.map(ToString::to_string);
    let (logs, metric_logs) = match facts.style {
        Style::TorchServe { logs, metrics } => {
            (logs.display().to_string(), metrics.display().to_string())
        }
        Style::Human { .. } => ("N/A".to_owned(), "N/A".to_owned()),
    };
    vec![
        ("Torchserve version", format!("{VERSION} (Jitney {})", env!("CARGO_PKG_VERSION"))),
        ("TS Home", value(facts, "model_server_home", "N/A")),
        ("Current directory", here),
        ("Temp directory", show(facts.temp_dir)),
        ("Metrics config path", value(facts, "metrics_config", "N/A")),
        ("Number of GPUs", facts.gpus.to_string()),
        ("Number of CPUs", machine::cpus().to_string()),
        ("Max heap size", "N/A".to_owned()),
        ("Python executable", show(facts.python)),
        ("Config file", facts.file.map_or_else(|| "N/A".to_owned(), show)),
        ("Inference address", inference),
        ("Management address", management),
        ("Metrics address", metrics),
        ("Model Store", facts.store.display().to_string()),
        ("Initial Models", shown_models(&value(facts, "load_models", "N/A"))),
        ("Log dir", logs),
        ("Metrics dir", metric_logs),
    ]
}

fn limit_lines(facts: &Facts<'_>) -> Vec<Line> {
    let keys: [(&str, &str, &str); 18] = [
        ("Netty threads", "number_of_netty_threads", "0"),
        ("Netty client threads", "netty_client_threads", "0"),
        ("Default workers per model", "default_workers_per_model", "auto"),
        ("Blacklist Regex", "blacklist_env_vars", "N/A"),
        ("Maximum Response Size", "max_response_size", "N/A"),
        ("Maximum Request Size", "max_request_size", "6553500"),
        ("Limit Maximum Image Pixels", "limit_max_image_pixels", "true"),
        ("Prefer direct buffer", "prefer_direct_buffer", "false"),
        ("Allowed Urls", "allowed_urls", "[file://.*|http(s)?://.*]"),
        ("Custom python dependency for model allowed", "install_py_dep_per_model", "false"),
        ("Enable metrics API", "enable_metrics_api", "true"),
        ("Metrics mode", "metrics_mode", "LOG"),
        ("Disable system metrics", "disable_system_metrics", "false"),
        ("Workflow Store", "workflow_store", "N/A"),
        ("CPP log config", "cpp_log_config", "N/A"),
        ("Model config", "models", "N/A"),
        ("System metrics command", "system_metrics_cmd", "default"),
        ("Model API enabled", "enable_model_api", "false"),
    ];
    keys.map(|(title, key, default)| (title, value(facts, key, default))).into()
}

fn value(facts: &Facts<'_>, key: &str, default: &str) -> String {
    let set = property(key).filter(|it| facts.values.source(it) != SettingSource::Default);
    set.and_then(|setting| facts.values.show(setting)).unwrap_or_else(|| default.to_owned())
}
