//! What a model's workers run in: the server's interpreter, or packages and a virtual environment of
//! the model's own.
//!
//! Everything is made beside the model, in a directory that leaves with it; a directory that is
//! served where it is, is not touched. pip and venv run as processes of their own with the workers'
//! environment, log what they do, and are ended when they take too long or when their
//! caller goes away. What fails leaves nothing behind.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::workers::{PythonConfig, PythonWorkers};
use crate::error::RegisterError;
use crate::process::{OutputSink, ProcessThread};
use crate::store::{CODE_REQUIREMENTS, ModelDir, Package};
use jitney_settings::model::USE_VENV;

/// The largest frameworks take minutes to download.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// What is logged of one of the processes.
const LOGGED_BYTES_MAX: usize = 16 << 20;

/// An interpreter and what it finds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Environment {
    pub(crate) interpreter: PathBuf,
    /// Packages that were installed for this model alone.
    pub(crate) packages: Option<PathBuf>,
}

impl Environment {
    /// What every model gets that asks for nothing else.
    pub(crate) fn shared(config: &PythonConfig) -> Self {
        Self { interpreter: config.interpreter.clone(), packages: None }
    }

    /// Makes what the model asks for, below `models`.
    pub(crate) async fn prepare(
        python: &PythonWorkers,
        models: &Path,
        model: &str,
        package: &mut Package,
    ) -> Result<Self, RegisterError> {
        let PythonWorkers { config, processes, packages: runtime, .. } = python;
        let requirements = package.manifest.requirements_file.clone();
        let requirements = requirements.filter(|_| config.install_requirements);
        let adds = requirements.as_deref() == Some(CODE_REQUIREMENTS);
        let venv = package.settings.flag(&USE_VENV) || adds;
        let mut environment = Self::shared(config);
        if !venv && requirements.is_none() {
            return Ok(environment);
        }
        if python.placement.is_some() {
            let what = if venv { "a virtual environment" } else { "requirements installed" };
            let why = format!(
                "the model wants {what}, but workers that Ray places use the Python of their nodes; \
                 install there what it needs, and turn that wish off"
            );
            return Err(failed(model, venv, why));
        }
        let dir = ModelDir::reserve(models);
        let dir = dir.map_err(|error| failed(model, venv, error.to_string()))?;
        let builder = EnvironmentBuilder { config, processes, model, dir: package.dir.path() };
        if venv {
            environment = builder.venv(runtime, dir.path()).await?;
        }
        if let Some(file) = requirements {
            environment = builder.install(environment, venv, dir.path(), &file).await?;
        }
        package.dir.attach(dir);
        Ok(environment)
    }

    /// The search path of a worker's interpreter: our packages, the operator's path, the model's
    /// directory, what was installed for it.
    pub(crate) fn python_path(
        &self,
        runtime: &Path,
        config: &PythonConfig,
        model: &Path,
    ) -> OsString {
        let mut path = config.python_path(runtime);
        for part in [Some(model), self.packages.as_deref()].into_iter().flatten() {
            path.push(":");
            path.push(part);
        }
        path
    }
}

fn failed(model: &str, venv: bool, why: String) -> RegisterError {
    let model = model.to_owned();
    if venv { RegisterError::Venv { model, why } } else { RegisterError::Pip { model, why } }
}

/// Makes the environment of one model, and runs in it what ends before there are workers.
pub(super) struct EnvironmentBuilder<'a> {
    pub(super) config: &'a PythonConfig,
    pub(super) processes: &'a ProcessThread,
    pub(super) model: &'a str,
    /// The model's directory: requirements may name files of the archive.
    pub(super) dir: &'a Path,
}

