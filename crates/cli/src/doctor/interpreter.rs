//! Python and what it has, and ONNX Runtime.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jitney_onnx::RuntimeStatus;
use serde::Deserialize;

use super::finding::Finding;
use crate::env::Env;
use crate::onnx_library;
use crate::python::{self, PythonHelper};
use crate::subprocess::output;

/// Importing torch from a slow disk takes a while.
const TIMEOUT: Duration = Duration::from_secs(120);

const PYTHON: &str = "Python";

/// What `jitney.machine.inspect_python` prints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interpreter {
    version: String,
    /// Why the worker cannot be imported.
    worker: Option<String>,
    packages: BTreeMap<String, String>,
    torch: Option<Torch>,
}

/// What torch says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Torch {
    /// Why it cannot be imported.
    problem: Option<String>,
    version: String,
    /// The CUDA that it was built for.
    cuda: Option<String>,
    available: bool,
    devices: u32,
}

/// Looks at the interpreter that `jitney serve` would use.
pub fn check(asked: Option<&Path>, env: &Env) -> Vec<Finding> {
    let found = python::find(asked, env);
    let path = found.interpreter.display().to_string();
    if found.remark.is_some() {
        let text = format!("no Python at {path}: Python models cannot be served, ONNX models can");
        let advice = "install Python 3.10 or newer, or name one: --python PATH";
        // Who named one needs it.
        let missing = if asked.is_some() { Finding::problem } else { Finding::note };
        return vec![missing(PYTHON, text, advice.to_owned())];
    }
    let command = PythonHelper::new(Some(found.interpreter), env);
    let said = command.command("jitney.machine.inspect_python").ok();
    let printed = said.and_then(|said| output(said, TIMEOUT));
    let printed = printed.as_deref().and_then(|text| text.lines().last().map(str::to_owned));
    let Some(seen) = printed.and_then(|text| serde_json::from_str::<Interpreter>(&text).ok())
    else {
        let text = format!("{path} cannot run this program's worker");
        let advice = format!("try `{path} -c 'import json'`; Python 3.10 or newer is needed");
        return vec![Finding::problem(PYTHON, text, advice)];
    };
    let mut findings =
        vec![Finding::ok(PYTHON, format!("{path} is {}; {}", seen.version, found.why))];
    findings.push(match &seen.worker {
        None => Finding::ok(PYTHON, "the worker can be imported"),
        Some(reason) => {
            let text = format!("the worker cannot be imported: {reason}");
            Finding::problem(PYTHON, text, "use another Python: --python PATH")
        }
    });
    let packages = seen.packages.iter().map(|(name, version)| format!("{name} {version}"));
    let packages: Vec<_> = packages.collect();
    if !packages.is_empty() {
        findings.push(Finding::ok(PYTHON, format!("packages: {}", packages.join(", "))));
    }
    findings.push(torch(seen.torch, &path, env));
    findings
}

fn torch(torch: Option<Torch>, python: &str, env: &Env) -> Finding {
    let area = "torch";
    let Some(torch) = torch else {
        let advice = format!("only torch models need it: {python} -m pip install torch");
        return Finding::note(area, "torch is not installed", advice);
    };
    if let Some(problem) = torch.problem {
        let advice = format!("install it again: {python} -m pip install --force-reinstall torch");
        return Finding::problem(area, format!("torch cannot be imported: {problem}"), advice);
    }
    let version = torch.version;
    if torch.available {
        let cuda = torch.cuda.unwrap_or_default();
        return Finding::ok(
            area,
            format!("torch {version} with CUDA {cuda}, {} GPUs", torch.devices),
        );
    }
    match torch.cuda {
        // A build for GPUs on a machine that has some.
        Some(cuda) if crate::gpu::count(env) > 0 => Finding::problem(
            area,
            format!(
                "torch {version} is built for CUDA {cuda} and sees no GPU, although there is one"
            ),
            "the driver may be too old for this CUDA, or CUDA_VISIBLE_DEVICES hides the GPUs; see nvidia-smi",
        ),
        None if crate::gpu::count(env) > 0 => Finding::note(
            area,
            format!("torch {version} is built for CPUs only, and there is a GPU"),
            format!("{python} -m pip install torch, without a +cpu index, uses the GPU"),
        ),
        Some(_) | None => Finding::ok(area, format!("torch {version}, on the CPU")),
    }
}

/// What runs ONNX models.
pub fn onnx(asked: Option<&Path>, env: &Env) -> Finding {
    let area = "ONNX";
    let python = python::find(asked, env);
    let search = onnx_library::search(&python.interpreter, env);
    match RuntimeStatus::look(&search) {
        Ok(Some(found)) => Finding::ok(
            area,
            format!(
                "ONNX Runtime {} at {}, providers {}",
                found.version.as_deref().unwrap_or("(version unknown)"),
                found.library.display(),
                found.providers.join(", ")
            ),
        ),
        Ok(None) => Finding::note(
            area,
            "the built-in engine runs ONNX models; ONNX Runtime was not found",
            format!("{}, which is faster and runs every model", search.remedy()),
        ),
        Err(reason) => Finding::problem(
            area,
            format!("ONNX Runtime cannot be loaded: {reason}"),
            "`jitney onnx install` fetches one that fits; ORT_DYLIB_PATH may name a wrong file",
        ),
    }
}
