//! The model store: finds a model by its url, unpacks it inside a jail, reads what it says about
//! itself.
//!
//! ```text
//! url ─▶ resolve ─▶ a directory, served in place ──────────────────────────┐
//!           └─────▶ an archive ─▶ unpack ─▶ unzip | untar ─▶ jail ─▶ dir ──┴─▶ package
//!                                                                              (manifest, yaml)
//! ```
//!
//! Everything here blocks on the disk and belongs on a thread that may. Nothing here runs a
//! model's code, knows a status code, or writes outside [`StoreConfig::scratch`]; an archive is
//! hostile until it is unpacked, and one that fails leaves nothing behind.

mod batching;
mod dir;
mod error;
mod fields;
mod jail;
mod limits;
mod links;
mod manifest;
mod member;
mod package;
mod resolve;
mod unpack;
mod untar;
mod unzip;
mod yaml;

#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use self::{
    batching::{BatchingYaml, PolicyYaml},
    dir::ModelDir,
    error::{Breach, Excess, StoreError},
    limits::Limits,
    manifest::{Manifest, Runtime},
    package::Package,
    resolve::default_model_name,
    yaml::{DeviceType, ModelYaml, ParallelType},
};
use self::{
    resolve::{Found, resolve},
    unpack::unpack,
};

/// Says whether an `http(s)://` or `file://` url may be opened.
pub type UrlRule = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What a store needs to know.
pub struct StoreConfig {
    /// Where names are looked up; without it only directories and `file://` urls are found.
    pub model_store: Option<PathBuf>,
    /// Unpacked models go to `models` below this directory.
    pub scratch: PathBuf,
    /// How much one archive may unpack to.
    pub limits: Limits,
    /// The allow-list.
    pub url_allowed: UrlRule,
}

/// Where models come from.
pub struct Store {
    config: StoreConfig,
}

impl Store {
    /// A store; nothing is touched until a model is opened.
    pub fn new(config: StoreConfig) -> Self {
        Self { config }
    }

    /// Finds, unpacks and reads a model.
    pub fn open(&self, url: &str) -> Result<Package, StoreError> {
        let dir = match resolve(&self.config, url)? {
            Found::Archive(path) => self.unpack(url, &path)?,
            Found::Directory(path) => in_place(url, path)?,
        };
        Package::read(url, dir)
    }

    /// Finds a file that is a model by itself, by the same rules as an archive.
    pub fn locate(&self, url: &str) -> Result<PathBuf, StoreError> {
        match resolve(&self.config, url)? {
            Found::Archive(path) => Ok(path),
            Found::Directory(_) => Err(StoreError::NotFound { url: url.to_owned() }),
        }
    }

    fn unpack(&self, url: &str, archive: &Path) -> Result<ModelDir, StoreError> {
        let models = self.config.scratch.join("models");
        unpack(archive, &models, self.config.limits).map_err(|error| error.at(url))
    }
}

/// A directory around a directory and nothing else is taken for its wrapping.
fn in_place(url: &str, path: PathBuf) -> Result<ModelDir, StoreError> {
    match dir::lone_directory(&path) {
        Ok(lone) => Ok(ModelDir::in_place(lone.unwrap_or(path))),
        Err(source) => Err(StoreError::Io { url: url.to_owned(), path, source }),
    }
}

/// The models of a store, by the names that [`Store::open`] takes, sorted: archives, ONNX files and
/// directories, except hidden ones. This is what `load_models=all` loads.
pub fn models_in(store: &Path) -> Vec<String> {
    let mut names = names_of_models(store).unwrap_or_else(|error| {
        tracing::warn!(store = %store.display(), %error, "cannot list the model store");
        Vec::new()
    });
    names.sort();
    names
}

fn names_of_models(store: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with('.') && is_model(&name, &entry.path()) {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_model(name: &str, path: &Path) -> bool {
    let is_file =
        [".mar", ".model", ".tar.gz", ".tgz", ".onnx"].iter().any(|ending| name.ends_with(ending));
    if is_file { path.exists() } else { path.is_dir() }
}
