//! `jitney check module:object`: leaves the work to `python -m jitney check`, which may import what
//! the user wrote, and passes its words and its exit code on.

use std::process::Command;

use crate::definition::python_path;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::CheckFlags;
use crate::worker_env::Hidden;
use crate::{console, python};

/// Runs the check and returns the exit code.
pub fn main(flags: &CheckFlags, env: &Env) -> u8 {
    check(flags, env).unwrap_or_else(|failure| {
        console::err(format!("error: {failure}"));
        failure.code
    })
}

fn check(flags: &CheckFlags, env: &Env) -> Result<u8, Failure> {
    let cannot = |error: std::io::Error| Failure::failed(format!("cannot run Python: {error}"));
    let found = python::find(flags.python.as_deref(), env);
    if let Some(remark) = found.remark {
        return Err(Failure::failed(remark));
    }
    let home = tempfile::tempdir_in(env.temp_dir()).map_err(cannot)?;
    let packages = jitney_engine::python::unpack_runtime(home.path()).map_err(cannot)?;
    let env = Hidden::default().filter(env);
    let status = Command::new(found.interpreter)
        .args(["-m", "jitney", "check", &flags.object])
        .args(flags.sample.iter().flat_map(|sample| ["--sample", sample]))
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("PYTHONPATH", python_path(&packages, &env))
        .status()
        .map_err(cannot)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
