//! Fetches a remote archive into the store: a temporary file beside the others, within the limit,
//! that takes its name only when it is complete.
//!
//! Waits for the network, never blocks on it. A fetch that fails, or whose caller goes away, leaves
//! nothing behind. Not here yet: resuming after a break, and checksums.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::{error::StoreError, remote::Download, remote::Remote};

/// How long the other side may say nothing, at the beginning and between two pieces.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the log tells how far a download has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

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
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Takes it out of the store.
    pub(crate) fn remove(&self) {
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

/// Downloads `url` to `target`, which must not exist yet.
pub(super) async fn fetch(
    remote: &dyn Remote,
    url: &str,
    target: PathBuf,
    bytes_max: u64,
) -> Result<Fetched, StoreError> {
    let failed = |why: String| StoreError::DownloadFailed { url: url.to_owned(), why };
    let disk = |source| StoreError::Io { url: url.to_owned(), path: target.clone(), source };
    let mut download = patient(remote.open(url)).await.map_err(failed)?;
    let part = part_beside(&target).map_err(disk)?;
    let file = part.as_file().try_clone().map_err(disk)?;
    let mut pour = Pour::new(url, file, download.bytes_total(), bytes_max);
    pour.everything(download.as_mut()).await.map_err(failed)?;
    match part.persist_noclobber(&target) {
        Ok(_) => Ok(Fetched { path: target, settled: AtomicBool::new(false) }),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            let file = target.file_name().unwrap_or_default().display().to_string();
            Err(StoreError::AlreadyExists { file })
        }
        Err(error) => Err(disk(error.error)),
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

async fn patient<T>(later: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let silent = || Err(format!("no word from the other side for {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, later).await.unwrap_or_else(|_| silent())
}

/// Bytes on their way from a download into a file, counted.
struct Pour<'a> {
    /// For the log.
    url: &'a str,
    file: tokio::fs::File,
    bytes: u64,
    bytes_total: Option<u64>,
    bytes_max: u64,
    told: Instant,
}

impl<'a> Pour<'a> {
    fn new(url: &'a str, file: std::fs::File, bytes_total: Option<u64>, bytes_max: u64) -> Self {
        let (file, url) = (tokio::fs::File::from_std(file), without_secrets(url));
        Self { url, file, bytes: 0, bytes_total, bytes_max, told: Instant::now() }
    }

    async fn everything(&mut self, download: &mut dyn Download) -> Result<(), String> {
        tracing::info!(url = self.url, bytes = self.bytes_total, "downloading");
        self.within_limit(self.bytes_total.unwrap_or_default())?;
        while let Some(piece) = patient(download.next()).await? {
            self.bytes += piece.len() as u64;
            self.within_limit(self.bytes)?;
            self.file.write_all(&piece).await.map_err(|error| error.to_string())?;
            self.tell();
        }
        if self.bytes_total.is_some_and(|total| total != self.bytes) {
            return Err(format!("it ended after {} bytes", self.bytes));
        }
        self.file.flush().await.map_err(|error| error.to_string())?;
        self.file.sync_all().await.map_err(|error| error.to_string())?;
        tracing::info!(url = self.url, bytes = self.bytes, "downloaded");
        Ok(())
    }

    fn within_limit(&self, bytes: u64) -> Result<(), String> {
        let max = self.bytes_max;
        if bytes > max { Err(format!("it is larger than {max} bytes")) } else { Ok(()) }
    }

    fn tell(&mut self) {
        if self.told.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.told = Instant::now();
        let percent = self.bytes_total.map(|total| self.bytes * 100 / total.max(1));
        tracing::info!(url = self.url, bytes = self.bytes, percent, "downloading");
    }
}

/// The url without what may be a password: the query of a signed one, and what stands before `@`.
fn without_secrets(url: &str) -> &str {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    match plain.split_once("://") {
        Some((_, rest)) => {
            let host_end = rest.find('/').unwrap_or(rest.len());
            rest[..host_end].rfind('@').map_or(plain, |at| &rest[at + 1..])
        }
        None => plain,
    }
}

#[cfg(test)]
mod tests;
