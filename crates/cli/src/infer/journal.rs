//! How far a job is, on disk: a small file beside the output that is replaced in one step, only after
//! what it promises has reached the disk. Whatever ends the job, the next run finds a journal that is
//! true, cuts the output back to it and goes on.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::failure::Failure;

/// Written by this version of the format.
const VERSION: u32 = 1;

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    version: u32,
    /// Which job it is about.
    pub job: Identity,
    /// How far the job is.
    pub progress: Progress,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Rows that are written down, answered or failed.
    pub rows: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Where the next row begins in the input.
    pub position: u64,
    /// Bytes of the output.
    pub output_bytes: u64,
    /// Bytes of the side file.
    pub failed_bytes: u64,
    /// Every row is written down; only the names are missing.
    pub complete: bool,
}

/// The journal of one output.
pub struct Journal {
    path: PathBuf,
    job: Identity,
}

impl Journal {
    /// The journal at a path, about a job.
    pub fn new(path: PathBuf, job: Identity) -> Self {
        Self { path, job }
    }

    /// What an earlier run left: nothing, or the progress of this very job.
    pub fn read(&self) -> Result<Option<Progress>, Failure> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.cannot("read", &error)),
        };
        let strange = |why: &str| {
            Failure::failed(format!("{} {why}", self.path.display()))
                .hint("run the command as it was, or begin anew with --overwrite")
        };
        let entry: Entry = serde_json::from_slice(&text)
            .map_err(|error| strange(&format!("cannot be read: {error}")))?;
        if entry.version != VERSION {
            return Err(strange("was written by another version of jitney"));
        }
        if let Some(what) = self.job.difference(&entry.job) {
            return Err(strange(&format!("is about another job: {what}")));
        }
        Ok(Some(entry.progress))
    }

    /// Replaces the journal. What it says about must have reached the disk before.
    pub fn write(&self, progress: Progress) -> Result<(), Failure> {
        let entry = Entry { version: VERSION, job: self.job.clone(), progress };
        let write = || {
            let next = self.path.with_extension("progress.next");
            let mut file = File::create(&next)?;
            serde_json::to_writer(&mut file, &entry)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&next, &self.path)?;
            sync_folder(&self.path)
        };
        write().map_err(|error: io::Error| self.cannot("write", &error))
    }

    /// Removes it, and what a run that was killed while writing it left.
    pub fn remove(&self) -> Result<(), Failure> {
        let _ = fs::remove_file(self.path.with_extension("progress.next"));
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.cannot("remove", &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn cannot(&self, what: &str, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot {what} {}: {error}", self.path.display()))
    }
}

/// Makes new names in a file's folder last.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_only_for_the_same_job() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("out.jsonl.progress");
        let job = Identity { model: "m".to_owned(), ..Identity::default() };
        let journal = Journal::new(path.clone(), job.clone());
        assert_eq!(journal.read().expect("nothing there"), None);
        let progress = Progress { rows: 5, output_bytes: 80, ..Progress::default() };
        journal.write(progress).expect("writes");
        assert_eq!(journal.read().expect("reads"), Some(progress));
        let other = Identity { model: "n".to_owned(), ..job };
        let failure = Journal::new(path.clone(), other).read().expect_err("another job");
        assert!(failure.message.contains("the model was"), "{failure}");
        fs::write(&path, "{").expect("writes");
        assert!(journal.read().is_err());
        journal.remove().expect("removes");
        assert_eq!(journal.read().expect("nothing there"), None);
        journal.remove().expect("again");
    }
}
