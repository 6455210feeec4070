//! The directory that a model is served from, and its removal.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Where archives keep their manifest.
pub(super) const MANIFEST_DIRECTORY: &str = "MAR-INF";

/// A model's directory. An unpacked copy is ours and goes away with this value; any other directory
/// is served where it is and never touched.
#[derive(Debug)]
pub struct ModelDir {
    path: PathBuf,
    ours: bool,
    /// What was made for the model and leaves with it.
    beside: Option<Box<ModelDir>>,
}

impl ModelDir {
    /// Where the model's files are: an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory that was there before.
    pub fn existing(path: PathBuf) -> Self {
        Self { path, ours: false, beside: None }
    }

    /// Keeps another directory for as long as this one.
    pub fn attach(&mut self, beside: Self) {
        self.beside = Some(Box::new(beside));
    }

    /// A new directory below `models`, named by 32 hexadecimal digits, for our eyes only.
    pub fn reserve(models: &Path) -> io::Result<Self> {
        let models = std::path::absolute(models)?;
        DirBuilder::new().mode(0o700).recursive(true).create(&models)?;
        let path = models.join(format!("{:032x}", fastrand::u128(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, ours: true, beside: None })
    }

    /// Becomes what `inner` was; this directory must still be empty.
    pub(super) fn take_over(&self, inner: &Path) -> io::Result<()> {
        fs::rename(inner, &self.path)?;
        fs::set_permissions(&self.path, Permissions::from_mode(0o700))
    }
}

impl Drop for ModelDir {
    fn drop(&mut self) {
        if self.ours {
            removed(fs::remove_dir_all(&self.path), &self.path, "an unpacked model");
        }
    }
}

/// Logs what could not be removed; what is gone already is fine.
pub(super) fn removed(outcome: io::Result<()>, path: &Path, what: &str) {
    if let Err(error) = outcome
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove {what}");
    }
}

/// The one sub-directory of a directory that holds nothing else. What a Mac's Finder strews about
/// does not count, and a manifest alone is a model, not a wrapping.
pub(super) fn lone_directory(dir: &Path) -> io::Result<Option<PathBuf>> {
    let mut lone = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b"._") || name == ".DS_Store" {
            continue;
        }
        if lone.is_some() || name == MANIFEST_DIRECTORY || !entry.file_type()?.is_dir() {
            return Ok(None);
        }
        lone = Some(entry.path());
    }
    Ok(lone)
}
