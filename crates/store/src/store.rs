//! A store of models: finds a model by its url, fetches what is remote, unpacks and reads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::allowance::{bytes_max, free_bytes};
use super::checksum::Sha256;
use super::download::DownloadRequest;
use super::error::StoreError;
use super::locate::{ModelSource, StoreConfig, locate, locate_apart};
use super::package::Package;
use super::shown_url::ShownUrl;
use super::unpack::{ModelDir, lone_directory, unpack};
use super::{compiled, fetch};

/// How many archives are unpacked at a time; further ones wait.
const UNPACKED_AT_A_TIME: usize = 2;

/// Where models come from.
pub struct Store {
    config: StoreConfig,
    turns: Arc<Semaphore>,
    /// Directories that were made for downloads so far.
    downloads: AtomicU32,
}

/// The right to unpack an archive, for as long as it is held.
pub struct UnpackTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Store {
    /// A store; nothing is touched until a model is opened.
    pub fn new(config: StoreConfig) -> Self {
        let turns = Arc::new(Semaphore::new(UNPACKED_AT_A_TIME));
        Self { config, turns, downloads: AtomicU32::new(0) }
    }

    /// Finds what a url names, without fetching it. A remote file whose name is taken is an error,
    /// except at start-up: there it is what the server before this one fetched.
    pub fn find(&self, url: &str, at_startup: bool) -> Result<ModelSource, StoreError> {
        locate(&self.config, url, at_startup)
    }

    /// Like [`Store::find`] at start-up, but a remote file will lie in a new directory below the scratch
    /// directory, apart from all others of its name and from the model store.
    pub fn find_apart(&self, url: &str) -> Result<ModelSource, StoreError> {
        let turn = self.downloads.fetch_add(1, Ordering::Relaxed);
        let directory = self.config.scratch.join(format!("downloads/{turn}"));
        let found = locate_apart(&self.config, url, &directory)?;
        if matches!(found, ModelSource::Remote(_)) {
            fs::create_dir_all(&directory).map_err(|source| StoreError::Io {
                url: ShownUrl::of(url),
                path: directory,
                source,
            })?;
        }
        Ok(found)
    }

    /// Fetches what is remote and copies what is outside the store; everything else is here already.
    pub async fn fetch(
        &self,
        ask: DownloadRequest<'_>,
        found: ModelSource,
    ) -> Result<ModelSource, StoreError> {
        let fetched = match found {
            ModelSource::Remote(target) => {
                let remote = self.config.remote.as_ref().ok_or_else(|| not_fetched(ask.url))?;
                let bytes_max = self.fetched_bytes_max(&target);
                fetch::fetch(remote.as_ref(), ask, target, bytes_max).await
            }
            ModelSource::Outside { from, target } => {
                let bytes_max = self.fetched_bytes_max(&target);
                fetch::copy(ask.url, from, target, bytes_max).await
            }
            ModelSource::Archive(_) | ModelSource::Directory(_) | ModelSource::Fetched(_) => {
                return Ok(found);
            }
        };
        fetched.map(ModelSource::Fetched)
    }

    /// Compares the sum of a file that is here with the one it should have.
    pub fn verify(
        &self,
        url: &str,
        file: Option<&Path>,
        expected: Sha256,
    ) -> Result<(), StoreError> {
        let url = || ShownUrl::of(url);
        let path = file.ok_or_else(|| StoreError::NoChecksum(url()))?;
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

    /// Waits until it may be opened: only so many archives are unpacked at a time.
    pub async fn turn(&self, found: &ModelSource) -> UnpackTurn {
        let unpacks = !matches!(found, ModelSource::Directory(_));
        let turns = Arc::clone(&self.turns);
        // Nobody closes the semaphore.
        UnpackTurn { _permit: if unpacks { turns.acquire_owned().await.ok() } else { None } }
    }

    /// Unpacks and reads a model.
    pub fn open(&self, url: &str, found: ModelSource) -> Result<Package, StoreError> {
        let (dir, archive, downloaded) = match found {
            ModelSource::Archive(path) => (self.unpack(url, &path)?, Some(path), None),
            ModelSource::Directory(path) => (served_from(url, path)?, None, None),
            ModelSource::Fetched(fetched) => {
                let path = fetched.path().to_owned();
                (self.unpack(url, &path)?, Some(path), Some(fetched))
            }
            ModelSource::Remote(_) | ModelSource::Outside { .. } => return Err(not_fetched(url)),
        };
        Ok(Package { archive, downloaded, ..Package::read(url, dir)? })
    }

    /// Where what compiling this model makes is kept from one start to the next, if there is a place for it.
    /// Reads the whole archive.
    pub fn compile_cache(&self, package: &Package) -> Option<PathBuf> {
        let homes = [&self.config.model_store, &self.config.cache];
        compiled::directory(package, homes.into_iter().flatten().map(PathBuf::as_path))
    }

    /// Where unpacked models are, and what is made for them.
    pub fn models(&self) -> PathBuf {
        self.config.scratch.join("models")
    }

    /// Without a limit of its own a download takes no more than half of what the disk has free.
    fn fetched_bytes_max(&self, target: &Path) -> u64 {
        let free = target.parent().and_then(|directory| free_bytes(directory).ok());
        bytes_max(self.config.limits.fetched_bytes_max, free.unwrap_or(u64::MAX))
    }

    fn unpack(&self, url: &str, archive: &Path) -> Result<ModelDir, StoreError> {
        unpack(archive, &self.models(), self.config.limits).map_err(|error| error.at(url))
    }
}

fn not_fetched(url: &str) -> StoreError {
    StoreError::download(url, "no downloader is configured")
}

/// A directory around a directory and nothing else is taken for its wrapping.
fn served_from(url: &str, path: PathBuf) -> Result<ModelDir, StoreError> {
    match lone_directory(&path) {
        Ok(lone) => Ok(ModelDir::existing(lone.unwrap_or(path))),
        Err(source) => Err(StoreError::Io { url: ShownUrl::of(url), path, source }),
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
