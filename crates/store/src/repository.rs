//! Repositories: a directory whose folders and files are models, in Triton's layout or as they are.
//!
//! ```text
//! repository/
//!   add/config.pbtxt  add/1/model.onnx  add/2/model.onnx   Triton's layout; config.pbtxt may be missing
//!   shop/config.pbtxt  shop/1/model.py                     a model of Triton's Python backend
//!   trees/1/model.joblib  bert/1/config.json …             a model that only Python's libraries read
//!   digits.onnx  digits.yaml                               an ONNX file, with its card if it has one
//!   bert.mar                                               an archive
//!   shout/MAR-INF/…                                        a model directory
//!   config/config.properties  model-store/*.mar            TorchServe's layout, alone in its directory
//! ```
//!
//! Names come from folders and files, versions from numbered folders. A model that cannot be served has a
//! sentence in its place and harms no other. Nothing here loads a model.

mod config_json;
mod declared;
mod dynamic_batching;
mod fields;
mod instance_group;
mod loadable;
mod overrides;
mod python_backend;
mod queue_policy;
mod sequence_config;
mod stamp;
mod text_format;
mod triton;
mod version_policy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use jitney_settings::Values;
use jitney_settings::model::MAX_BATCH_SIZE;

pub use self::declared::{
    ControlKind, DeclaredControl, DeclaredState, DeclaredTensor, DeclaredTensors,
};
pub(crate) use self::loadable::ends_as_model;
use self::loadable::{CONFIG_FILE, is_loadable_folder, is_model_directory};
pub use self::loadable::{FORMATS, is_loadable};
pub use self::overrides::config_overrides;
pub use self::python_backend::{CompletedConfig, PythonBackend};
pub use self::stamp::FileStamp;
use self::stamp::{DEPTH_MAX, StampHasher};
use self::text_format::ConfigError;
use self::triton::{TritonBackend, TritonConfig};
use self::version_policy::VersionPolicy;
use super::package::read_text;
use super::unpack::MANIFEST_DIRECTORY;

/// In TorchServe's layout, as KServe mounts it: the archives, and the file that is not read here. The command line
/// reads it where such a directory is all that is served.
const ARCHIVES_DIRECTORY: &str = "model-store";
const PROPERTIES_FILE: &str = "config/config.properties";

/// The model's file in Triton's layout.
const MODEL_FILE: &str = "model.onnx";

/// The most models that a directory is looked through for.
const MODELS_MAX: usize = 10_000;

/// A model of a repository.
#[derive(Debug)]
pub struct RepositoryModel {
    /// The name of its folder or file.
    pub name: String,
    /// Changes with its files.
    pub stamp: FileStamp,
    /// What it is served from, or why it is not.
    pub content: Result<RepositoryContent, String>,
}

impl RepositoryModel {
    fn is_for_loaders(&self) -> bool {
        let versions = self.content.iter().flat_map(|content| &content.versions);
        versions.into_iter().any(|version| is_loadable(&version.path))
    }
}

/// What a model is served from.
#[derive(Clone, Debug, Default)]
pub struct RepositoryContent {
    /// The versions to serve, the oldest first; at least one.
    pub versions: Vec<RepositoryVersion>,
    /// What its configuration sets.
    pub settings: Values,
    /// It has no batch dimension: a request is run whole and alone.
    pub whole: bool,
    /// What its configuration says of its inputs and outputs.
    pub declared: DeclaredTensors,
    /// How it is run, if it is a model of Triton's Python backend.
    pub python: Option<Arc<PythonBackend>>,
    /// The names of classes, by output.
    pub labels: BTreeMap<String, Vec<String>>,
    /// What of its configuration has no effect.
    pub remarks: Vec<String>,
    /// The configuration, if it has one.
    pub config: Option<PathBuf>,
}

impl RepositoryContent {
    /// Whether it has a configuration of Triton's.
    pub fn is_triton(&self) -> bool {
        self.config.as_ref().is_some_and(|path| path.ends_with(CONFIG_FILE))
    }
}

