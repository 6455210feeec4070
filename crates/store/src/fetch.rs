//! Fetches an archive into the store, from another machine or from outside the store: a temporary
//! file beside the others, within the limit, that takes its name only when it is complete.
//!
//! Waits for the network, never blocks on it. A fetch that fails, or whose caller goes away, leaves
//! nothing behind.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::download::{Download, DownloadError, DownloadRequest, Downloader, ResumeFrom};
use super::error::StoreError;
use super::shown_url::ShownUrl;
use super::unpack::{HEAD_BYTES, is_archive, removed};

/// A file that was fetched into the store. It leaves the store with this value, until a model that
/// was registered from it [keeps](Self::keep) it there.
#[derive(Debug)]
pub struct FetchedFile {
    path: PathBuf,
    kept: AtomicBool,
}

impl FetchedFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on only [`FetchedFile::remove`] takes it away: a server that ends leaves it for the next.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Takes it out of the store.
    pub fn remove(&self) {
        self.keep();
        removed(std::fs::remove_file(&self.path), &self.path, "a downloaded archive");
    }
}

impl Drop for FetchedFile {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Relaxed) {
            self.remove();
        }
    }
}

/// Downloads what is asked for to `target`, which must not exist yet.
pub(super) async fn fetch(
    remote: &dyn Downloader,
    ask: DownloadRequest<'_>,
    target: PathBuf,
    bytes_max: u64,
) -> Result<FetchedFile, StoreError> {
    let url = ask.url;
    let disk = |source| StoreError::Io { url: ShownUrl::of(url), path: target.clone(), source };
    let part = part_beside(&target).map_err(disk)?;
    let file = part.as_file().try_clone().map_err(disk)?;
    Transfer::new(ask, file, bytes_max)
        .everything(remote)
        .await
        .map_err(|why| StoreError::download(url, why))?;
    name(part, target, url)
}

/// Copies a file of this machine to `target`, which must not exist yet. A file that is no archive is
/// not copied, and the answer is the same as for one that is absent or may not be read.
pub(super) async fn copy(
    url: &str,
    from: PathBuf,
    target: PathBuf,
    bytes_max: u64,
) -> Result<FetchedFile, StoreError> {
    let theirs = url.to_owned();
    let copied = tokio::task::spawn_blocking(move || {
        let unread = |error: io::Error| StoreError::download(&theirs, error);
        let disk =
            |source| StoreError::Io { url: ShownUrl::of(&theirs), path: target.clone(), source };
        let mut source = File::open(&from).map_err(unread)?;
        if source.metadata().map_err(unread)?.len() > bytes_max {
            return Err(StoreError::download(&theirs, larger_than(bytes_max)));
        }
        let mut head = Vec::new();
        source.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(unread)?;
        if !is_archive(&head) {
            return Err(StoreError::download(&theirs, "it is no archive"));
        }
        source.rewind().map_err(unread)?;
        let part = part_beside(&target).map_err(disk)?;
        io::copy(&mut source.take(bytes_max), &mut part.as_file()).map_err(disk)?;
        name(part, target, &theirs)
    });
    copied.await.map_err(|ended| StoreError::download(url, ended))?
}

/// Gives a complete file its name.
fn name(part: NamedTempFile, target: PathBuf, url: &str) -> Result<FetchedFile, StoreError> {
    match part.persist_noclobber(&target) {
        Ok(_) => Ok(FetchedFile { path: target, kept: AtomicBool::new(false) }),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            let file = target.file_name().unwrap_or_default().display().to_string();
            Err(StoreError::AlreadyExists(file))
        }
        Err(error) => {
            Err(StoreError::Io { url: ShownUrl::of(url), path: target, source: error.error })
        }
    }
}

/// Hidden while it grows, so that it is not taken for a model; for our eyes only, since it may hold what
/// others were not to read.
fn part_beside(target: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".jitney-")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(target.parent().unwrap_or(Path::new(".")))
}

/// How long the server may send nothing, at the beginning and between two pieces.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How often the progress of a download is logged.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Seconds before the second, third … connection; after the last one the download has failed.
const PAUSES_S: [u64; 5] = [1, 2, 4, 8, 15];

struct Transfer<'a> {
    ask: DownloadRequest<'a>,
    file: tokio::fs::File,
    /// The server has answered once.
    begun: bool,
    bytes: u64,
    bytes_total: Option<u64>,
    bytes_max: u64,
    /// What the other side called the file when it began.
    tag: Option<String>,
    logged: Instant,
}

