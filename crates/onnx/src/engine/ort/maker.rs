//! How a session of ONNX Runtime is made. Its threads are those that it was made with, so other threads need another
//! session.

use std::path::{Path, PathBuf};

use ::ort::environment::Environment;
use ::ort::ep::ExecutionProviderDispatch;
use ::ort::session::Session;

use super::super::super::file;
use super::providers::{self, SessionGpu};

/// The largest file of which a second session is made while the first one serves. Reading such a file for the first time
/// took no less memory.
const BESIDE_MAX: usize = 256 << 20;

/// Everything but the threads.
pub(super) struct SessionMaker {
    environment: &'static Environment,
    path: Option<PathBuf>,
    providers: Vec<ExecutionProviderDispatch>,
    /// Whether another session may be made beside the one that serves.
    pub(super) beside: bool,
}

impl SessionMaker {
    pub(super) fn new(
        environment: &'static Environment,
        (file, path): (&[u8], Option<&Path>),
        names: &[String],
        gpu: SessionGpu,
    ) -> Result<Self, String> {
        let wanted = names.iter().map(|name| providers::provider(name, gpu));
        let small = file.len() <= BESIDE_MAX && !file::graph(file).weights_apart;
        let on_processors = names.iter().all(|name| name.eq_ignore_ascii_case("cpu"));
        Ok(Self {
            environment,
            path: path.map(Path::to_owned),
            providers: wanted.collect::<Result<_, _>>()?,
            beside: path.is_some() && small && on_processors,
        })
    }

    /// A session: from the model's path, so that weights in files of their own are found, or from memory.
    pub(super) fn make(&self, file: &[u8], threads: usize) -> ::ort::Result<Session> {
        let mut builder = Session::builder(self.environment)?
            .with_intra_threads(threads)?
            .with_inter_threads(1)?
            // Threads that wait for the next batch leave the processor to others.
            .with_intra_op_spinning(false)?;
        if !self.providers.is_empty() {
            builder = builder.with_execution_providers(&self.providers)?;
        }
        match &self.path {
            Some(path) => builder.commit_from_file(path),
            None => builder.commit_from_memory(file),
        }
    }
}
