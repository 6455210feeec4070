//! `jitney inspect PATH`: what the server reads itself is told here; of all else `python -m jitney inspect` says what
//! it is, since only Python's libraries read it.

use std::path::Path;

use jitney_engine::store::{is_loadable, is_repository};

use crate::console;
use crate::definition::is_on_hub;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::flags::inspect::InspectFlags;
use crate::python::PythonHelper;

/// Prints what is found; the exit code is 1 if something keeps it from being served.
pub fn inspect(flags: &InspectFlags, env: &Env) -> Result<u8, Failure> {
    let mut path = flags.path.clone();
    if !is_on_hub(&path.to_string_lossy()) {
        if !path.exists() {
            return Err(Failure::usage(format!("no such file: {}", path.display())));
        }
        if !is_loadable(&path) {
            console::out(own(&path, flags.json));
            return Ok(0);
        }
        path = path.canonicalize().map_err(cannot("find the model"))?;
    }
    let python = PythonHelper::new(flags.python.clone(), env);
    let status = python
        .command("jitney")?
        .arg("inspect")
        .arg(path)
        .args(flags.trust.then_some("--trust"))
        .args(flags.task.iter().flat_map(|task| ["--task", task.as_str()]))
        .args(flags.json.then_some("--json"))
        .status()
        .map_err(cannot("run Python"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// What the server reads itself.
fn own(path: &Path, json: bool) -> String {
    let onnx = path.extension().is_some_and(|ending| ending == "onnx");
    let what = match (onnx, is_repository(path, false)) {
        (true, _) => "ONNX",
        (false, true) => "a folder of models",
        (false, false) => "an archive or a model directory",
    };
    let (shown, serve) = (path.display().to_string(), format!("jitney serve {}", path.display()));
    if json {
        return serde_json::json!({"path": shown, "format": what, "serve": serve}).to_string();
    }
    format!("{shown}: {what}, which the server reads itself\n  serve: {serve}")
}
