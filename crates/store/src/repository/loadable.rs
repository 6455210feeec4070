//! Which paths are for the loaders of Python, judged by names alone. What is in them is theirs to say.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::unpack::{MANIFEST_DIRECTORY, begins_as_archive};

/// The configuration of a model in Triton's layout.
pub(super) const CONFIG_FILE: &str = "config.pbtxt";

/// How files end that the store reads itself.
const STORED_ENDINGS: [&str; 9] =
    [".onnx", ".mar", ".war", ".model", ".zip", ".tar", ".gz", ".tgz", ".py"];

/// Files that say of which format the model of a folder is.
const FORMAT_MARKS: [&str; 5] =
    ["MLmodel", "config.json", "modules.json", "model_index.json", "handler.py"];

/// How files end that are models, whatever they are called.
const MODEL_ENDINGS: [&str; 9] =
    ["pt2", "pt", "safetensors", "joblib", "skops", "pkl", "ubj", "bst", "cbm"];

/// What the loaders read, for the message about a folder that holds nothing of it.
pub const FORMATS: &str = "Hugging Face, MLflow, scikit-learn, XGBoost, LightGBM, CatBoost, OpenVINO or PyTorch \
    (.pt2, .pt, .safetensors)";

/// The most entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// Whether a path is one model that the store does not read itself, for the loaders of Python: a file that is no
/// archive, or a folder that says what it is or has files, and neither folders nor anything to serve.
pub fn is_loadable(path: &Path) -> bool {
    if path.is_file() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_stored = STORED_ENDINGS.iter().any(|ending| name.ends_with(ending));
        return !(is_stored || path.extension().is_none() && begins_as_archive(path));
    }
    if !path.is_dir() || is_model_directory(path) || path.join(CONFIG_FILE).is_file() {
        return false;
    }
    if FORMAT_MARKS.iter().any(|mark| path.join(mark).is_file()) {
        return true;
    }
    let entries = fs::read_dir(path).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let shown = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let paths: Vec<PathBuf> = shown.map(|entry| entry.path()).collect();
    !paths.is_empty() && paths.iter().all(|path| is_loadable_file(path))
}

/// Whether a folder of a repository is such a model: one whose files say so by their names. Others may be notes.
pub(super) fn is_loadable_folder(folder: &Path) -> bool {
    let says_so = |path: &Path| {
        FORMAT_MARKS.iter().any(|mark| path.ends_with(mark))
            || path.file_stem().is_some_and(|stem| stem == "model")
            || ends_as_model(path)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
    is_loadable(folder) && entries.map(|entry| entry.path()).any(|path| says_so(&path))
}

/// Whether a file's name says that it is a model for the loaders of Python.
pub(crate) fn ends_as_model(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    MODEL_ENDINGS.contains(&&*ending)
}

fn is_loadable_file(path: &Path) -> bool {
    path.is_file() && is_loadable(path)
}

pub(super) fn is_model_directory(directory: &Path) -> bool {
    directory.join(MANIFEST_DIRECTORY).is_dir()
}
