//! An output that is a file. While the job runs it is `OUTPUT.part`, with failed rows beside it and a
//! journal that says how much of both counts; it takes its name in one step when it is complete.
//!
//! The order is what makes it safe: rows reach the disk before the journal that counts them, the
//! journal says `complete` before the name changes, and it is removed last.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Count;
use crate::failure::Failure;
use crate::infer::answer::Outcome;
use crate::infer::identity::Identity;
use crate::infer::journal::{Journal, Progress, sync_folder};
use crate::infer::python::Helper;
use crate::infer::record::{self, Layout};
use crate::infer::row::Row;
use crate::infer::source::Start;

/// Bytes that wait for company.
const BUFFER: usize = 1 << 18;

/// The files of one job.
pub struct Files {
    output: PathBuf,
    part: Part,
    failed: Part,
    journal: Journal,
    layout: Layout,
    progress: Progress,
}

impl Files {
    /// Opens the files of a job, as an earlier run left them or empty.
    pub fn open(
        output: &Path,
        job: Identity,
        layout: Layout,
        overwrite: bool,
    ) -> Result<Self, Failure> {
        let journal = Journal::new(beside(output, ".progress"), job);
        let known = if overwrite { None } else { journal.read()? };
        if output.is_dir() || (known.is_none() && !overwrite && output.exists()) {
            return Err(Failure::usage(format!("{} exists already", output.display()))
                .hint("--overwrite replaces it"));
        }
        let mut part = Part::open(beside(output, ".part"))?;
        part.lock()?;
        let mut failed = Part::open(beside(output, ".failed.jsonl"))?;
        let progress = known.unwrap_or_default();
        if !progress.complete {
            part.cut(progress.output_bytes)?;
            failed.cut(progress.failed_bytes)?;
        }
        let files = Self { output: output.to_owned(), part, failed, journal, layout, progress };
        files.journal.write(files.progress)?;
        Ok(files)
    }

    /// Where the input has to begin.
    pub fn start(&self) -> Start {
        Start { rows: self.progress.rows, position: self.progress.position }
    }

    /// Whether an earlier run wrote every row and only the names are missing.
    pub fn is_complete(&self) -> bool {
        self.progress.complete
    }

    /// What was written so far.
    pub fn count(&self) -> Count {
        Count { rows: self.progress.rows, failed: self.progress.failed }
    }

    /// Writes a row.
    pub fn write(&mut self, row: &Row, outcome: &Outcome) -> Result<(), Failure> {
        match outcome {
            Outcome::Answered(json) => {
                let first = self.part.bytes() == 0;
                let written = self.layout.answered(&mut self.part.buffer, row, json, first);
                written.map_err(|error| self.part.cannot("write", &error))?;
                self.part.flush_if_full()?;
            }
            Outcome::Failed(trouble) => {
                self.progress.failed += 1;
                record::failed(&mut self.failed.buffer, row, trouble);
                self.failed.flush_if_full()?;
            }
        }
        self.progress.rows += 1;
        self.progress.position = row.next;
        Ok(())
    }

    /// Makes what was written last.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.part.sync()?;
        self.failed.sync()?;
        self.progress.output_bytes = self.part.bytes();
        self.progress.failed_bytes = self.failed.bytes();
        self.journal.write(self.progress)
    }

    /// Gives the output its name. It may be called again by a run that finds the job complete.
    pub fn finish(&mut self, helper: &Helper) -> Result<(), Failure> {
        if !self.progress.complete {
            self.progress.complete = true;
            self.settle()?;
        }
        // A run that was killed here may have been so after the name was given.
        let named = self.part.bytes() < self.progress.output_bytes && self.output.is_file();
        if !named {
            self.name(helper)?;
        }
        self.part.remove();
        if self.progress.failed == 0 {
            self.failed.remove();
        }
        self.journal.remove()
    }

    /// Removes everything but the output itself.
    pub fn remove(&self) {
        self.part.remove();
        self.failed.remove();
        // What cannot be removed is overwritten by the next run.
        let _ = self.journal.remove();
    }

    fn name(&self, helper: &Helper) -> Result<(), Failure> {
        if self.output.extension().is_some_and(|ending| ending == "parquet") {
            return self.to_parquet(helper);
        }
        let rename = fs::rename(&self.part.path, &self.output);
        rename.and_then(|()| sync_folder(&self.output)).map_err(|error| self.unnamed(&error))
    }

    /// Parquet has its index at the end and cannot grow row by row, so the lines are turned into it
    /// when they are complete.
    fn to_parquet(&self, helper: &Helper) -> Result<(), Failure> {
        let mut command = helper.command("jitney.parquet")?;
        let run = command.arg("write").arg(&self.part.path).arg(&self.output).status();
        match run {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(Failure::failed(format!("cannot write {}", self.output.display()))
                .hint("no row is lost: the same command tries only this last step again")),
            Err(error) => Err(self.unnamed(&error)),
        }
    }

    fn unnamed(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot write {}: {error}", self.output.display()))
    }
}

/// A file that grows.
struct Part {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Bytes of the file, without the buffer.
    written: u64,
}

impl Part {
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let opened =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let opened = opened.and_then(|file| Ok((file.metadata()?.len(), file)));
        let cannot = |error| Failure::failed(format!("cannot write {}: {error}", path.display()));
        let (written, file) = opened.map_err(cannot)?;
        Ok(Self { path, file, buffer: Vec::with_capacity(BUFFER), written })
    }

    /// The lock ends with the process, however that ends.
    fn lock(&self) -> Result<(), Failure> {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Failure::failed(format!("another job is writing {}", self.path.display())))
    }

    /// Cuts off what no journal counts.
    fn cut(&mut self, bytes: u64) -> Result<(), Failure> {
        if self.written < bytes {
            return Err(Failure::failed(format!(
                "{} is shorter than the journal beside it says",
                self.path.display()
            ))
            .hint("begin anew with --overwrite"));
        }
        let cut = self.file.set_len(bytes).and_then(|()| self.file.seek(SeekFrom::Start(bytes)));
        cut.map_err(|error| self.cannot("cut", &error))?;
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
        let flushed = self.file.write_all(&self.buffer);
        flushed.map_err(|error| self.cannot("write", &error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.file.sync_data().map_err(|error| self.cannot("write", &error))
    }

    /// What is gone already is gone.
    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn cannot(&self, what: &str, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot {what} {}: {error}", self.path.display()))
    }
}

/// The output's path with something after it.
fn beside(output: &Path, ending: &str) -> PathBuf {
    let mut path: OsString = output.as_os_str().to_owned();
    path.push(ending);
    PathBuf::from(path)
}

#[cfg(test)]
mod tests;
