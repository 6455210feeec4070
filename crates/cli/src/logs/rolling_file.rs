//! A log file with a size limit: a full file is renamed and a new one begins; a few old files are kept.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// TorchServe's size limit of a log file.
const BYTES_MAX: u64 = 100 << 20;
/// TorchServe's number of old files.
const KEPT: u32 = 5;

/// An open file and its size.
#[derive(Debug)]
pub struct RollingFile {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    bytes_max: u64,
}

impl RollingFile {
    /// Opens the file for appending, making its directory where needed.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        Self::with_limit(path, BYTES_MAX)
    }

    fn with_limit(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let file = append(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file: BufWriter::new(file), bytes, bytes_max })
    }

    /// Writes one line.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.roll_if_full()?;
        self.bytes += text.len() as u64 + 1;
        self.file.write_all(text.as_bytes())?;
        self.file.write_all(b"\n")
    }

    fn roll_if_full(&mut self) -> io::Result<()> {
        if self.bytes >= self.bytes_max { self.roll() } else { Ok(()) }
    }

    fn roll(&mut self) -> io::Result<()> {
        self.file.flush()?;
        for age in (1..KEPT).rev() {
            // The older one may not exist yet.
            let _ = std::fs::rename(aged(&self.path, age), aged(&self.path, age + 1));
        }
        std::fs::rename(&self.path, aged(&self.path, 1))?;
        self.file = BufWriter::new(append(&self.path)?);
        self.bytes = 0;
        Ok(())
    }
}

/// Whole lines, several at a time; a new file begins between two writes.
impl Write for RollingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.roll_if_full()?;
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn aged(path: &Path, age: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{age}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_renamed_and_five_old_files_are_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x.log");
        let mut file = RollingFile::with_limit(path.clone(), 1).expect("opens");
        for number in 0..8 {
            file.line(&format!("line {number}")).expect("writes");
        }
        file.flush().expect("flushes");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(read(&path), "line 7\n");
        assert_eq!(read(&aged(&path, 1)), "line 6\n");
        assert_eq!(read(&aged(&path, 5)), "line 2\n");
        assert!(!aged(&path, 6).exists());
    }

    #[test]
    fn an_existing_file_is_continued() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x.log");
        std::fs::write(&path, "old\n").expect("writes");
        let mut file = RollingFile::open(path.clone()).expect("opens");
        file.line("new").expect("writes");
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("old\nnew\n"));
    }
}
