//! The server's private directory: unpacked models and the workers' socket. Nobody else can look
//! into it, and it is gone when the server is.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

/// A Unix socket's path may have about 100 bytes; this much is left for the directory above ours.
const PARENT_BYTES_MAX: usize = 72;

/// The directory.
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes one under `parent`, or under `/tmp` if a socket's path would become too long there.
    pub fn make(parent: &Path) -> io::Result<Self> {
        let fits = parent.as_os_str().len() <= PARENT_BYTES_MAX;
        let parent = if fits { parent } else { Path::new("/tmp") };
        let private = Permissions::from_mode(0o700);
        tempfile::Builder::new().prefix("jitney-").permissions(private).tempdir_in(parent).map(Self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_short_and_gone_afterwards() {
        let parent = tempfile::tempdir().expect("directory");
        let long = parent.path().join("x".repeat(100));
        std::fs::create_dir(&long).expect("directory");
        let scratch = Scratch::make(&long).expect("scratch");
        let path = scratch.path().to_owned();
        assert!(path.join("workers.sock").as_os_str().len() < 100);
        let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o077, 0);
        drop(scratch);
        assert!(!path.exists());
    }
}
