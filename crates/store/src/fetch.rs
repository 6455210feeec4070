//! Fetches an archive into the store, from another machine or from elsewhere on this one: a temporary
//! file beside the others, within the limit, that takes its name only when it is complete.
//!
//! Waits for the network, never blocks on it. A fetch that fails, or whose caller goes away, leaves
//! nothing behind.

mod pour;

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use tempfile::NamedTempFile;

use self::pour::Pour;
use super::{error::StoreError, remote::Ask, remote::Remote};

/// A file that was fetched into the store. It leaves the store with this value, until a model that
/// was registered from it [settles](Self::settle) it there.
#[derive(Debug)]
pub struct Fetched {
    path: PathBuf,
    settled: AtomicBool,
}

impl Fetched {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on only [`Fetched::remove`] takes it away: a server that ends leaves it for the next.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Takes it out of the store.
    pub fn remove(&self) {
        self.settle();
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "cannot remove a downloaded archive");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if !self.settled.load(Ordering::Relaxed) {
            self.remove();
        }
    }
}

/// Downloads what is asked for to `target`, which must not exist yet.
pub(super) async fn fetch(
    remote: &dyn Remote,
    ask: Ask<'_>,
    target: PathBuf,
    bytes_max: u64,
) -> Result<Fetched, StoreError> {
    let url = ask.url;
    let failed = |why: String| StoreError::DownloadFailed { url: url.to_owned(), why };
    let disk = |source| StoreError::Io { url: url.to_owned(), path: target.clone(), source };
    let part = part_beside(&target).map_err(disk)?;
    let file = part.as_file().try_clone().map_err(disk)?;
    Pour::new(ask, file, bytes_max).everything(remote).await.map_err(failed)?;
    name(part, target, url)
}

/// Copies a file of this machine to `target`, which must not exist yet.
pub(super) async fn copy(
    url: &str,
    from: PathBuf,
    target: PathBuf,
    bytes_max: u64,
) -> Result<Fetched, StoreError> {
    let theirs = url.to_owned();
    let copied = tokio::task::spawn_blocking(move || {
        let failed = |source| StoreError::Io { url: theirs.clone(), path: from.clone(), source };
        if from.metadata().map_err(failed)?.len() > bytes_max {
            let why = format!("it is larger than {bytes_max} bytes");
            return Err(StoreError::DownloadFailed { url: theirs, why });
        }
        let part = part_beside(&target).map_err(failed)?;
        let mut source = File::open(&from).map_err(failed)?;
        io::copy(&mut source, &mut part.as_file()).map_err(failed)?;
        name(part, target, &theirs)
    });
    let ended = |why: tokio::task::JoinError| StoreError::DownloadFailed {
        url: url.to_owned(),
        why: why.to_string(),
    };
    copied.await.map_err(ended)?
}

/// Gives a complete file its name.
fn name(part: NamedTempFile, target: PathBuf, url: &str) -> Result<Fetched, StoreError> {
    match part.persist_noclobber(&target) {
        Ok(_) => Ok(Fetched { path: target, settled: AtomicBool::new(false) }),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            let file = target.file_name().unwrap_or_default().display().to_string();
            Err(StoreError::AlreadyExists { file })
        }
        Err(error) => {
            Err(StoreError::Io { url: url.to_owned(), path: target, source: error.error })
        }
    }
}

/// Hidden while it grows, so that nobody takes it for a model; readable like any other archive.
fn part_beside(target: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".jitney-")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(target.parent().unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests;
