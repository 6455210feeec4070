//! `jitney inspect PATH`: what the server reads itself is told here; of all else `python -m jitney inspect` says what
//! it is, since only Python's libraries read it.

use std::path::Path;
use std::sync::Arc;

use jitney_engine::local::{LocalModel, TensorSpec};
use jitney_engine::store::{FORMATS, is_loadable, is_repository, models_of};
use jitney_server::file_example;
use serde_json::{Value, json};

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
            let found = Inspected::at(&path);
            console::out(if flags.json { found.json().to_string() } else { found.text() });
            return Ok(u8::from(!found.problems.is_empty()));
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

/// Where a server listens unless it is told otherwise.
const BASE: &str = "http://127.0.0.1:8080";
/// Models of a folder that are listed.
const MODELS_MAX: usize = 20;

/// What the server reads itself.
struct Inspected {
    path: String,
    format: &'static str,
    /// Of an ONNX file.
    model: Option<Arc<dyn LocalModel>>,
    /// What else there is to say: the models of a folder.
    lines: Vec<String>,
    /// What keeps it from being served.
    problems: Vec<String>,
}

impl Inspected {
    fn at(path: &Path) -> Self {
        let mut found = Self {
            path: path.display().to_string(),
            format: "an archive or a model directory",
            model: None,
            lines: Vec::new(),
            problems: Vec::new(),
        };
        if path.extension().is_some_and(|ending| ending == jitney_onnx::RUNTIME.extension) {
            found.format = "ONNX";
            match (jitney_onnx::RUNTIME.declare)(path) {
                Ok(model) => found.model = Some(model),
                Err(why) => found.problems.push(why),
            }
        } else if is_repository(path, false) {
            found.format = "a folder of models";
            found.list(path);
        }
        found
    }

    /// The models of a folder, each with what it is served from or why it is not.
    fn list(&mut self, path: &Path) {
        let models = match models_of(path) {
            Ok(models) => models,
            Err(why) => return self.problems.push(format!("cannot read {}: {why}", self.path)),
        };
        if models.is_empty() {
            let known = "archives, .onnx files, and files or folders of";
            self.problems.push(format!("it holds no model: it may hold {known} {FORMATS}"));
        }
        for model in models.iter().take(MODELS_MAX) {
            match &model.content {
                Ok(content) => {
                    let paths = content.versions.iter().map(|one| one.path.display().to_string());
                    let paths: Vec<String> = paths.collect();
                    self.lines.push(format!("{}  {}", model.name, paths.join(", ")));
                }
                Err(why) => self.problems.push(format!("{}: {why}", model.name)),
            }
        }
    }

    fn batching(model: &dyn LocalModel) -> String {
        match (model.signature().batches(), model.max_batch_size()) {
            (false, _) | (true, Some(1)) => "one request at a time".to_owned(),
            (true, Some(most)) => {
                format!("requests share batches of up to {most} items, along dimension 0")
            }
            (true, None) => "requests share batches of any size, along dimension 0".to_owned(),
        }
    }

    fn serve(&self) -> String {
        format!("jitney serve {}", self.path)
    }

    fn json(&self) -> Value {
        let tensors = |specs: &[TensorSpec]| -> Vec<Value> {
            let told = |spec: &TensorSpec| {
                json!({"name": spec.name, "datatype": spec.datatype.as_str(),
                       "shape": spec.shape.as_ref().map(|_| spec.shape_or_minus_one())})
            };
            specs.iter().map(told).collect()
        };
        let endpoint = |model: &Arc<dyn LocalModel>| {
            let signature = model.signature();
            json!({"name": "predict", "inputs": tensors(&signature.inputs),
                   "outputs": tensors(&signature.outputs), "batching": Self::batching(&**model)})
        };
        let call = self.model.as_ref().map(|model| file_example(&**model, BASE));
        json!({
            "path": self.path, "format": self.format, "models": self.lines,
            "endpoints": self.model.iter().map(endpoint).collect::<Vec<_>>(),
            "problems": self.problems, "serve": self.serve(), "call": call.unwrap_or_default(),
        })
    }

    fn text(&self) -> String {
        let mut lines =
            vec![format!("{}: {}, which the server reads itself", self.path, self.format)];
        if let Some(model) = &self.model {
            let signature = model.signature();
            lines.push("  predict".to_owned());
            let side = |word: &str, specs: &[TensorSpec]| -> Vec<String> {
                specs.iter().map(|spec| format!("    {word}  {}  {spec}", spec.name)).collect()
            };
            lines.extend(side("in ", &signature.inputs));
            lines.extend(side("out", &signature.outputs));
            lines.push(format!("    {}", Self::batching(&**model)));
        }
        lines.extend(self.lines.iter().map(|line| format!("  {line}")));
        lines.extend(self.problems.iter().map(|line| format!("  missing: {line}")));
        lines.push(format!("  serve: {}", self.serve()));
        lines.extend(
            self.model.iter().map(|model| format!("  call: {}", file_example(&**model, BASE))),
        );
        lines.join("\n")
    }
}
