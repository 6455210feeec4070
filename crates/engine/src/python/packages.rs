//! Our own Python packages (`jitney`, `ts`, ...), which the binary carries, so that the server is one file and every
//! worker finds the runtime that fits it.
//!
//! They are unpacked at every start, into a folder that leaves with the server. Where the operator names a folder that
//! stays, they are unpacked once, and the byte code that Python writes beside them serves all later workers.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// The right to write of all but the owner.
const OTHERS_WRITE: u32 = 0o022;

/// Writes the packages under `scratch` and returns the directory for `PYTHONPATH`.
pub fn unpack_packages(scratch: &Path) -> io::Result<PathBuf> {
    let root = scratch.join("python");
    for (name, content) in PYTHON_FILES {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            make_folder(parent)?;
        }
        File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(path)?
            .write_all(content)?;
    }
    Ok(root)
}

/// The packages in a folder that stays, unpacked there if they are not yet. Those of other programs lie beside them.
pub(super) fn kept_packages(folder: &Path) -> io::Result<PathBuf> {
    make_folder(folder)?;
    check_owner(folder)?;
    let kept = std::path::absolute(folder.join(format!("packages-{PYTHON_FILES_HASH:016x}")))?;
    if !kept.is_dir() {
        // Whole or not at all, also when several servers begin at once.
        let made = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(folder)?;
        let unpacked = unpack_packages(made.path())?;
        if let Err(error) = fs::rename(unpacked, &kept)
            && !kept.is_dir()
        {
            return Err(error);
        }
    }
    check_owner(&kept)?;
    Ok(kept)
}

/// Makes a folder and those above it, which only their owner can write.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Workers run what lies there, so nobody else may write it.
fn check_owner(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if ours && found.mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let folder = folder.display();
    Err(io::Error::other(format!(
        "others can write to {folder}; it must be this user's, with mode 755 or less"
    )))
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::kept_packages;

    #[test]
    fn packages_are_unpacked_once() -> Result<(), Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let kept = kept_packages(folder.path())?;
        let byte_code = kept.join("jitney/__pycache__");
        fs::create_dir(&byte_code)?;
        assert_eq!(kept_packages(folder.path())?, kept);
        assert!(byte_code.is_dir());
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() -> Result<(), Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        assert!(
            kept_packages(folder.path())
                .is_err_and(|error| error.to_string().contains("others can write"))
        );
        Ok(())
    }
}
