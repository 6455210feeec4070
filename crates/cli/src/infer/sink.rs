//! Where results go. Rows come in the order of the input, each exactly once.
//!
//! An output that is a file. While the job runs it is `OUTPUT.part`, with failed rows in a file beside
//! it and a journal that says how many bytes of both are valid. It is renamed when it is complete.
//!
//! The order makes it safe: rows reach the disk before the journal that counts them, the journal is
//! marked complete before the rename, and it is removed last.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::identity::JobIdentity;
use super::journal::{JobJournal, JobProgress};
use super::layout::{OutputLayout, failed};
use super::row::{InputRow, RowResult};
use crate::durable_file::sync_folder;
use crate::failure::Failure;
use crate::python::PythonHelper;

/// Bytes that are buffered before they are written.
const STDOUT_BUFFER: usize = 1 << 16;

/// Writes results.
pub trait RowSink {
    /// How much is written, by this run and those before it.
    fn progress(&self) -> JobProgress;

    /// Writes the next row.
    fn write(&mut self, row: &InputRow, result: &RowResult) -> Result<(), Failure>;

    /// Called when no other row is ready; a sink that someone watches shows its rows.
    fn idle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Makes everything written so far durable.
    fn commit(&mut self) -> Result<(), Failure>;

    /// Called when the job could not start. Removes its files, unless an earlier run wrote rows.
    fn discard(&self) {}

    /// Called when every row is written; gives the output its name.
    fn finish(&mut self, python: &PythonHelper) -> Result<(), Failure>;
}

/// JSON lines on stdout, answered and failed rows together, for pipes and for Python's iterator. No
/// progress is stored, so such a job cannot be resumed.
pub struct StdoutSink {
    layout: OutputLayout,
    buffer: Vec<u8>,
    progress: JobProgress,
}

impl StdoutSink {
    /// A sink without rows.
    pub fn new(layout: OutputLayout) -> Self {
        Self { layout, buffer: Vec::with_capacity(STDOUT_BUFFER), progress: JobProgress::default() }
    }
}

impl RowSink for StdoutSink {
    fn progress(&self) -> JobProgress {
        self.progress
    }

    fn write(&mut self, row: &InputRow, result: &RowResult) -> Result<(), Failure> {
        let first = self.progress.rows == 0;
        self.progress.count(row, result);
        match result {
            RowResult::Answered(json) => {
                self.layout.answered(&mut self.buffer, row, json, first).map_err(unwritable)?;
            }
            RowResult::Failed(error) => self.layout.failed_inline(&mut self.buffer, row, error),
        }
        if self.buffer.len() >= STDOUT_BUFFER { self.idle() } else { Ok(()) }
    }

    fn idle(&mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&self.buffer).and_then(|()| stdout.flush()).map_err(unwritable)?;
        self.buffer.clear();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.idle()
    }

    fn finish(&mut self, _: &PythonHelper) -> Result<(), Failure> {
        self.idle()
    }
}

fn unwritable(error: io::Error) -> Failure {
    Failure::failed(format!("cannot write to stdout: {error}"))
}

/// Bytes that are buffered before they are written.
const BUFFER: usize = 1 << 18;

/// The files of one job.
pub struct FileSink {
    output: PathBuf,
    part: PartFile,
    failed: PartFile,
    journal: JobJournal,
    layout: OutputLayout,
    progress: JobProgress,
}

impl FileSink {
    /// Opens the files of a job, as an earlier run left them or empty.
    pub fn open(
        output: &Path,
        job: JobIdentity,
        layout: OutputLayout,
        overwrite: bool,
    ) -> Result<Self, Failure> {
        let journal = JobJournal { path: with_suffix(output, ".progress"), job };
        let earlier = if overwrite { None } else { journal.read()? };
        if output.is_dir() || (earlier.is_none() && !overwrite && output.exists()) {
            return Err(Failure::usage(format!("{} already exists", output.display()))
                .hint("--overwrite replaces it"));
        }
        let mut part = PartFile::open(with_suffix(output, ".part"))?;
        part.lock()?;
        let mut failed = PartFile::open(with_suffix(output, ".failed.jsonl"))?;
        let progress = earlier.unwrap_or_default();
        if !progress.complete {
            part.truncate(progress.output_bytes)?;
            failed.truncate(progress.failed_bytes)?;
        }
        journal.write(progress)?;
        Ok(Self { output: output.to_owned(), part, failed, journal, layout, progress })
    }

