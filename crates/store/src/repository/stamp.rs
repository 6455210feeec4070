//! Whether a model's files changed since they were last looked at, without reading them.

use std::{
    fmt, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The most files of a model that are looked at to see whether it changed, and how deep.
const FILES_MAX: usize = 10_000;
pub(super) const DEPTH_MAX: usize = 8;

/// Names, sizes and times of a model's files: two that are equal mean that nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp(u64);

/// Puts names, sizes and times of files together.
#[derive(Default)]
pub(super) struct StampHasher {
    hasher: DefaultHasher,
    files: usize,
}

impl StampHasher {
    /// The files of a directory whose names are wanted; not its folders.
    pub(super) fn add_files(
        &mut self,
        directory: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        for path in sorted(directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() && wanted(&name) {
                self.add(&path)?;
            }
        }
        Ok(())
    }

    /// Everything below a directory.
    pub(super) fn add_tree(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        if depth == 0 {
            return Ok(());
        }
        for path in sorted(directory)? {
            if path.is_dir() {
                self.add_tree(&path, depth - 1)?;
            } else {
                self.add(&path)?;
            }
        }
        Ok(())
    }

    pub(super) fn add(&mut self, path: &Path) -> io::Result<()> {
        self.files += 1;
        if self.files <= FILES_MAX {
            let data = path.metadata()?;
            (path, data.len(), data.mtime(), data.mtime_nsec(), data.ino()).hash(&mut self.hasher);
        }
        Ok(())
    }

    pub(super) fn finish(&self) -> FileStamp {
        FileStamp(self.hasher.finish())
    }
}

fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.take(FILES_MAX);
    let mut paths = paths.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

impl fmt::Display for FileStamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}
