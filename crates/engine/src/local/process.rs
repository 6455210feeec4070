//! Starts worker processes of this very program, and waits until they have loaded their model.
//!
//! They are started, connect and end like Python workers and speak the same frames. What a loaded process is given and
//! answers is `worker`'s affair.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::Signature;
use crate::frames::{
    FrameError, FrameKind, WorkerConnection, WorkerListener, decode_control, next_frame,
};
use crate::outcome::{LaunchError, WorkerExit};
use crate::process::{OutputSink, ProcessThread, WorkerProcess, no_input};

/// What a process needs to keep to its limit and to say so: the allocator counts as used only what it
/// uses, and the words of a failed allocation stand alone.
const WORKER_ENV: [(&str, &str); 2] =
    [("MIMALLOC_ARENA_EAGER_COMMIT", "0"), ("RUST_BACKTRACE", "0")];

/// What starts the worker processes of all models.
pub(crate) struct LocalProcesses {
    /// This program, and the command that makes it a worker.
    pub(crate) program: PathBuf,
    pub(crate) command: &'static str,
    /// The workers' whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// What starts and ends processes, and the socket: Python workers have the same.
    pub(crate) processes: Arc<ProcessThread>,
    pub(crate) listener: Arc<WorkerListener>,
}

/// What a worker process is told to load.
#[derive(Clone, Debug)]
pub(crate) struct LocalLoad {
    pub(crate) file: PathBuf,
    /// The name and version by which answers call the model.
    pub(crate) name: String,
    pub(crate) version: String,
    /// Bytes that the process may use; the program's default without it.
    pub(crate) memory_limit: Option<u64>,
    /// What the runtime is told beside.
    pub(crate) options: Value,
}

impl LocalLoad {
    /// The same with options of one worker.
    pub(super) fn with(&self, told: Map<String, Value>) -> Self {
        let mut load = self.clone();
        if let Value::Object(options) = &mut load.options {
            options.extend(told);
        }
        load
    }
}

/// What a loaded process reports.
#[derive(serde::Deserialize)]
struct LocalLoaded {
    signature: Signature,
    /// What runs the model, in words.
    #[serde(default)]
    engine: String,
}

#[derive(serde::Deserialize)]
struct LocalLoadFailed {
    message: String,
}

/// A process that has loaded its model.
pub(crate) struct LoadedProcess {
    pub(super) process: WorkerProcess,
    pub(super) connection: WorkerConnection,
    pub(super) last_words: LastWords,
    pub(crate) signature: Signature,
    /// What runs the model, in words.
    pub(crate) engine: String,
}

impl LocalProcesses {
    /// Starts a process, lets `pin` keep it to processors, and waits until it has loaded the model. Dropping the future
    /// ends it.
    pub(crate) async fn load(
        &self,
        load: &LocalLoad,
        worker: Option<u32>,
        pin: impl FnOnce(&WorkerProcess),
    ) -> Result<LoadedProcess, LaunchError> {
        let cannot_spawn = |error: std::io::Error| LaunchError::Spawn(error.to_string());
        let mut expected = self.listener.expect().map_err(cannot_spawn)?;
        let mut command = Command::new(&self.program);
        command
            .arg0("jitney")
            .arg(self.command)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(WORKER_ENV)
            .env("JITNEY_WORKER_SOCKET", &self.listener.path)
            .env("JITNEY_WORKER_TOKEN", expected.token.text())
            .current_dir("/")
            .stdin(no_input().map_err(cannot_spawn)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let last_words = LastWords::default();
        let output = |stream| LocalOutput {
            load: load.clone(),
            worker,
            stream,
            last_words: Arc::clone(&last_words),
        };
        let spawned = self.processes.spawn(command, output("stdout"), output("stderr")).await;
        let mut process = spawned.map_err(cannot_spawn)?;
        pin(&process);
        // Connect = alive.
        let stream = tokio::select! {
            stream = &mut expected.connection => stream.ok(),
            _ = process.wait() => None,
        };
        let loaded = match stream {
            None => None,
            Some(stream) => {
                let connection = WorkerConnection::new(stream).map_err(cannot_spawn)?;
                handshake(connection, load, &mut process).await?
            }
        };
        let Some((connection, LocalLoaded { signature, engine })) = loaded else {
            process.kill();
            let status = process.wait().await;
            process.drained().await;
            return Err(match last_words.get() {
                Some(bytes) => {
                    let limit = "more than its memory_limit allows";
                    LaunchError::Memory(format!("it asked for {bytes} bytes {limit}").into())
                }
                None => LaunchError::Ended {
                    exit: WorkerExit::of_process(status),
                    last_line: String::new(),
                },
            });
        };
        Ok(LoadedProcess { process, connection, last_words, signature, engine })
    }
}

/// Handshake = loaded. `None` when the process is gone instead.
async fn handshake(
    mut connection: WorkerConnection,
    load: &LocalLoad,
    process: &mut WorkerProcess,
) -> Result<Option<(WorkerConnection, LocalLoaded)>, LaunchError> {
    let message = json!({
        "model_name": load.name,
        "model_version": load.version,
        "file": load.file,
        "memory_limit": load.memory_limit,
        "options": load.options,
    });
    if connection.send_control(FrameKind::Load, &message).await.is_err() {
        return Ok(None);
    }
    let Ok((header, payload)) = next_frame(&mut connection, process).await else {
        return Ok(None);
    };
    let unreadable = |error: FrameError| LaunchError::Load(error.to_string().into());
    if header.kind == FrameKind::Loaded {
        let loaded: LocalLoaded = decode_control(&payload).map_err(unreadable)?;
        Ok(Some((connection, loaded)))
    } else if header.kind == FrameKind::LoadFailed {
        let failed: LocalLoadFailed = decode_control(&payload).map_err(unreadable)?;
        Err(LaunchError::Load(failed.message.into()))
    } else {
        Err(unreadable(FrameError::Unexpected(header.kind)))
    }
}

/// The bytes that a process asked for in vain before it aborted.
pub(super) type LastWords = Arc<OnceLock<u64>>;

/// Reads what Rust's runtime prints before it aborts; there is no hook for it.
fn failed_allocation(line: &str) -> Option<u64> {
    line.strip_prefix("memory allocation of ")?.strip_suffix(" bytes failed")?.parse().ok()
}

/// Logs what a process prints on one stream.
struct LocalOutput {
    load: LocalLoad,
    /// `None` for a process that only tries to load the model.
    worker: Option<u32>,
    stream: &'static str,
    last_words: LastWords,
}

impl OutputSink for LocalOutput {
    fn take(&mut self, piece: &[u8], _begins: bool) {
        let line = String::from_utf8_lossy(piece);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        if let Some(bytes) = failed_allocation(line) {
            // It ends with the first one.
            let _ = self.last_words.set(bytes);
        }
        let (LocalLoad { name: model, version, .. }, stream) = (&self.load, self.stream);
        let worker = self.worker;
        tracing::warn!(target: "jitney::worker_output", model, version, worker, stream, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_of_a_failed_allocation_mean_out_of_memory() {
        let line = "memory allocation of 858993458800000 bytes failed";
        assert_eq!(failed_allocation(line), Some(858_993_458_800_000));
        assert_eq!(failed_allocation("thread 'main' has overflowed its stack"), None);
        assert_eq!(failed_allocation(""), None);
    }
}
