//! Repositories: a directory whose folders and files are models, in Triton's layout or as they are.
//!
//! ```text
//! repository/
//!   add/config.pbtxt  add/1/model.onnx  add/2/model.onnx   Triton's layout; config.pbtxt may be missing
//!   digits.onnx  digits.yaml                               an ONNX file, with its card if it has one
//!   bert.mar                                               an archive
//!   shout/MAR-INF/…                                        a model directory
//! ```
//!
//! Names come from folders and files, versions from numbered folders. A model that cannot be served has a
//! sentence in its place and harms no other. Nothing here loads a model.

mod text_format;
mod triton;

use std::{
    collections::BTreeMap,
    fmt, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use jitney_settings::Values;

use self::text_format::ConfigError;
pub use self::triton::{DeclaredTensor, DeclaredTensors};
use self::triton::{TritonConfig, VersionPolicy};
use super::{dir::MANIFEST_DIRECTORY, package::read_text};

/// The configuration of a model in Triton's layout.
const CONFIG_FILE: &str = "config.pbtxt";

/// The model's file in Triton's layout.
const MODEL_FILE: &str = "model.onnx";

/// The most models that a directory is looked through for.
const MODELS_MAX: usize = 10_000;

/// The most files of a model that are looked at to see whether it changed, and how deep.
const STAMPED_FILES_MAX: usize = 10_000;
const STAMPED_DEPTH_MAX: usize = 8;

/// Names, sizes and times of a model's files: two that are equal mean that nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp(u64);

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
    /// The names of classes, by output.
    pub labels: BTreeMap<String, Vec<String>>,
    /// What of its configuration has no effect.
    pub remarks: Vec<String>,
    /// The configuration, if it has one.
    pub config: Option<PathBuf>,
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
/// it is no folder of a single model in Triton's layout.
pub fn is_repository(directory: &Path) -> bool {
    directory.is_dir() && !is_model_directory(directory) && !is_wrapped_model(directory)
}

/// A directory around a model directory and nothing else, which is taken for its wrapping.
fn is_wrapped_model(directory: &Path) -> bool {
    let lone = super::dir::lone_directory(directory).ok().flatten();
    lone.is_some_and(|lone| is_model_directory(&lone))
}

fn is_model_directory(directory: &Path) -> bool {
    directory.join(MANIFEST_DIRECTORY).is_dir()
}

/// The models of a directory, sorted by name. A folder of one model in Triton's layout is a repository of
/// that model.
pub fn models_of(directory: &Path) -> io::Result<Vec<RepositoryModel>> {
    if directory.join(CONFIG_FILE).is_file() || !version_numbers(directory)?.is_empty() {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        return Ok(name.map(|name| folder(&name, directory)).into_iter().collect());
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
    drop(stamp.add_tree(path, STAMPED_DEPTH_MAX));
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
                "{} holds no model: neither {CONFIG_FILE}, nor a numbered folder with {MODEL_FILE}, nor \
                 one .onnx or .mar file, nor {MANIFEST_DIRECTORY}",
                folder.display()
            )),
        };
    }
    let has_config = config.is_some();
    let config = config.unwrap_or_default();
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
    let version = |number: u64| {
        let directory = folder.join(number.to_string());
        let mut stamp = StampHasher::default();
        stamp.add_files(folder, |_| true).map_err(unreadable)?;
        stamp.add_tree(&directory, STAMPED_DEPTH_MAX).map_err(unreadable)?;
        let path = model_in(&directory, config.file.as_deref())?;
        Ok(RepositoryVersion { number: Some(number.to_string()), path, stamp: stamp.finish() })
    };
    Ok(RepositoryContent {
        versions: numbers.into_iter().map(version).collect::<Result<_, String>>()?,
        labels: labels(folder, &config)?,
        settings: config.settings,
        whole: config.whole,
        declared: config.declared,
        remarks: config.remarks,
        config: has_config.then(|| folder.join(CONFIG_FILE)),
    })
}

