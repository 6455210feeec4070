//! A small file that is replaced as a whole: whoever reads it finds the old or the new content, also after a crash of the
//! machine.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Replaces the file by this document as JSON; when this returns, it survives a crash. What a killed process left behind
/// is written over the next time.
pub fn replace(file: &Path, document: &impl Serialize) -> io::Result<()> {
    let (next, mut text) = (next(file), serde_json::to_vec(document)?);
    text.push(b'\n');
    let mut written = File::create(&next)?;
    written.write_all(&text)?;
    written.sync_all()?;
    fs::rename(&next, file)?;
    sync_folder(file)
}

/// Where the next content is written first.
pub fn next(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// Makes a rename durable by syncing the folder of the file.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
