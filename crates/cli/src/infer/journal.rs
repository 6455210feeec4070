//! The progress of a job on disk: a small file beside the output. It is replaced in one step, and only
//! after the rows that it counts have reached the disk. However a run ends, the next one truncates
//! the output to the last journal and resumes there.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::identity::JobIdentity;
use super::row::{InputRow, RowResult, StartPosition};
use crate::durable_file;
use crate::failure::Failure;

/// The version of the file format.
const VERSION: u32 = 1;

/// The content of a journal.
#[derive(Serialize, Deserialize)]
struct JournalEntry {
    version: u32,
    job: JobIdentity,
    progress: JobProgress,
}

/// How much of a job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Rows that are written, answered or failed.
    pub rows: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Where the next row begins in the input.
    pub position: u64,
    /// Bytes of the output.
    pub output_bytes: u64,
    /// Bytes of the file of failed rows.
    pub failed_bytes: u64,
    /// Every row is written; only the output has to be renamed.
    pub complete: bool,
}

impl JobProgress {
    /// Counts one more row.
    pub fn count(&mut self, row: &InputRow, result: &RowResult) {
        self.rows += 1;
        self.failed += u64::from(matches!(result, RowResult::Failed(_)));
        self.position = row.next;
    }

    /// Where the next run starts to read.
    pub fn start(&self) -> StartPosition {
        StartPosition { rows: self.rows, position: self.position }
    }
}

/// The journal of one output.
pub struct JobJournal {
    /// The file.
    pub path: PathBuf,
    /// The job.
    pub job: JobIdentity,
}

impl JobJournal {
    /// The progress of an earlier run of the same job, if there was one.
    pub fn read(&self) -> Result<Option<JobProgress>, Failure> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::file("read", &self.path, &error)),
        };
        let unusable = |reason: &str| {
            Failure::failed(format!("{} {reason}", self.path.display()))
                .hint("repeat the original command, or start over with --overwrite")
        };
        let entry: JournalEntry = serde_json::from_slice(&text)
            .map_err(|error| unusable(&format!("cannot be read: {error}")))?;
        if entry.version != VERSION {
            return Err(unusable("was written by another version of jitney"));
        }
        if let Some(what) = self.job.difference(&entry.job) {
            return Err(unusable(&format!("belongs to another job: {what}")));
        }
        Ok(Some(entry.progress))
    }

    /// Replaces the journal. The rows that it counts must have reached the disk before.
    pub fn write(&self, progress: JobProgress) -> Result<(), Failure> {
        let entry = JournalEntry { version: VERSION, job: self.job.clone(), progress };
        let written = durable_file::replace(&self.path, &entry);
        written.map_err(|error| Failure::file("write", &self.path, &error))
    }

    /// Removes it, and the temporary file of a run that was killed while writing it.
    pub fn remove(&self) -> Result<(), Failure> {
        let _ = fs::remove_file(durable_file::next(&self.path));
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::file("remove", &self.path, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written_and_only_for_the_same_job() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("out.jsonl.progress");
        let job = JobIdentity { model: "m".to_owned(), ..JobIdentity::default() };
        let journal = JobJournal { path: path.clone(), job: job.clone() };
        assert_eq!(journal.read().expect("nothing there"), None);
        let progress = JobProgress { rows: 5, output_bytes: 80, ..JobProgress::default() };
        journal.write(progress).expect("writes");
        assert_eq!(journal.read().expect("reads"), Some(progress));
        let other = JobIdentity { model: "n".to_owned(), ..job };
        let failure =
            JobJournal { path: path.clone(), job: other }.read().expect_err("another job");
        assert!(failure.message.contains("the model was"), "{failure}");
        fs::write(&path, "{").expect("writes");
        assert!(journal.read().is_err());
        journal.remove().expect("removes");
        assert_eq!(journal.read().expect("nothing there"), None);
        journal.remove().expect("again");
    }
}
