//! Every option with its effective value and its origin, for `jitney config serve`.

use std::path::Path;
use std::sync::Arc;

use super::options::Options;
use super::{defaults, file, variables};
use crate::config::{self, Row};
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::ServeFlags;
use crate::origin::Origin;

/// An option: its key in the file, its flag, its default.
const KEYS: [(&str, &str, &str); 24] = [
    ("host", "host", "127.0.0.1"),
    ("port", "port", "8080"),
    ("management_port", "management-port", "8081"),
    ("metrics_port", "metrics-port", "8082"),
    ("workers", "workers", ""),
    ("max_batch_size", "batch-size", ""),
    ("max_latency_ms", "max-latency-ms", ""),
    ("max_batch_delay", "max-batch-delay-ms", ""),
    ("policy", "policy", ""),
    ("queue", "queue", "100"),
    ("response_timeout", "response-timeout", "120"),
    ("startup_timeout", "startup-timeout", "120"),
    ("model_store", "model-store", ""),
    ("max_request_size", "max-request-size", "6553500"),
    ("max_download_size", "max-download-size", "68719476736"),
    ("max_unpacked_size", "max-unpacked-size", "68719476736"),
    ("max_unpacked_files", "max-unpacked-files", "200000"),
    ("io_threads", "io-threads", ""),
    ("python", "python", ""),
    ("install_requirements", "install-requirements", "false"),
    ("log_level", "log-level", "info"),
    ("access_log", "access-log", "false"),
    ("drain_delay", "drain-delay", "0"),
    ("drain_timeout", "drain-timeout", "30"),
];

/// The rows: the options, then the models'.
pub fn explain(flags: ServeFlags, env: &Env) -> Result<Vec<Row>, Failure> {
    let path = flags.config.clone().or_else(|| env.path("JITNEY_CONFIG"));
    let read = path.as_deref().map(file::read).transpose()?.unwrap_or_default();
    let text = path.as_deref().and_then(|path| std::fs::read_to_string(path).ok());
    let sources = Sources {
        flags: values(&flags.options),
        variables: values(&variables::read(env)?.options),
        file: values(&read.options),
        path: path.as_deref().unwrap_or(Path::new("")).into(),
        text: text.unwrap_or_default(),
    };
    let mut rows: Vec<Row> = (0..KEYS.len()).map(|at| sources.row(at)).collect();
    let above = flags.options.clone().or(variables::read(env)?.options);
    let everything = above.clone().or(read.options.clone());
    let defaults = defaults(&everything.per_model);
    let models =
        super::models(&flags.models, read.models, &above.per_model, &read.options.per_model)?;
    for startup in &models {
        rows.extend(config::model::rows(&config::model::About {
            startup,
            said_by: &|key| sources.said_by(key),
            store: everything.model_store.as_deref(),
            temp_dir: &env.temp_dir(),
            defaults: &defaults,
            operator: Origin::Default,
        }));
    }
    Ok(rows)
}

struct Sources {
    flags: Vec<Option<String>>,
    variables: Vec<Option<String>>,
    file: Vec<Option<String>>,
    path: Arc<Path>,
    text: String,
}

impl Sources {
    fn row(&self, at: usize) -> Row {
        let (key, flag, default) = KEYS[at];
        let (value, origin) = if let Some(value) = &self.flags[at] {
            (Some(value.clone()), Origin::Flag(format!("--{flag}")))
        } else if let Some(value) = &self.variables[at] {
            (Some(value.clone()), Origin::Variable(variable(flag)))
        } else if let Some(value) = &self.file[at] {
            let origin =
                Origin::File { path: Arc::clone(&self.path), line: line_of(&self.text, key) };
            (Some(value.clone()), origin)
        } else {
            (Some(default.to_owned()).filter(|value| !value.is_empty()), Origin::Default)
        };
        Row { model: None, key: key.to_owned(), value, origin }
    }

    /// What is said about a model and not above it stands in its own entry of the file.
    fn said_by(&self, key: &str) -> Origin {
        let at = KEYS.iter().position(|(name, ..)| *name == key);
        match at.map(|at| self.row(at).origin) {
            None | Some(Origin::Default) => {
                Origin::File { path: Arc::clone(&self.path), line: None }
            }
            Some(origin) => origin,
        }
    }
}

fn variable(flag: &str) -> String {
    format!("JITNEY_{}", flag.to_uppercase().replace('-', "_"))
}

/// The first line on which the key stands before a colon, above the list of models.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let has_key = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let Some((before, _)) = line.rsplit_once(':') else { return false };
        before.split(':').any(|part| part.rsplit([' ', '{', ',']).next() == Some(key))
    };
    let mut above = text.lines().take_while(|line| !line.starts_with("models:"));
    above.position(has_key).map(|at| at + 1)
}

/// Every option as text, in the order of [`KEYS`].
fn values(options: &Options) -> Vec<Option<String>> {
    fn text(value: Option<impl ToString>) -> Option<String> {
        value.map(|value| value.to_string())
    }
    let Options { network, per_model, .. } = options;
    let batching = &per_model.batching;
    vec![
        network.host.clone(),
        text(network.port),
        text(network.management_port),
        text(network.metrics_port),
        text(per_model.workers),
        text(batching.max_batch_size),
        text(batching.max_latency_ms.map(|time| time.whole())),
        text(batching.max_batch_delay.map(|time| time.whole())),
        text(batching.policy.map(|policy| policy.0.as_str())),
        text(per_model.queue),
        text(per_model.response_timeout.map(|time| time.whole())),
        text(per_model.startup_timeout.map(|time| time.whole())),
        text(options.model_store.as_deref().map(Path::display)),
        text(options.max_request_size.map(|size| size.0)),
        text(options.archives.max_download_size.map(|size| size.0)),
        text(options.archives.max_unpacked_size.map(|size| size.0)),
        text(options.archives.max_unpacked_files),
        text(options.io_threads),
        text(options.python.as_deref().map(Path::display)),
        text(options.install_requirements),
        options.log_level.clone(),
        text(options.access_log),
        text(options.drain_delay.map(|time| time.whole())),
        text(options.drain_timeout.map(|time| time.whole())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_key_is_found_in_both_forms_of_yaml() {
        let text = "# port\nport: 1\nbatching: {policy: window, max_batch_size: 4}\nmodels:\n  - queue: 1\n";
        for (key, expected) in
            [("port", Some(2)), ("policy", Some(3)), ("max_batch_size", Some(3)), ("queue", None)]
        {
            assert_eq!(line_of(text, key), expected, "{key}");
        }
    }
}