/// One version of a model.
#[derive(Clone, Debug)]
pub struct RepositoryVersion {
    /// The number of its folder; without one the model's own version.
    pub number: Option<String>,
    /// Its file or directory.
    pub path: PathBuf,
    /// Changes with the files of this version and with the configuration.
    pub stamp: FileStamp,
}

/// Whether a directory is a repository rather than one model: it has no manifest, no code of a model, and
/// it is no folder of a single model in Triton's layout. One that is followed may get other models later, and is
/// never taken for the wrapping of the one that it has.
pub fn is_repository(directory: &Path, followed: bool) -> bool {
    let wraps = || !followed && is_wrapped_model(directory);
    directory.is_dir() && !is_model_directory(directory) && !wraps()
}

/// A directory around a model directory and nothing else, which is taken for its wrapping.
fn is_wrapped_model(directory: &Path) -> bool {
    let lone = super::unpack::lone_directory(directory).ok().flatten();
    lone.is_some_and(|lone| is_model_directory(&lone))
}

/// The one model of a directory under this name; one without files to serve where there are several, or none.
pub fn model_named(name: &str, directory: &Path) -> io::Result<RepositoryModel> {
    if is_single_model(directory)? {
        return Ok(folder(name, directory));
    }
    // Folders that belong to the model, such as a tokenizer's, are no models.
    let mut models: Vec<_> =
        models_of(directory)?.into_iter().filter(|model| model.content.is_ok()).collect();
    let (name, names) = (name.to_owned(), models.iter().map(|model| model.name.as_str()));
    let names = Vec::from_iter(names).join(", ");
    if models.len() > 1 {
        models.retain(|model| !model.is_for_loaders());
    }
    if let (Some(model), []) = (models.pop(), &models[..]) {
        return Ok(RepositoryModel { name, ..model });
    }
    let held = if names.is_empty() { "no model".to_owned() } else { names };
    let content = Err(format!(
        "{} must hold one model to be served as {name:?}; it holds {held}",
        directory.display()
    ));
    Ok(RepositoryModel { name, stamp: StampHasher::default().finish(), content })
}

/// Whether a directory is the folder of one model in Triton's layout.
fn is_single_model(directory: &Path) -> io::Result<bool> {
    Ok(directory.join(CONFIG_FILE).is_file() || !version_numbers(directory)?.is_empty())
}

/// The models of a directory, sorted by name. A folder of one model in Triton's layout is a repository of
/// that model.
pub fn models_of(directory: &Path) -> io::Result<Vec<RepositoryModel>> {
    if is_single_model(directory)? {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        return Ok(name.map(|name| folder(&name, directory)).into_iter().collect());
    }
    let (archives, properties) =
        (directory.join(ARCHIVES_DIRECTORY), directory.join(PROPERTIES_FILE));
    if archives.is_dir() && properties.is_file() {
        return archives_of(&archives, &properties);
    }
    let mut models: BTreeMap<String, RepositoryModel> = BTreeMap::new();
    for entry in fs::read_dir(directory)?.take(MODELS_MAX) {
        let path = entry?.path();
        let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if file.starts_with('.') {
            continue;
        }
        let model = if path.is_dir() {
            folder(file, &path)
        } else if let Some(name) = model_file(file) {
            single_file(name, &path)
        } else {
            continue;
        };
        let (name, path) = (model.name.clone(), path.display().to_string());
        if models.insert(name.clone(), model).is_some()
            && let Some(model) = models.get_mut(&name)
        {
            model.content = Err(format!("two models are called {name:?}, one of them {path}"));
        }
    }
    Ok(models.into_values().collect())
}

/// The models of TorchServe's layout. Its configuration is for the server that it was written for.
fn archives_of(archives: &Path, properties: &Path) -> io::Result<Vec<RepositoryModel>> {
    let unread = "it is not read; `jitney torchserve --ts-config` reads it".to_owned();
    let mut models = models_of(archives)?;
    for content in models.iter_mut().filter_map(|model| model.content.as_mut().ok()) {
        content.config = Some(properties.to_owned());
        content.remarks.push(unread.clone());
    }
    Ok(models)
}

