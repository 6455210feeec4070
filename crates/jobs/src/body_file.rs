//! Large bodies: files beside the store, written and made durable before the store names them.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::job::JobId;

/// What a file is the body of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptKind {
    Request,
    Answer,
}

impl KeptKind {
    fn ending(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Answer => "answer",
        }
    }
}

/// The folder of large bodies.
pub(crate) struct BodyFiles(pub(crate) PathBuf);

impl BodyFiles {
    fn path(&self, id: JobId, kind: KeptKind) -> PathBuf {
        self.0.join(format!("{id}.{}", kind.ending()))
    }

    /// Writes a body. When this returns it survives a loss of power.
    pub(crate) fn write(&self, id: JobId, kind: KeptKind, body: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path(id, kind))?;
        file.write_all(body)?;
        file.sync_all()?;
        sync_folder(&self.0)
    }

    pub(crate) fn read(&self, id: JobId, kind: KeptKind) -> io::Result<Vec<u8>> {
        fs::read(self.path(id, kind))
    }

    /// Removes a body, if there is one.
    pub(crate) fn remove(&self, id: JobId, kind: KeptKind) {
        let path = self.path(id, kind);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "the body of a job stays on disk");
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Removes the files of jobs that are not known: a crash came between them and the store.
    pub(crate) fn sweep(&self, known: &HashSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if stem.is_none_or(|stem| !known.contains(stem)) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
