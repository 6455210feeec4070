//! Python for what a job leaves to it: Parquet files. The packages are unpacked only when they are
//! needed, and go with the job.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::definition::python_path;
use crate::env::Env;
use crate::failure::Failure;
use crate::python;
use crate::worker_env::Hidden;

/// Who runs Python.
pub struct Helper {
    asked: Option<PathBuf>,
    env: Env,
    home: OnceLock<(TempDir, PathBuf)>,
}

impl Helper {
    /// Nothing happens until somebody needs it.
    pub fn new(asked: Option<PathBuf>, env: &Env) -> Self {
        Self { asked, env: env.clone(), home: OnceLock::new() }
    }

    /// `python -m module`, with our packages.
    pub fn command(&self, module: &str) -> Result<Command, Failure> {
        let found = python::find(self.asked.as_deref(), &self.env);
        if let Some(remark) = found.remark {
            return Err(Failure::failed(remark));
        }
        let packages = self.packages()?;
        let env = Hidden::default().filter(&self.env);
        let mut command = Command::new(found.interpreter);
        command
            .args(["-m", module])
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .env("PYTHONPATH", python_path(packages, &env));
        Ok(command)
    }

    fn packages(&self) -> Result<&PathBuf, Failure> {
        if let Some((_, packages)) = self.home.get() {
            return Ok(packages);
        }
        let unpack = || {
            let home = tempfile::tempdir_in(self.env.temp_dir())?;
            let packages = jitney_engine::python::unpack_runtime(home.path())?;
            Ok((home, packages))
        };
        let made = unpack().map_err(|error: std::io::Error| {
            Failure::failed(format!("cannot run Python: {error}"))
        })?;
        Ok(&self.home.get_or_init(|| made).1)
    }
}