/// The name that a file gives its model, if it is one.
fn model_file(file: &str) -> Option<&str> {
    [".onnx", ".mar", ".model", ".tar.gz", ".tgz"]
        .iter()
        .find_map(|ending| file.strip_suffix(ending))
        .filter(|name| !name.is_empty())
}

/// A file beside others.
fn single_file(name: &str, path: &Path) -> RepositoryModel {
    let mut stamp = StampHasher::default();
    let own = |file: &str| file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let beside = path.parent().map(|directory| stamp.add_files(directory, own));
    let stamp = stamp.finish();
    let version = RepositoryVersion { number: None, path: path.to_owned(), stamp };
    let content = match beside {
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok(())) | None => {
            Ok(RepositoryContent { versions: vec![version], ..RepositoryContent::default() })
        }
    };
    RepositoryModel { name: name.to_owned(), stamp, content }
}

/// A model in a folder of its own.
fn folder(name: &str, path: &Path) -> RepositoryModel {
    let mut stamp = StampHasher::default();
    // What cannot be read now fails below, too.
    drop(stamp.add_tree(path, DEPTH_MAX));
    let stamp = stamp.finish();
    RepositoryModel { name: name.to_owned(), stamp, content: content(name, path, stamp) }
}

fn content(name: &str, folder: &Path, stamp: FileStamp) -> Result<RepositoryContent, String> {
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", folder.display());
    let one = |path| RepositoryContent {
        versions: vec![RepositoryVersion { number: None, path, stamp }],
        ..RepositoryContent::default()
    };
    if is_model_directory(folder) {
        return Ok(one(folder.to_owned()));
    }
    let config = config_of(name, folder)?;
    let mut numbers = version_numbers(folder).map_err(unreadable)?;
    if numbers.is_empty() && config.is_none() {
        return match model_in(folder, None) {
            Ok(path) => Ok(one(path)),
            Err(_) => Err(format!(
                "{} holds no model: neither {CONFIG_FILE}, nor a numbered folder with {MODEL_FILE} or another model, \
                 nor one .onnx or .mar file, nor {MANIFEST_DIRECTORY}, nor a file or folder of {FORMATS}",
                folder.display()
            )),
        };
    }
    let has_config = config.is_some();
    let mut config = config.unwrap_or_default();
    match &config.versions {
        VersionPolicy::All => {}
        VersionPolicy::Latest(count) => drop(numbers.drain(..numbers.len().saturating_sub(*count))),
        VersionPolicy::Specific(chosen) => {
            if let Some(missing) = chosen.iter().find(|number| !numbers.contains(number)) {
                return Err(format!("version {missing} has no folder in {}", folder.display()));
            }
            numbers.retain(|number| chosen.contains(number));
        }
    }
    if numbers.is_empty() {
        return Err(format!("{} has no numbered folder with a version", folder.display()));
    }
    let python = python_backend_of(name, folder, &config, &numbers)?;
    let version = |number: u64| {
        let directory = folder.join(number.to_string());
        let mut stamp = StampHasher::default();
        stamp.add_files(folder, |_| true).map_err(unreadable)?;
        stamp.add_tree(&directory, DEPTH_MAX).map_err(unreadable)?;
        let path = match &python {
            Some(python) if python.ensemble || directory.join(&python.file).is_file() => directory,
            Some(python) => {
                return Err(format!("{} is not there", directory.join(&python.file).display()));
            }
            None => model_in(&directory, config.file.as_deref())?,
        };
        Ok(RepositoryVersion { number: Some(number.to_string()), path, stamp: stamp.finish() })
    };
    let versions = numbers.into_iter().map(version).collect::<Result<Vec<_>, String>>()?;
    if config.whole && versions.iter().any(|version| is_loadable(&version.path)) {
        // Their own tensors say whether requests can share a batch.
        config.settings.remove(&MAX_BATCH_SIZE);
    }
    Ok(RepositoryContent {
        versions,
        labels: labels(folder, &config)?,
        python,
        settings: config.settings,
        whole: config.whole,
        declared: config.declared,
        remarks: config.remarks,
        config: has_config.then(|| folder.join(CONFIG_FILE)),
    })
}