impl<'a> Transfer<'a> {
    fn new(ask: DownloadRequest<'a>, file: std::fs::File, bytes_max: u64) -> Self {
        let (file, logged) = (tokio::fs::File::from_std(file), Instant::now());
        Self { ask, file, begun: false, bytes: 0, bytes_total: None, bytes_max, tag: None, logged }
    }

    /// Everything, flushed to the disk.
    async fn everything(&mut self, remote: &dyn Downloader) -> Result<(), String> {
        let mut pauses = PAUSES_S.into_iter();
        while let Err(error) = self.connection(remote).await {
            // What never began is not worth a second try: most often the url is wrong.
            let again = error.transient && self.begun;
            let Some(pause_s) = pauses.next().filter(|_| again) else { return Err(error.why) };
            let (url, bytes, why) = (self.url(), self.bytes, error.why);
            tracing::warn!(%url, bytes, why, pause_s, "the download broke off and is tried again");
            sleep(Duration::from_secs(pause_s)).await;
        }
        self.file.flush().await.map_err(|error| error.to_string())?;
        self.file.sync_all().await.map_err(|error| error.to_string())?;
        tracing::info!(url = %self.url(), bytes = self.bytes, "downloaded");
        Ok(())
    }

    async fn connection(&mut self, remote: &dyn Downloader) -> Result<(), DownloadError> {
        let tag = self.tag.take().filter(|_| self.bytes > 0);
        let resume = tag.as_deref().map(|tag| ResumeFrom { bytes: self.bytes, tag });
        let mut download = match in_time(remote.open(DownloadRequest { resume, ..self.ask })).await
        {
            Ok(download) => download,
            Err(error) => {
                self.tag = tag;
                return Err(error);
            }
        };
        let tag = download.tag().map(str::to_owned);
        self.begin(download.begins_at(), download.bytes_total(), tag).await?;
        let ended = self.pieces(download.as_mut()).await;
        match self.bytes_total {
            Some(total) if total == self.bytes => Ok(()),
            Some(_) if ended.is_ok() => {
                Err(DownloadError::transient(format!("it ended after {} bytes", self.bytes)))
            }
            Some(_) | None => ended,
        }
    }

    /// Where the first piece goes: behind what is here, or to the very beginning.
    async fn begin(
        &mut self,
        begins_at: u64,
        bytes_total: Option<u64>,
        tag: Option<String>,
    ) -> Result<(), DownloadError> {
        if begins_at != self.bytes {
            self.file.set_len(0).await.map_err(DownloadError::permanent)?;
            self.file.seek(SeekFrom::Start(0)).await.map_err(DownloadError::permanent)?;
            self.bytes = 0;
        }
        if begins_at != self.bytes {
            return Err(DownloadError::permanent(
                "it answered with another part than it was asked for",
            ));
        }
        self.begun = true;
        (self.bytes_total, self.tag) = (bytes_total, tag);
        let (url, from, bytes) = (self.url(), self.bytes, self.bytes_total);
        tracing::info!(%url, bytes, from, "downloading");
        self.within_limit(self.bytes_total.unwrap_or_default())
    }

    async fn pieces(&mut self, download: &mut dyn Download) -> Result<(), DownloadError> {
        while let Some(piece) = in_time(download.next()).await? {
            self.within_limit(self.bytes + piece.len() as u64)?;
            self.file.write_all(&piece).await.map_err(DownloadError::permanent)?;
            self.bytes += piece.len() as u64;
            self.log_progress();
        }
        Ok(())
    }

    fn within_limit(&self, bytes: u64) -> Result<(), DownloadError> {
        let larger = || DownloadError::permanent(larger_than(self.bytes_max));
        if bytes > self.bytes_max { Err(larger()) } else { Ok(()) }
    }

    fn log_progress(&mut self) {
        if self.logged.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.logged = Instant::now();
        let percent = self.bytes_total.map(|total| self.bytes * 100 / total.max(1));
        tracing::info!(url = %self.url(), bytes = self.bytes, percent, "downloading");
    }

    fn url(&self) -> ShownUrl {
        ShownUrl::of(self.ask.url)
    }
}

fn larger_than(bytes_max: u64) -> String {
    format!("it is larger than {bytes_max} bytes")
}

async fn in_time<T>(
    later: impl Future<Output = Result<T, DownloadError>>,
) -> Result<T, DownloadError> {
    let silent = || format!("the server sent nothing for {} s", SILENCE_MAX.as_secs());
    timeout(SILENCE_MAX, later).await.unwrap_or_else(|_| Err(DownloadError::transient(silent())))
}

#[cfg(test)]
mod tests;
