//! A model whose workers a Ray cluster places: what each of them needs, which files travel to its node, and
//! what its load command says there.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use jitney_settings::Values;
use jitney_settings::model::{DEVICE_TYPE, NUM_CPUS, NUM_GPUS, PARALLEL_LEVEL, RESOURCES, SHIP};
use serde_json::{Map, Value, json};

use super::placement::{Placement, PlacementOrder};
use super::remote_process::NodePaths;
use super::worker::WorkerStream;
use crate::outcome::LaunchError;
use crate::pool::{BoxFuture, ProgressSender};
use crate::process::WorkerProcess;

/// A process on its way, and where its files are if that is another machine.
pub(super) type StartedProcess =
    BoxFuture<'static, Result<(WorkerProcess, Option<NodePaths>), LaunchError>>;

/// A model whose workers run in actors.
pub(crate) struct PlacedModel {
    placement: Arc<Placement>,
    name: String,
    resources: Value,
    files: Value,
    gpus: u32,
    /// The code of a definition, if it is one.
    code: Option<DefinitionCode>,
}

impl PlacedModel {
    /// A model with these files and this load command.
    pub(crate) fn of(
        (placement, packages): (Arc<Placement>, &Path),
        name: String,
        (dir, load): (&Path, &Value),
        values: &Values,
    ) -> Self {
        let wants_gpu = values.read(&DEVICE_TYPE).is_some_and(|it: String| it == "gpu");
        let level: u32 = values.value(&PARALLEL_LEVEL);
        let wished = if wants_gpu || level > 1 { f64::from(level.max(1)) } else { 0.0 };
        let gpus = values.read(&NUM_GPUS).unwrap_or(wished);
        let custom: Vec<(String, f64)> = values.read(&RESOURCES).unwrap_or_default();
        let custom: Map<String, Value> =
            custom.into_iter().map(|(name, amount)| (name, json!(amount))).collect();
        let code = DefinitionCode::of(&load["model_yaml_config"]["jitney"]);
        let mut files = json!({ "packages": packages });
        if values.value(&SHIP) {
            files["model"] = json!(dir);
            if let Some(code) = &code {
                files["code"] = json!(code.root);
            }
        }
        Self {
            placement,
            name,
            resources: json!({
                "num_cpus": values.value::<f64>(&NUM_CPUS),
                "num_gpus": gpus,
                "resources": custom,
            }),
            files,
            gpus: gpus.ceil() as u32,
            code,
        }
    }

    /// The GPUs of a worker, as it counts those that Ray lets it see.
    pub(super) fn gpus(&self) -> Vec<u32> {
        (0..self.gpus).collect()
    }

    /// Starts a worker somewhere.
    pub(super) fn start(
        self: Arc<Self>,
        worker: u32,
        token: String,
        output: [WorkerStream; 2],
        progress: ProgressSender,
    ) -> StartedProcess {
        let order = PlacementOrder {
            name: format!("{} worker {worker}", self.name),
            resources: self.resources.clone(),
            files: self.files.clone(),
        };
        let placement = Arc::clone(&self.placement);
        Box::pin(async move {
            let (process, paths) = placement.start(order, token, output, &progress).await?;
            Ok((process, Some(paths)))
        })
    }

    /// Makes the load command one of the node: other directories, and nothing that is only here.
    pub(super) fn rewrite(&self, message: &mut Value, paths: &NodePaths) {
        if let Some(message) = message.as_object_mut() {
            message.remove("compile_cache");
        }
        if let Some(model) = &paths.model {
            message["model_dir"] = json!(model);
        }
        if let (Some(code), Some(directory)) = (&self.code, &paths.code) {
            message["model_yaml_config"]["jitney"]["directory"] = json!(directory);
            message["model_yaml_config"]["jitney"]["object"] = json!(code.object);
        }
    }
}

/// Where a definition's own code lies, and what it is called from there.
#[derive(Debug, PartialEq, Eq)]
struct DefinitionCode {
    root: PathBuf,
    object: String,
}

impl DefinitionCode {
    /// A file is imported from the directory that it lies in, a module from where the server was started.
    fn of(definition: &Value) -> Option<Self> {
        let (object, directory) =
            (definition["object"].as_str()?, definition["directory"].as_str()?);
        let (module, rest) = object.split_once(':').map_or((object, ""), |(it, rest)| (it, rest));
        if !module.ends_with(".py") {
            return Some(Self { root: directory.into(), object: object.to_owned() });
        }
        let file = plain(&Path::new(directory).join(module));
        let name = file.file_name()?.to_string_lossy().into_owned();
        let colon = if rest.is_empty() { "" } else { ":" };
        Some(Self { root: file.parent()?.to_owned(), object: format!("{name}{colon}{rest}") })
    }
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => found.push(part),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_definition_is_found_from_its_file_or_module() {
        let code = |object: &str| {
            let found = DefinitionCode::of(&json!({ "object": object, "directory": "/home/me" }));
            found.map(|it| (it.root.to_string_lossy().into_owned(), it.object))
        };
        for (object, root, there) in [
            ("app.py:Echo", "/home/me", "app.py:Echo"),
            ("models/app.py", "/home/me/models", "app.py"),
            ("../other/./app.py:a.b", "/home/other", "app.py:a.b"),
            ("/srv/app.py:Echo", "/srv", "app.py:Echo"),
            ("models.app:Echo", "/home/me", "models.app:Echo"),
        ] {
            assert_eq!(code(object), Some((root.to_owned(), there.to_owned())), "{object}");
        }
        assert_eq!(DefinitionCode::of(&Value::Null), None, "an archive");
    }
}
