//! The Python process that runs a job on a Ray cluster: what both kinds of such jobs are told.

use std::path::Path;
use std::process::Command;

use crate::failure::{Failure, cannot};
use crate::flags::infer::InferFlags;
use crate::python::PythonHelper;

/// `python -m module` with the model, the cluster, and how rows are run. Paths are those of this machine, which all
/// nodes share.
pub fn ray_command(
    flags: &InferFlags,
    module: &str,
    python: &PythonHelper,
) -> Result<Command, Failure> {
    let cannot = cannot("start Ray");
    let mut command = python.command(module)?;
    let program = std::env::current_exe().map_err(&cannot)?;
    let directory = std::env::current_dir().map_err(&cannot)?;
    let model = Path::new(&flags.model);
    command.arg(if model.exists() { directory.join(model) } else { model.to_owned() });
    command.arg("--program").arg(program).arg("--directory").arg(&directory);
    if let Some(address) = flags.ray.as_ref().filter(|address| !address.is_empty()) {
        command.args(["--address", address]);
    }
    if let Some(size) = flags.batch_size {
        command.args(["--batch-size", &size.to_string()]);
    }
    if let Some(endpoint) = &flags.endpoint {
        command.args(["--endpoint", endpoint]);
    }
    Ok(command)
}
