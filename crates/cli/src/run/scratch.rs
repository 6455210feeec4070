//! The server's private directory for unpacked models and the workers' socket. Other users cannot read
//! it, and it is removed when the server ends.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

/// The path of a Unix socket may have about 100 bytes; this much is left for the parent directory.
const PARENT_BYTES_MAX: usize = 72;

/// The directory.
pub struct ScratchDir(TempDir);

impl ScratchDir {
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
    fn the_directory_is_private_has_a_short_path_and_is_removed() {
        let parent = tempfile::tempdir().expect("directory");
        let long = parent.path().join("x".repeat(100));
        std::fs::create_dir(&long).expect("directory");
        let scratch = ScratchDir::make(&long).expect("made");
        let path = scratch.path().to_owned();
        assert!(path.join("workers.sock").as_os_str().len() < 100);
        let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o077, 0);
        drop(scratch);
        assert!(!path.exists());
    }
}
