//! The model store: finds a model by its url, unpacks it inside a jail, reads what it says about
//! itself.
//!
//! ```text
//! url ─▶ resolve ─▶ a directory, served in place ──────────────────────────┐
//!           ├─────▶ an archive ─▶ unpack ─▶ unzip | untar ─▶ jail ─▶ dir ──┴─▶ package
//!           └─▶ fetch ─▶┘                                                      (manifest, yaml)
//! ```
//!
//! Everything here but [`Store::fetch`] blocks on the disk and belongs on a thread that may. Nothing
//! here runs a model's code, knows a status code, or writes outside [`StoreConfig::scratch`], except
//! for downloads, which go into the store; an archive is hostile until it is unpacked, and one that
//! fails leaves nothing behind.

mod api;
mod checksum;
mod dir;
mod error;
mod fetch;
mod jail;
mod limits;
mod links;
mod manifest;
mod member;
mod package;
mod remote;
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
    sync::Arc,
};

pub use self::{
    api::Api,
    checksum::Sha256,
    dir::ModelDir,
    error::{Breach, Excess, StoreError},
    fetch::Fetched,
    limits::Limits,
    manifest::{Manifest, Runtime},
    package::Package,
    remote::{Ask, Download, Later, Remote, Resume, Trouble, is_remote},
    resolve::Found,
};
pub use self::{member::stays_inside, package::read_text, yaml::parse as parse_yaml};
use self::{resolve::resolve, unpack::unpack};

/// Says whether a url may be opened: `http(s)://`, `file://` or a bucket's.
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
    /// Who downloads; without it nothing remote can be had.
    pub remote: Option<Arc<dyn Remote>>,
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

    /// Finds what a url names, without fetching it. A remote file whose name is taken is refused,
    /// except at start-up: there it is what the server before this one fetched.
    pub fn find(&self, url: &str, at_startup: bool) -> Result<Found, StoreError> {
        resolve(&self.config, url, at_startup)
    }

    /// Fetches what is remote and copies what is elsewhere; everything else is here already.
    pub async fn fetch(&self, ask: Ask<'_>, found: Found) -> Result<Found, StoreError> {
        let bytes_max = self.config.limits.fetched_bytes_max;
        let target = match found {
            Found::Remote(target) => target,
            Found::Elsewhere { from, target } => {
                return fetch::copy(ask.url, from, target, bytes_max).await.map(Found::Fetched);
            }
            Found::Archive(_) | Found::Directory(_) | Found::Fetched(_) => return Ok(found),
        };
        match &self.config.remote {
            Some(remote) => {
                fetch::fetch(remote.as_ref(), ask, target, bytes_max).await.map(Found::Fetched)
            }
            None => Err(not_fetched(ask.url)),
        }
    }

    /// Compares the sum of a file that is here with the one it should have.
    pub fn verify(
        &self,
        url: &str,
        file: Option<&Path>,
        expected: Sha256,
    ) -> Result<(), StoreError> {
        let url = || url.to_owned();
        let path = file.ok_or_else(|| StoreError::NoChecksum { url: url() })?;
        let sum = Sha256::of_file(path).map_err(|source| StoreError::Io {
            url: url(),
            path: path.to_owned(),
            source,
        })?;
        if sum == expected {
            return Ok(());
        }
        Err(StoreError::Checksum { url: url(), found: sum, expected })
    }

    /// Unpacks and reads a model.
    pub fn open(&self, url: &str, found: Found) -> Result<Package, StoreError> {
        let (dir, fetched) = match found {
            Found::Archive(path) => (self.unpack(url, &path)?, None),
            Found::Directory(path) => (in_place(url, path)?, None),
            Found::Fetched(fetched) => (self.unpack(url, fetched.path())?, Some(fetched)),
            Found::Remote(_) | Found::Elsewhere { .. } => return Err(not_fetched(url)),
        };
        Ok(Package { downloaded: fetched, ..Package::read(url, dir)? })
    }

    /// Where unpacked models are, and what is made for them.
    pub fn models(&self) -> PathBuf {
        self.config.scratch.join("models")
    }

    fn unpack(&self, url: &str, archive: &Path) -> Result<ModelDir, StoreError> {
        unpack(archive, &self.models(), self.config.limits).map_err(|error| error.at(url))
    }
}

fn not_fetched(url: &str) -> StoreError {
    let why = "nobody is there to download it".to_owned();
    StoreError::DownloadFailed { url: url.to_owned(), why }
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
