//! `jitney.yaml`: the same keys as the flags, with batching in a group of its own and a list of
//! models. Unknown keys are refused with the line and the nearest known name, since a typo that is
//! ignored costs an evening.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::archives::{Archives, Checksum};
use super::options::{Batching, Network, Options, PerModel, Security};
use crate::failure::Failure;
use crate::nearest::did_you_mean;
use crate::units::{Seconds, Size};

/// The file's content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// What it says about the server and about every model.
    pub options: Options,
    /// The models it lists.
    pub models: Vec<Entry>,
}

/// One model of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Archive, directory or `.onnx` file.
    pub path: String,
    /// The name to serve it under.
    pub name: Option<String>,
    /// The version to serve it as.
    pub version: Option<String>,
    /// The handler, if not the archive's own.
    pub handler: Option<String>,
    /// The sum its file must have.
    pub sha256: Option<Checksum>,
    /// What it says about this model.
    pub per_model: PerModel,
}

/// The file as it is written: serde needs the fields in one flat struct to refuse strangers.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileText {
    host: Option<String>,
    port: Option<u16>,
    management_port: Option<u16>,
    metrics_port: Option<u16>,
    token_auth: Option<bool>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    grpc_port: Option<u16>,
    grpc_management_port: Option<u16>,
    workers: Option<u32>,
    batching: Batching,
    queue: Option<u32>,
    response_timeout: Option<Seconds>,
    startup_timeout: Option<Seconds>,
    model_store: Option<PathBuf>,
    max_request_size: Option<Size>,
    max_download_size: Option<Size>,
    max_unpacked_size: Option<Size>,
    max_unpacked_files: Option<u64>,
    io_threads: Option<usize>,
    python: Option<PathBuf>,
    install_requirements: Option<bool>,
    log_level: Option<String>,
    access_log: Option<bool>,
    drain_delay: Option<Seconds>,
    drain_timeout: Option<Seconds>,
    models: Vec<EntryText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EntryText {
    #[serde(alias = "url")]
    path: String,
    name: Option<String>,
    version: Option<String>,
    handler: Option<String>,
    sha256: Option<Checksum>,
    workers: Option<u32>,
    batching: Batching,
    queue: Option<u32>,
    response_timeout: Option<Seconds>,
    startup_timeout: Option<Seconds>,
}

/// Reads the file; relative paths in it count from its own directory.
pub fn read(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    let mut file = parse(&text).map_err(|failure| Failure {
        message: format!("{}: {}", path.display(), failure.message),
        ..failure
    })?;
    file.anchor(path.parent().unwrap_or(Path::new("")));
    Ok(file)
}

/// Reads the file's text.
pub fn parse(text: &str) -> Result<File, Failure> {
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    let text: FileText = serde_saphyr::from_str(text).map_err(explain)?;
    if let Some(at) = text.models.iter().position(|entry| entry.path.is_empty()) {
        return Err(Failure::usage(format!("model {} of the list has no path", at + 1)));
    }
    Ok(text.into())
}

fn explain(error: serde_saphyr::Error) -> Failure {
    let cause = cause(&error);
    let line = cause.location().map_or(String::new(), |at| format!("line {}: ", at.line()));
    let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = cause else {
        return Failure::usage(error.to_string().trim_start_matches("error: "));
    };
    let known = || format!("known keys: {}", expected.join(", "));
    let hint = did_you_mean(field, expected.iter().copied()).unwrap_or_else(known);
    Failure::usage(format!("{line}unknown key `{field}`")).hint(hint)
}

/// The error itself, without the lines of the file shown around it.
fn cause(error: &serde_saphyr::Error) -> &serde_saphyr::Error {
    if let serde_saphyr::Error::WithSnippet { error, .. } = error { error } else { error }
}