    fn rename(&self, python: &PythonHelper) -> Result<(), Failure> {
        if self.output.extension().is_some_and(|extension| extension == "parquet") {
            return self.convert_to_parquet(python);
        }
        let renamed = fs::rename(&self.part.path, &self.output);
        renamed
            .and_then(|()| sync_folder(&self.output))
            .map_err(|error| Failure::file("write", &self.output, &error))
    }

    /// Parquet has its index at the end and cannot grow row by row, so the complete JSON lines are
    /// converted.
    fn convert_to_parquet(&self, python: &PythonHelper) -> Result<(), Failure> {
        let mut command = python.command("jitney.offline.parquet")?;
        match command.arg("write").arg(&self.part.path).arg(&self.output).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(Failure::failed(format!("cannot write {}", self.output.display()))
                .hint("no row is lost; the same command repeats only this last step")),
            Err(error) => Err(Failure::file("write", &self.output, &error)),
        }
    }
}

impl RowSink for FileSink {
    fn progress(&self) -> JobProgress {
        self.progress
    }

    fn write(&mut self, row: &InputRow, result: &RowResult) -> Result<(), Failure> {
        match result {
            RowResult::Answered(json) => {
                let first = self.part.bytes() == 0;
                let written = self.layout.answered(&mut self.part.buffer, row, json, first);
                written.map_err(|error| self.part.unwritable(&error))?;
            }
            RowResult::Failed(error) => failed(&mut self.failed.buffer, row, error),
        }
        self.progress.count(row, result);
        self.part.flush_if_full()?;
        self.failed.flush_if_full()
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.part.sync()?;
        self.failed.sync()?;
        self.progress.output_bytes = self.part.bytes();
        self.progress.failed_bytes = self.failed.bytes();
        self.journal.write(self.progress)
    }

    fn discard(&self) {
        if self.progress.rows == 0 {
            self.part.remove();
            self.failed.remove();
            // A file that cannot be removed is overwritten by the next run.
            let _ = self.journal.remove();
        }
    }

    /// May be called again by a run that finds the job complete.
    fn finish(&mut self, python: &PythonHelper) -> Result<(), Failure> {
        if !self.progress.complete {
            self.progress.complete = true;
            self.commit()?;
        }
        // An earlier run may have been killed after the rename.
        let renamed = self.part.bytes() < self.progress.output_bytes && self.output.is_file();
        if !renamed {
            self.rename(python)?;
        }
        self.part.remove();
        if self.progress.failed == 0 {
            self.failed.remove();
        }
        self.journal.remove()
    }
}

/// A file that grows.
struct PartFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Bytes of the file, without the buffer.
    written: u64,
}

impl PartFile {
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let opened =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let opened = opened.and_then(|file| Ok((file.metadata()?.len(), file)));
        let (written, file) = opened.map_err(|error| Failure::file("write", &path, &error))?;
        Ok(Self { path, file, buffer: Vec::with_capacity(BUFFER), written })
    }

    /// The lock ends with the process, however that ends.
    fn lock(&self) -> Result<(), Failure> {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Failure::failed(format!("another job is writing {}", self.path.display())))
    }

    /// Removes what no journal counts.
    fn truncate(&mut self, bytes: u64) -> Result<(), Failure> {
        if self.written < bytes {
            return Err(Failure::failed(format!(
                "{} is shorter than its progress file says",
                self.path.display()
            ))
            .hint("start over with --overwrite"));
        }
        let cut = self.file.set_len(bytes).and_then(|()| self.file.seek(SeekFrom::Start(bytes)));
        cut.map_err(|error| Failure::file("truncate", &self.path, &error))?;
        self.written = bytes;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush_if_full(&mut self) -> Result<(), Failure> {
        if self.buffer.len() < BUFFER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.file.write_all(&self.buffer).map_err(|error| self.unwritable(&error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.file.sync_data().map_err(|error| self.unwritable(&error))
    }

    /// A file that is missing already is no error.
    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn unwritable(&self, error: &io::Error) -> Failure {
        Failure::file("write", &self.path, error)
    }
}

/// The output's path with a suffix.
fn with_suffix(output: &Path, suffix: &str) -> PathBuf {
    let mut path: OsString = output.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

#[cfg(test)]
mod tests;
