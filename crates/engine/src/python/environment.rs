//! What a model's workers run in: the server's interpreter, or packages and a virtual environment of
//! the model's own.
//!
//! Everything is made beside the model, in a directory that leaves with it; a directory that is
//! served where it is, is not touched. pip and venv run as processes of their own with the workers'
//! environment, log what they do, and are ended when they take too long or when their
//! caller goes away. What fails leaves nothing behind.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::workers::PythonConfig;
use crate::error::RegisterError;
use crate::store::{ModelDir, Package};
use jitney_settings::model::USE_VENV;

/// The largest frameworks take minutes to download.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// What one of the processes may print before it is cut off.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

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
        config: &PythonConfig,
        runtime: &Path,
        models: &Path,
        model: &str,
        package: &mut Package,
    ) -> Result<Self, RegisterError> {
        let venv = package.settings.read(&USE_VENV).unwrap_or(false);
        let requirements = package.manifest.requirements_file.clone();
        let requirements = requirements.filter(|_| config.install_requirements);
        let mut environment = Self::shared(config);
        if !venv && requirements.is_none() {
            return Ok(environment);
        }
        let dir = ModelDir::reserve(models);
        let dir = dir.map_err(|error| failed(model, venv, error.to_string()))?;
        let builder = EnvironmentBuilder { config, model, dir: package.dir.path() };
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
        let operators = config.env.iter().find(|(name, _)| name == "PYTHONPATH");
        let parts = [
            Some(runtime.as_os_str()),
            operators.map(|(_, path)| path.as_os_str()),
            Some(model.as_os_str()),
            self.packages.as_deref().map(Path::as_os_str),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(OsStr::new(":"))
    }
}

fn failed(model: &str, venv: bool, why: String) -> RegisterError {
    let model = model.to_owned();
    if venv { RegisterError::Venv { model, why } } else { RegisterError::Pip { model, why } }
}

/// Makes the environment of one model.
struct EnvironmentBuilder<'a> {
    config: &'a PythonConfig,
    model: &'a str,
    /// The model's directory: requirements may name files of the archive.
    dir: &'a Path,
}

impl EnvironmentBuilder<'_> {
    /// A virtual environment that also finds what the server's interpreter finds.
    async fn venv(&self, runtime: &Path, beside: &Path) -> Result<Environment, RegisterError> {
        let venv = beside.join("venv");
        let mut command = self.config.command(&self.config.interpreter, self.dir);
        command.args(["-m", "jitney.environment"]).arg(&venv).env("PYTHONPATH", runtime);
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
    async fn run(&self, what: &'static str, mut command: Command) -> Result<(), String> {
        let program = command.as_std().get_program().display().to_string();
        let child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let mut group = ProcessGroup { leader: child.id(), child };
        let late = || format!("{what} took longer than {} s", TIMEOUT.as_secs());
        timeout(TIMEOUT, group.follow(what, self.model)).await.unwrap_or_else(|_| Err(late()))
    }
}

/// A process with its children; whatever of it still runs ends with this value.
struct ProcessGroup {
    leader: Option<u32>,
    child: Child,
}

impl ProcessGroup {
    async fn follow(&mut self, what: &'static str, model: &str) -> Result<(), String> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (_, last_line) =
            tokio::join!(log_pipe(stdout, what, model), log_pipe(stderr, what, model));
        let ended = self.child.wait().await.map_err(|error| error.to_string())?;
        let how = || last_line.unwrap_or_else(|| ended.to_string());
        if ended.success() { Ok(()) } else { Err(format!("{what}: {}", how())) }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let leader = self.leader.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(leader) = leader {
            // Fails when none of it is left, which is what we want.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Logs what comes out of a pipe; returns its last line.
async fn log_pipe(
    pipe: Option<impl AsyncRead + Unpin>,
    what: &'static str,
    model: &str,
) -> Option<String> {
    let mut lines = BufReader::new(pipe?.take(OUTPUT_BYTES_MAX)).lines();
    let mut last = None;
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            tracing::info!(model, "{what}: {line}");
            last = Some(line);
        }
    }
    last
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
        let builder = EnvironmentBuilder { config: &config, model: "m", dir: Path::new("/") };
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
