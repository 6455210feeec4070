//! Asks a model of Triton's Python backend for the tensors that its configuration leaves out, so that clients are told
//! of them: in a process that imports the model and ends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::environment::{Environment, EnvironmentBuilder};
use super::workers::PythonWorkers;
use crate::store::{CompletedConfig, ModelDir};

/// Models without this method have nothing to add.
const METHOD: &str = "auto_complete_config";

/// A model that is asked.
pub(crate) struct OpenConfig<'a> {
    pub(crate) model: &'a str,
    /// The directory of its version.
    pub(crate) dir: &'a Path,
    /// Its `model.py`.
    pub(crate) file: PathBuf,
    pub(crate) config: &'a Value,
    /// How long it may take.
    pub(crate) time: Duration,
}

impl OpenConfig<'_> {
    /// What the model adds; none if it has no method for that. The error is a sentence.
    pub(crate) async fn completed(
        self,
        python: &PythonWorkers,
        models: &Path,
    ) -> Result<Option<CompletedConfig>, String> {
        let (file, models) = (self.file.clone(), models.to_owned());
        let prepared = spawn_blocking(move || prepare(&file, &models)).await;
        let prepared = prepared.map_err(|error| error.to_string())?;
        let Some(made) = prepared.map_err(|error| self.failed(&error.to_string()))? else {
            return Ok(None);
        };
        let answer = made.path().join("completed.json");
        let (config, processes) = (&python.config, &python.processes);
        let path = Environment::shared(config).python_path(&python.packages, config, self.dir);
        let mut command = config.command(&config.interpreter, self.dir);
        command.args(["-m", "jitney.triton.completion"]).arg(&self.file);
        command.arg(self.config.to_string()).arg(&answer).env("PYTHONPATH", path);
        let builder = EnvironmentBuilder { config, processes, model: self.model, dir: self.dir };
        let ran = timeout(self.time, builder.run(METHOD, command)).await;
        ran.map_err(|_| self.failed(&format!("it took longer than {} s", self.time.as_secs())))?
            .map_err(|why| self.failed(&why))?;
        let read = spawn_blocking(move || std::fs::read(answer)).await;
        let read = read.map_err(|error| error.to_string())?;
        let read = read.map_err(|error| self.failed(&error.to_string()))?;
        serde_json::from_slice(&read).map(Some).map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, why: &str) -> String {
        format!("{}: {METHOD} failed: {why}", self.file.display())
    }
}

/// A directory for the answer, if the file has the method.
fn prepare(file: &Path, models: &Path) -> io::Result<Option<ModelDir>> {
    match std::fs::read_to_string(file)?.contains(METHOD) {
        true => ModelDir::reserve(models).map(Some),
        false => Ok(None),
    }
}
