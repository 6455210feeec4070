//! The private directory for unpacked models and the workers' socket, and the removal of those that
//! servers left behind when they were killed.
//!
//! A directory says by a locked file that its server lives. Who can take the lock may remove the
//! directory. The file appears under its name only when it is locked, and what has no such file is
//! never touched.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, openat};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::failure::{Failure, cannot};

/// The path of a Unix socket may have about 100 bytes; this much is left for the parent directory.
const PARENT_BYTES_MAX: usize = 72;
const PREFIX: &str = "jitney-";
/// The locked file, and its name before it is locked.
const OWNER: &str = "owner.lock";
const NEW_OWNER: &str = "owner.new";
/// Entries of the parent directory that are looked at.
const ENTRIES_MAX: usize = 100_000;

/// The directory of a server, removed when the server ends.
pub struct ScratchDirectory {
    directory: TempDir,
    /// Locked; `None` where the file system knows no locks, and then nobody removes it for us.
    _owner: Option<File>,
}

impl ScratchDirectory {
    /// Makes it under `parent` or, if a socket's path would become too long there, under `/tmp`. Other
    /// users cannot read it. What dead servers left there is removed meanwhile.
    pub fn new(parent: &Path) -> Result<Self, Failure> {
        let fits = parent.as_os_str().len() <= PARENT_BYTES_MAX;
        let parent = if fits { parent } else { Path::new("/tmp") };
        let made = Self::make(parent)?;
        let all = parent.to_owned();
        let sweep = std::thread::Builder::new().name("sweep".to_owned()).spawn(move || sweep(&all));
        drop(sweep.map_err(|error| tracing::debug!(%error, "old scratch directories stay")));
        Ok(made)
    }

    fn make(parent: &Path) -> Result<Self, Failure> {
        let private = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(parent);
        let directory = made.map_err(cannot("make a scratch directory"))?;
        let owner = lock(directory.path());
        let owner =
            owner.inspect_err(|error| tracing::debug!(%error, "no lock in the scratch directory"));
        Ok(Self { directory, _owner: owner.ok() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Locks a new file and only then gives it the name by which others know it.
fn lock(directory: &Path) -> io::Result<File> {
    let new = directory.join(NEW_OWNER);
    let file = File::create(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    std::fs::rename(new, directory.join(OWNER))?;
    Ok(file)
}

/// Removes the directories below `parent` whose servers are gone.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        // The lock is held until the directory is gone.
        if let Ok(Some(_lock)) = lock_of_dead(&path) {
            match std::fs::remove_dir_all(&path) {
                Ok(()) => {
                    tracing::info!(directory = %path.display(), "removed what a killed server left")
                }
                Err(error) => {
                    tracing::warn!(directory = %path.display(), %error, "cannot remove what a killed server left")
                }
            }
        }
    }
}

/// The lock of a directory of this user whose server is gone; no link is followed.
fn lock_of_dead(path: &PathBuf) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags | OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
    if fstat(&directory)?.st_uid != geteuid().as_raw() {
        return Ok(None);
    }
    let owner =
        openat(&directory, OWNER, flags | OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    flock(&owner, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_has_a_short_path_and_is_removed() {
        let parent = tempfile::tempdir().expect("directory");
        let long = parent.path().join("x".repeat(100));
        std::fs::create_dir(&long).expect("directory");
        let scratch = ScratchDirectory::new(&long).expect("made");
        let path = scratch.path().to_owned();
        assert!(path.join("workers.sock").as_os_str().len() < 100);
        let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o077, 0);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn what_dead_servers_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().expect("directory");
        let below = |name: &str| parent.path().join(name);
        let elsewhere = tempfile::tempdir().expect("directory");
        for directory in [&below("jitney-dead"), &below("other-dead"), elsewhere.path()] {
            std::fs::create_dir_all(directory.join("models")).expect("directory");
            std::fs::write(directory.join(OWNER), "").expect("file");
        }
        std::fs::create_dir(below("jitney-unmarked")).expect("directory");
        std::fs::write(below("jitney-file"), "").expect("file");
        std::os::unix::fs::symlink(elsewhere.path(), below("jitney-link")).expect("link");
        std::fs::create_dir(below("jitney-tricked")).expect("directory");
        let target = elsewhere.path().join(OWNER);
        std::os::unix::fs::symlink(target, below("jitney-tricked/owner.lock")).expect("link");
        let living = ScratchDirectory::make(parent.path()).expect("made");
        sweep(parent.path());
        let mut left: Vec<_> = std::fs::read_dir(parent.path())
            .expect("directory")
            .map(|entry| entry.expect("entry").path())
            .filter(|path| path != living.path())
            .collect();
        left.sort();
        let expected =
            ["jitney-file", "jitney-link", "jitney-tricked", "jitney-unmarked", "other-dead"];
        assert_eq!(left, expected.map(below));
        assert!(living.path().join(OWNER).exists() && elsewhere.path().join(OWNER).exists());
    }
}
