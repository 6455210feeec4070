//! Bytes on their way from another machine into a file: counted, within the limit, over as many
//! connections as it takes within reason.
//!
//! A connection that breaks is followed by another, a bounded number of times. The new one goes on
//! where the old one ended only if the other side says that the file is still the same one (its
//! tag); in every other case the file begins anew. Pieces of two files never meet.

use std::io::SeekFrom;
use std::time::Duration;

use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::super::remote::{Ask, Download, Remote, Resume, Trouble};

/// How long the other side may say nothing, at the beginning and between two pieces.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the log tells how far a download has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Seconds before the second, third … connection; after the last one the download has failed.
const PAUSES_S: [u64; 5] = [1, 2, 4, 8, 15];

pub(super) struct Pour<'a> {
    ask: Ask<'a>,
    file: tokio::fs::File,
    /// The other side has answered once.
    begun: bool,
    bytes: u64,
    bytes_total: Option<u64>,
    bytes_max: u64,
    /// What the other side called the file when it began.
    tag: Option<String>,
    told: Instant,
}

impl<'a> Pour<'a> {
    pub(super) fn new(ask: Ask<'a>, file: std::fs::File, bytes_max: u64) -> Self {
        let (file, told) = (tokio::fs::File::from_std(file), Instant::now());
        Self { ask, file, begun: false, bytes: 0, bytes_total: None, bytes_max, tag: None, told }
    }

    /// Everything, flushed to the disk.
    pub(super) async fn everything(&mut self, remote: &dyn Remote) -> Result<(), String> {
        let mut pauses = PAUSES_S.into_iter();
        while let Err(trouble) = self.connection(remote).await {
            // What never began is not worth a second try: most often the url is wrong.
            let again = trouble.passing && self.begun;
            let Some(pause_s) = pauses.next().filter(|_| again) else { return Err(trouble.why) };
            let (url, bytes, why) = (self.url(), self.bytes, trouble.why);
            tracing::warn!(url, bytes, why, pause_s, "the download broke off and is tried again");
            sleep(Duration::from_secs(pause_s)).await;
        }
        self.file.flush().await.map_err(|error| error.to_string())?;
        self.file.sync_all().await.map_err(|error| error.to_string())?;
        tracing::info!(url = self.url(), bytes = self.bytes, "downloaded");
        Ok(())
    }

    async fn connection(&mut self, remote: &dyn Remote) -> Result<(), Trouble> {
        let tag = self.tag.take().filter(|_| self.bytes > 0);
        let resume = tag.as_deref().map(|tag| Resume { bytes: self.bytes, tag });
        let mut download = match patient(remote.open(Ask { resume, ..self.ask })).await {
            Ok(download) => download,
            Err(trouble) => {
                self.tag = tag;
                return Err(trouble);
            }
        };
        let tag = download.tag().map(str::to_owned);
        self.begin(download.begins_at(), download.bytes_total(), tag).await?;
        let ended = self.pieces(download.as_mut()).await;
        match self.bytes_total {
            Some(total) if total == self.bytes => Ok(()),
            Some(_) if ended.is_ok() => {
                Err(Trouble::passing(format!("it ended after {} bytes", self.bytes)))
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
    ) -> Result<(), Trouble> {
        if begins_at != self.bytes {
            self.file.set_len(0).await.map_err(Trouble::lasting)?;
            self.file.seek(SeekFrom::Start(0)).await.map_err(Trouble::lasting)?;
            self.bytes = 0;
        }
        if begins_at != self.bytes {
            return Err(Trouble::lasting("it answered with another part than it was asked for"));
        }
        self.begun = true;
        (self.bytes_total, self.tag) = (bytes_total, tag);
        let (url, from, bytes) = (self.url(), self.bytes, self.bytes_total);
        tracing::info!(url, bytes, from, "downloading");
        self.within_limit(self.bytes_total.unwrap_or_default())
    }

    async fn pieces(&mut self, download: &mut dyn Download) -> Result<(), Trouble> {
        while let Some(piece) = patient(download.next()).await? {
            self.within_limit(self.bytes + piece.len() as u64)?;
            self.file.write_all(&piece).await.map_err(Trouble::lasting)?;
            self.bytes += piece.len() as u64;
            self.tell();
        }
        Ok(())
    }

    fn within_limit(&self, bytes: u64) -> Result<(), Trouble> {
        let max = self.bytes_max;
        let larger = || Trouble::lasting(format!("it is larger than {max} bytes"));
        if bytes > max { Err(larger()) } else { Ok(()) }
    }

    fn tell(&mut self) {
        if self.told.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.told = Instant::now();
        let percent = self.bytes_total.map(|total| self.bytes * 100 / total.max(1));
        tracing::info!(url = self.url(), bytes = self.bytes, percent, "downloading");
    }

    fn url(&self) -> &'a str {
        without_secrets(self.ask.url)
    }
}

async fn patient<T>(later: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let silent = || format!("no word from the other side for {} s", PATIENCE.as_secs());
    timeout(PATIENCE, later).await.unwrap_or_else(|_| Err(Trouble::passing(silent())))
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
mod tests {
    use super::*;

    #[test]
    fn the_log_does_not_tell_passwords() {
        for (url, expected) in [
            ("https://host/a.mar?X-Amz-Signature=s#x", "https://host/a.mar"),
            ("https://user:secret@host/a.mar", "host/a.mar"),
            ("https://host/a@b.mar", "https://host/a@b.mar"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }
}
