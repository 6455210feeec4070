//! Packs a file or folder that only Python's libraries read: a process asks the loaders of `jitney.loaders` what it is,
//! writes a model directory for it, and ends. From there on it is a model like any other.

use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::environment::EnvironmentBuilder;
use super::workers::PythonWorkers;
use crate::store::ModelDir;

/// What the process is called in the log.
const WHAT: &str = "pack";

/// A file or folder that is packed.
pub(crate) struct FilePacking<'a> {
    pub(crate) path: &'a Path,
    /// Whether code that is part of the model may run.
    pub(crate) trust: bool,
    /// What a model of several uses is for.
    pub(crate) task: Option<String>,
    /// How long it may take.
    pub(crate) time: Duration,
}

impl FilePacking<'_> {
    /// The model directory, below `models`. The error is a sentence.
    pub(crate) async fn packed(
        self,
        python: &PythonWorkers,
        models: &Path,
    ) -> Result<ModelDir, String> {
        let models = models.to_owned();
        let reserved = spawn_blocking(move || ModelDir::reserve(&models)).await;
        let reserved = reserved.map_err(|error| error.to_string())?;
        let out = reserved.map_err(|error| self.failed(&error.to_string()))?;
        let PythonWorkers { config, processes, packages, .. } = python;
        // Where the server was started: modules that a model names are found from there, here and in workers.
        let here = Path::new(".");
        let mut command = config.command(&config.interpreter, here);
        command.args(["-m", "jitney", "pack", "--file", "--silent", "--out"]).arg(out.path());
        command.args(self.trust.then_some("--trust"));
        command.args(self.task.iter().flat_map(|task| ["--task", task.as_str()]));
        command.arg(self.path).env("PYTHONPATH", config.python_path(packages));
        let shown = self.path.display().to_string();
        let builder = EnvironmentBuilder { config, processes, model: &shown, dir: here };
        let ran = timeout(self.time, builder.run(WHAT, command)).await;
        ran.map_err(|_| self.failed(&format!("it took longer than {} s", self.time.as_secs())))?
            .map_err(|why| self.failed(&why))?;
        Ok(out)
    }

    /// What the process said last, without the words that say who spoke.
    fn failed(&self, why: &str) -> String {
        let path = self.path.display().to_string();
        let mut rest = why;
        for said in [WHAT, ": ", "error: ", &path, ": "] {
            rest = rest.strip_prefix(said).unwrap_or(rest);
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        if rest.contains(&*name) { rest.to_owned() } else { format!("{name}: {rest}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_said_becomes_a_sentence_about_the_file() {
        let packing = FilePacking {
            path: Path::new("/s/f.x"),
            trust: false,
            task: None,
            time: Duration::ZERO,
        };
        for (said, told) in [
            ("pack: error: /s/f.x: no known format", "f.x: no known format"),
            ("pack: error: /s/f.x: f.x is a pickle", "f.x is a pickle"),
            ("pack: exit status: 3", "f.x: exit status: 3"),
            ("it took longer than 1 s", "f.x: it took longer than 1 s"),
        ] {
            assert_eq!(packing.failed(said), told);
        }
    }
}
