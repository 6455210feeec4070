//! Where what compiling a model makes is kept from one start to the next: a directory for each archive, named
//! after its sum, in the model store or in the server's cache.
//!
//! What lies there is run by workers. A directory is used only where nobody else can write: it is ours, no
//! link, closed to others, and its parent does not let others put another in its place.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

use super::{checksum::Sha256, package::Package};

/// The directory below a model store or a cache; hidden, so that it is no model.
const NAME: &str = ".compiled";

/// Bits of a mode: others may write, and only owners may rename.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The directory of this model in the first home that has a safe place for it.
pub(super) fn directory<'a>(
    package: &Package,
    homes: impl Iterator<Item = &'a Path>,
) -> Option<PathBuf> {
    let key = match &package.archive {
        Some(archive) => Sha256::of_file(archive).ok()?,
        // A directory has no sum; what is in it may change, and what was compiled says of what.
        None => Sha256::of(package.dir.path().as_os_str().as_encoded_bytes()),
    };
    let mut reasons = Vec::new();
    for home in homes {
        match safe_directory(home, &key.to_string()) {
            Ok(directory) => return Some(directory),
            Err(error) => reasons.push(format!("{}: {error}", home.display())),
        }
    }
    let reasons = reasons.join("; ");
    tracing::warn!("what is compiled of {} is not kept for the next start: {reasons}", package.url);
    None
}

fn safe_directory(home: &Path, key: &str) -> io::Result<PathBuf> {
    let home = std::path::absolute(home)?;
    DirBuilder::new().recursive(true).create(&home)?;
    let above = fs::metadata(&home)?;
    let open = above.mode() & OTHERS_WRITE != 0 && above.mode() & STICKY == 0;
    if open || !(is_ours(&above) || above.uid() == 0) {
        return Err(io::Error::other("others can write to it"));
    }
    let all = home.join(NAME);
    let own = all.join(key);
    private(&all)?;
    private(&own)?;
    Ok(own)
}

/// Makes a directory for our eyes only, or sees that it is one.
fn private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && is_ours(&found) && found.mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is not ours alone", path.display())))
}

fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_model_finds_its_directory_again_and_others_have_others() {
        let home = tempfile::tempdir().unwrap();
        let one = safe_directory(home.path(), "one").unwrap();
        assert!(one.is_dir() && one.starts_with(home.path().join(".compiled")));
        assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o700);
        assert_eq!(safe_directory(home.path(), "one").unwrap(), one);
        assert_ne!(safe_directory(home.path(), "two").unwrap(), one);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let one = safe_directory(home.path(), "one").unwrap();
        mode(&one, 0o777);
        assert!(safe_directory(home.path(), "one").is_err());
        symlink("/tmp", home.path().join(".compiled/link")).unwrap();
        assert!(safe_directory(home.path(), "link").is_err());
        mode(home.path(), 0o777);
        assert!(safe_directory(home.path(), "two").is_err(), "they could put another in its place");
        mode(home.path(), 0o1777);
        assert!(safe_directory(home.path(), "two").is_ok());
    }
}