impl EnvironmentBuilder<'_> {
    /// A virtual environment that also finds what the server's interpreter finds.
    async fn venv(&self, runtime: &Path, beside: &Path) -> Result<Environment, RegisterError> {
        let venv = beside.join("venv");
        let mut command = self.config.command(&self.config.interpreter, self.dir);
        command.args(["-m", "jitney.machine.environment"]).arg(&venv).env("PYTHONPATH", runtime);
        tracing::info!(model = self.model, "making a virtual environment");
        let made = self.run("venv", command).await;
        made.map_err(|why| failed(self.model, true, why))?;
        Ok(Environment { interpreter: venv.join("bin/python"), packages: None })
    }

    /// The options are TorchServe's.
    async fn install(
        &self,
        environment: Environment,
        venv: bool,
        beside: &Path,
        file: &str,
    ) -> Result<Environment, RegisterError> {
        let target = beside.join("packages");
        let mut command = self.config.command(&environment.interpreter, self.dir);
        command.args(["-m", "pip", "install", "--no-input", "-U"]);
        if venv {
            command.args(["--upgrade-strategy", "only-if-needed"]);
        } else {
            command.arg("-t").arg(&target);
        }
        command.arg("-r").arg(self.dir.join(file)).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        tracing::info!(model = self.model, file, "installing requirements");
        let installed = self.run("pip", command).await;
        installed.map_err(|why| failed(self.model, false, why))?;
        tracing::info!(model = self.model, file, "requirements installed");
        Ok(Environment { packages: (!venv).then_some(target), ..environment })
    }

    /// The error is the last line that it printed, or how it ended.
    pub(super) async fn run(&self, what: &'static str, command: Command) -> Result<(), String> {
        let program = command.as_std().get_program().display().to_string();
        let last_line = Arc::new(Mutex::new(None));
        let [stdout, stderr] = [None, Some(Arc::clone(&last_line))].map(|last| InstallerOutput {
            what,
            model: self.model.to_owned(),
            bytes: 0,
            last,
        });
        let spawned = self.processes.spawn(command, stdout, stderr).await;
        let mut process = spawned.map_err(|error| format!("{program}: {error}"))?;
        let late = || format!("{what} took longer than {} s", TIMEOUT.as_secs());
        let ended = timeout(TIMEOUT, process.wait()).await.map_err(|_| late())?;
        process.drained().await;
        if ended.is_some_and(|ended| ended.status.success()) {
            return Ok(());
        }
        let how = || ended.map_or_else(|| "ended".to_owned(), |ended| ended.status.to_string());
        let last_line = last_line.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(format!("{what}: {}", last_line.unwrap_or_else(how)))
    }
}

/// Logs what pip or venv prints on one stream.
struct InstallerOutput {
    what: &'static str,
    model: String,
    bytes: usize,
    /// Where its last line is kept, if that is wanted.
    last: Option<Arc<Mutex<Option<String>>>>,
}

impl OutputSink for InstallerOutput {
    fn take(&mut self, piece: &[u8], _begins: bool) {
        let line = String::from_utf8_lossy(piece);
        let line = line.trim_end();
        self.bytes = self.bytes.saturating_add(piece.len());
        if line.trim().is_empty() {
            return;
        }
        if self.bytes <= LOGGED_BYTES_MAX {
            match line.strip_prefix("warning: ") {
                Some(warning) => tracing::warn!(model = self.model, "{}: {warning}", self.what),
                None => tracing::info!(model = self.model, "{}: {line}", self.what),
            }
        }
        if let Some(last) = &self.last {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_finds_its_own_files_before_what_was_installed_for_it() {
        let mut config = PythonConfig::bare(PathBuf::from("python3"));
        let mut environment = Environment::shared(&config);
        let (runtime, model) = (Path::new("/r"), Path::new("/m"));
        assert_eq!(environment.python_path(runtime, &config, model), "/r:/m");
        config.env.push(("PYTHONPATH".into(), "/a:/b".into()));
        environment.packages = Some("/p".into());
        let all = environment.python_path(runtime, &config, model);
        assert_eq!(all, "/r:/a:/b:/m:/p");
    }

    #[tokio::test]
    async fn a_process_that_fails_gives_its_last_line_and_one_that_hangs_is_ended() {
        let config = PythonConfig::bare(PathBuf::from("/bin/sh"));
        let processes = &ProcessThread::start(None).expect("a thread");
        let builder =
            EnvironmentBuilder { config: &config, processes, model: "m", dir: Path::new("/") };
        let shell = |script: &str| {
            let mut command = config.command(&config.interpreter, builder.dir);
            command.args(["-c", script]);
            command
        };
        assert_eq!(builder.run("pip", shell("echo fine")).await, Ok(()));
        let why = builder.run("pip", shell("echo no such package >&2; exit 1")).await;
        assert_eq!(why, Err("pip: no such package".to_owned()));
        let why = builder.run("pip", shell("exit 3")).await;
        assert_eq!(why, Err("pip: exit status: 3".to_owned()));
        let hangs = builder.run("pip", shell("while true; do :; done"));
        assert!(timeout(Duration::from_millis(50), hangs).await.is_err(), "its caller went away");
    }
}