/// The configuration, if there is one. An error names file and line.
fn config_of(name: &str, folder: &Path) -> Result<Option<TritonConfig>, String> {
    let path = folder.join(CONFIG_FILE);
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let shown = path.display().to_string();
    let read = triton::read(&text, name, &shown);
    read.map(Some).map_err(|ConfigError { line, why }| format!("{shown}:{line}: {why}"))
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

/// The model of a folder: the named file, `model.onnx`, a model directory, or the only ONNX file or
/// archive.
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

/// Puts names, sizes and times of files together.
#[derive(Default)]
struct StampHasher {
    hasher: DefaultHasher,
    files: usize,
}

impl StampHasher {
    /// The files of a directory whose names are wanted; not its folders.
    fn add_files(&mut self, directory: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        for path in sorted(directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() && wanted(&name) {
                self.add(&path)?;
            }
        }
        Ok(())
    }

    /// Everything below a directory.
    fn add_tree(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        if depth == 0 {
            return Ok(());
        }
        for path in sorted(directory)? {
            if path.is_dir() {
                self.add_tree(&path, depth - 1)?;
            } else {
                self.add(&path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        self.files += 1;
        if self.files <= STAMPED_FILES_MAX {
            let data = path.metadata()?;
            (path, data.len(), data.mtime(), data.mtime_nsec(), data.ino()).hash(&mut self.hasher);
        }
        Ok(())
    }

    fn finish(&self) -> FileStamp {
        FileStamp(self.hasher.finish())
    }
}

fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.take(STAMPED_FILES_MAX);
    let mut paths = paths.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

impl fmt::Display for FileStamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
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
mod tests {
    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new(files: &[(&str, &str)]) -> Self {
            let files_of = Self(tempfile::tempdir().unwrap());
            files.iter().for_each(|(file, text)| files_of.write(file, text));
            files_of
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn models(&self) -> Vec<RepositoryModel> {
            models_of(self.0.path()).unwrap()
        }

        /// What is served of the only model: paths by version.
        fn versions(&self) -> Result<Vec<(Option<String>, String)>, String> {
            let model = self.models().remove(0);
            let root = self.0.path();
            let shown = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
            let versions = model
                .content
                .map_err(|why| why.replace(&format!("{}/", root.display()), ""))?
                .versions;
            Ok(versions.into_iter().map(|it| (it.number, shown(&it.path))).collect())
        }
    }

    fn numbered(pairs: &[(&str, &str)]) -> Result<Vec<(Option<String>, String)>, String> {
        Ok(pairs
            .iter()
            .map(|(number, path)| (Some((*number).to_owned()), (*path).to_owned()))
            .collect())
    }

    #[test]
    fn names_come_from_folders_and_files() {
        let files = Files::new(&[
            ("add/1/model.onnx", ""),
            ("digits.onnx", ""),
            ("digits.yaml", ""),
            ("bert.mar", ""),
            ("shout/MAR-INF/MANIFEST.json", "{}"),
            ("plain/model.onnx", ""),
            (".hidden/1/model.onnx", ""),
            ("notes.txt", ""),
            ("empty/readme", ""),
        ]);
        let models = files.models();
        let names: Vec<_> =
            models.iter().map(|it| (it.name.as_str(), it.content.is_ok())).collect();
        let expected = [
            ("add", true),
            ("bert", true),
            ("digits", true),
            ("empty", false),
            ("plain", true),
            ("shout", true),
        ];
        assert_eq!(names, expected);
        assert!(is_repository(files.0.path()));
        assert!(!is_repository(&files.0.path().join("shout")));
    }

    #[test]
    fn the_version_policy_chooses_numbered_folders() {
        let all = [
            ("m/1/model.onnx", ""),
            ("m/2/model.onnx", ""),
            ("m/10/model.onnx", ""),
            ("m/010/model.onnx", ""),
            ("m/notes/model.onnx", ""),
        ];
        let files = Files::new(&all);
        assert_eq!(files.versions(), numbered(&[("10", "m/10/model.onnx")]));
        files.write("m/config.pbtxt", "version_policy { latest { num_versions: 2 } }");
        assert_eq!(
            files.versions(),
            numbered(&[("2", "m/2/model.onnx"), ("10", "m/10/model.onnx")])
        );
        files.write("m/config.pbtxt", "version_policy { all {} }");
        assert_eq!(files.versions().unwrap().len(), 3);
        files.write("m/config.pbtxt", "version_policy { specific { versions: 3 } }");
        assert_eq!(files.versions(), Err("version 3 has no folder in m".to_owned()));
    }

    #[test]
    fn the_file_may_have_another_name_or_be_of_another_kind() {
        let files = Files::new(&[("m/1/net.onnx", ""), ("m/1/model.onnx", "")]);
        files.write("m/config.pbtxt", "default_model_filename: \"net.onnx\"");
        assert_eq!(files.versions(), numbered(&[("1", "m/1/net.onnx")]));
        let one = Files::new(&[("m/1/only.mar", "")]);
        assert_eq!(one.versions(), numbered(&[("1", "m/1/only.mar")]));
        let weights = Files::new(&[("m/1/model.onnx/model.onnx", ""), ("m/1/model.onnx/w", "")]);
        assert_eq!(weights.versions(), numbered(&[("1", "m/1/model.onnx/model.onnx")]));
        let python = Files::new(&[("m/1/model.py", "")]);
        let why = "m/1/model.onnx is not there, and model.py is of a kind that is not served";
        assert_eq!(python.versions(), Err(why.to_owned()));
    }

    #[test]
    fn an_error_names_file_and_line() {
        let files = Files::new(&[
            ("m/1/model.onnx", ""),
            ("m/config.pbtxt", "\n\nensemble_scheduling { }"),
        ]);
        let why = "m/config.pbtxt:3: ensembles are not supported; a Python definition can call several models";
        assert_eq!(files.versions(), Err(why.to_owned()));
    }

    #[test]
    fn labels_are_read() {
        let config = "output { name: \"y\" label_filename: \"labels.txt\" }";
        let files = Files::new(&[
            ("m/1/model.onnx", ""),
            ("m/config.pbtxt", config),
            ("m/labels.txt", "cat\ndog\n"),
        ]);
        let content = files.models().remove(0).content.unwrap();
        assert_eq!(content.labels["y"], ["cat", "dog"]);
    }

    #[test]
    fn a_folder_of_one_model_is_a_repository_of_it() {
        let files = Files::new(&[("m/1/model.onnx", "")]);
        let models = models_of(&files.0.path().join("m")).unwrap();
        assert_eq!((models.len(), models[0].name.as_str()), (1, "m"));
    }

    #[test]
    fn the_stamp_changes_with_the_files_of_the_model_only() {
        let files = Files::new(&[
            ("m/1/model.onnx", "a"),
            ("m/2/model.onnx", "b"),
            ("n.onnx", "c"),
            ("n.yaml", ""),
        ]);
        files.write("m/config.pbtxt", "version_policy { all {} }");
        let stamps = |files: &Files| {
            let models = files.models();
            let versions = models[0].content.as_ref().unwrap().versions.iter().map(|it| it.stamp);
            (models[0].stamp, versions.collect::<Vec<_>>(), models[1].stamp)
        };
        let before = stamps(&files);
        assert_eq!(before, stamps(&files));
        files.write("m/2/model.onnx", "longer");
        let after = stamps(&files);
        assert!(after.0 != before.0 && after.1[0] == before.1[0] && after.1[1] != before.1[1]);
        assert_eq!(after.2, before.2);
        files.write("n.yaml", "name: n");
        assert_ne!(stamps(&files).2, before.2, "the card belongs to the model");
    }
}