/// How the model is run, if it is one of the Python backend: the configuration says so, or else its files.
fn python_backend_of(
    name: &str,
    folder: &Path,
    config: &TritonConfig,
    numbers: &[u64],
) -> Result<Option<Arc<PythonBackend>>, String> {
    let has_file =
        |number: &u64| folder.join(number.to_string()).join(python_backend::PYTHON_FILE).is_file();
    let is_python = match config.backend {
        TritonBackend::Python | TritonBackend::Ensemble => true,
        TritonBackend::Onnx | TritonBackend::Loader => false,
        TritonBackend::Unsaid => numbers.iter().any(has_file),
    };
    let backend = match (is_python, &config.only_python) {
        (true, _) => PythonBackend::new(name, config).map(Arc::new).map(Some),
        (false, None) => return Ok(None),
        (false, Some(error)) => return Err(shown_error(folder, error)),
    };
    backend.map_err(|error| shown_error(folder, &error))
}

/// The configuration, if there is one. An error names file and line.
fn config_of(name: &str, folder: &Path) -> Result<Option<TritonConfig>, String> {
    let path = folder.join(CONFIG_FILE);
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let read = triton::read(&text, name, &path.display().to_string());
    read.map(Some).map_err(|error| shown_error(folder, &error))
}

fn shown_error(folder: &Path, ConfigError { line, why }: &ConfigError) -> String {
    format!("{}:{line}: {why}", folder.join(CONFIG_FILE).display())
}

/// The numbers of a folder's versions, the smallest first. As in Triton, a name that starts with a zero
/// is none.
fn version_numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().filter(|name| !name.starts_with('0')).map(str::parse::<u64>);
        if let Some(Ok(number)) = number
            && name.to_str() == Some(number.to_string().as_str())
            && entry.path().is_dir()
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The model of a folder: the named file, `model.onnx`, a model directory, the only ONNX file or archive, or the
/// folder itself where its files are for the loaders of Python.
fn model_in(folder: &Path, named: Option<&str>) -> Result<PathBuf, String> {
    let usual = folder.join(named.unwrap_or(MODEL_FILE));
    if usual.is_file() {
        return Ok(usual);
    }
    // Triton also takes a directory of that name, for a model with its weights in other files.
    let inside = usual.join(MODEL_FILE);
    if inside.is_file() {
        return Ok(inside);
    }
    if named.is_none() && is_model_directory(folder) {
        return Ok(folder.to_owned());
    }
    let (mut models, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?
    {
        let path = entry.map_err(|error| error.to_string())?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if named.is_none() && path.is_file() && model_file(&file).is_some() {
            models.push(path);
        } else if file.starts_with("model.") {
            others.push(file);
        }
    }
    match (models.len(), others.first()) {
        (1, _) => Ok(models.swap_remove(0)),
        (0, _) if named.is_none() && is_loadable_folder(folder) => Ok(folder.to_owned()),
        (0, Some(other)) => Err(format!(
            "{} is not there, and {other} is of a kind that is not served",
            usual.display()
        )),
        (0, None) => Err(format!("{} is not there", usual.display())),
        (_, _) => {
            Err(format!("{} is not there, and {} other models are", usual.display(), models.len()))
        }
    }
}

fn labels(folder: &Path, config: &TritonConfig) -> Result<BTreeMap<String, Vec<String>>, String> {
    let read = |(output, file): &(String, String)| {
        let path = folder.join(file);
        let text = read_text(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((output.clone(), text.lines().map(|line| line.trim().to_owned()).collect()))
    };
    config.labels.iter().map(read).collect()
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing {
    //! What `fuzz/` calls of this module.

    /// Reads the text as a `config.pbtxt`: whatever it says, it ends in a configuration or in a line of
    /// the file.
    pub fn configs(bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Err(error) = super::triton::read(text, "m", "config.pbtxt") {
            assert!((1..=text.lines().count() + 1).contains(&error.line), "{error:?}");
        }
    }
}

#[cfg(test)]
mod tests;