impl File {
    fn anchor(&mut self, base: &Path) {
        for entry in self.models.iter_mut().filter(|entry| !entry.path.contains("://")) {
            entry.path = base.join(&entry.path).to_string_lossy().into_owned();
        }
        let Options { model_store, security, .. } = &mut self.options;
        let named = [model_store, &mut security.tls_cert, &mut security.tls_key];
        for path in named.into_iter().flatten() {
            *path = base.join(&*path);
        }
    }
}

impl From<FileText> for File {
    fn from(text: FileText) -> Self {
        let options = Options {
            network: Network {
                host: text.host,
                port: text.port,
                management_port: text.management_port,
                metrics_port: text.metrics_port,
                grpc_port: text.grpc_port,
                grpc_management_port: text.grpc_management_port,
            },
            security: Security {
                token_auth: text.token_auth,
                tls_cert: text.tls_cert,
                tls_key: text.tls_key,
            },
            per_model: PerModel {
                workers: text.workers,
                batching: text.batching.settled(),
                queue: text.queue,
                response_timeout: text.response_timeout,
                startup_timeout: text.startup_timeout,
            },
            model_store: text.model_store,
            max_request_size: text.max_request_size,
            archives: Archives {
                max_download_size: text.max_download_size,
                max_unpacked_size: text.max_unpacked_size,
                max_unpacked_files: text.max_unpacked_files,
            },
            io_threads: text.io_threads,
            python: text.python,
            install_requirements: text.install_requirements,
            log_level: text.log_level,
            access_log: text.access_log,
            drain_delay: text.drain_delay,
            drain_timeout: text.drain_timeout,
        };
        Self { options, models: text.models.into_iter().map(Entry::from).collect() }
    }
}

impl From<EntryText> for Entry {
    fn from(text: EntryText) -> Self {
        let per_model = PerModel {
            workers: text.workers,
            batching: text.batching.settled(),
            queue: text.queue,
            response_timeout: text.response_timeout,
            startup_timeout: text.startup_timeout,
        };
        Self {
            path: text.path,
            name: text.name,
            version: text.version,
            handler: text.handler,
            sha256: text.sha256,
            per_model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_structure_is_read() {
        let file = parse(
            "port: 9000\nmax_request_size: 64MiB\nbatching: {policy: adaptive, max_latency_ms: 50ms}\n\
             models:\n  - path: a.mar\n    name: a\n    workers: 2\n    batching: {batch_size: 8}\n",
        )
        .expect("reads");
        assert_eq!(file.options.network.port, Some(9000));
        assert_eq!(file.options.max_request_size, Some(Size(64 << 20)));
        assert_eq!(file.options.per_model.batching.max_latency_ms.map(|t| t.whole()), Some(50));
        assert_eq!(file.models[0].per_model.workers, Some(2));
        assert_eq!(file.models[0].per_model.batching.max_batch_size, Some(8));
    }

    #[test]
    fn unknown_keys_are_refused_with_line_and_nearest_name() {
        for (text, line, hint) in [
            ("prot: 8080\n", "line 1: unknown key `prot`", "did you mean `port`?"),
            (
                "host: a\nbatching:\n  max_batchsize: 4\n",
                "line 3",
                "did you mean `max_batch_size`?",
            ),
            ("models:\n  - path: a\n    worker: 4\n", "line 3", "did you mean `workers`?"),
        ] {
            let failure = parse(text).expect_err(text);
            assert!(failure.message.contains(line), "{text}: {}", failure.message);
            assert_eq!(failure.hint.as_deref(), Some(hint), "{text}");
            assert_eq!(failure.code, crate::failure::USAGE);
        }
    }

    #[test]
    fn wrong_values_name_what_is_expected() {
        for text in ["port: many\n", "batching: {policy: sometimes}\n", "drain_timeout: soon\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let failure = parse("batching: {policy: sometimes}\n").expect_err("refused");
        assert!(failure.message.contains("known: adaptive, window, opportunistic"), "{failure}");
    }

    #[test]
    fn a_model_without_a_path_is_refused() {
        assert!(parse("models:\n  - name: a\n").is_err());
    }
}
