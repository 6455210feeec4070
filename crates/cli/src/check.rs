//! `jitney check module:object`: runs `python -m jitney check`, which may import the user's code, and
//! passes its output and exit code on.

use crate::env::Env;
use crate::failure::Failure;
use crate::flags::CheckFlags;
use crate::python::{PythonHelper, cannot_run};

/// Runs the check and returns the exit code.
pub fn run(flags: CheckFlags, env: &Env) -> Result<u8, Failure> {
    let python = PythonHelper::new(flags.python, env);
    let status = python
        .command("jitney")?
        .args(["check", &flags.object])
        .args(flags.sample.iter().flat_map(|sample| ["--sample", sample]))
        .status()
        .map_err(cannot_run)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
