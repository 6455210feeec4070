//! Links inside archives: kept if they lead to a member, refused otherwise.
//!
//! They are made after everything else, hard ones before symbolic ones, so a hard link can only
//! name a regular file and nothing is written through a symbolic one.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

use super::{error::Breach, jail::not_made, member::MemberName, unpack::UnpackError};

/// A link that an archive asks for.
pub(super) struct Link {
    /// Where the link itself lies.
    pub(super) name: MemberName,
    target: Target,
}

enum Target {
    /// A second name for a file of the archive.
    Hard(MemberName),
    /// Any text; nobody has checked it yet.
    Symbolic(PathBuf),
}

impl Link {
    pub(super) fn hard(name: MemberName, to: MemberName) -> Self {
        Self { name, target: Target::Hard(to) }
    }

    pub(super) fn symbolic(name: MemberName, to: &[u8]) -> Self {
        Self { name, target: Target::Symbolic(PathBuf::from(OsStr::from_bytes(to))) }
    }

    pub(super) fn is_symbolic(&self) -> bool {
        matches!(self.target, Target::Symbolic(_))
    }

    /// Makes the link; its directory is there and is no link itself.
    pub(super) fn make(&self, root: &Path) -> Result<(), UnpackError> {
        let path = root.join(self.name.path());
        let made = match &self.target {
            Target::Hard(to) if root.join(to.path()).is_file() => {
                fs::hard_link(root.join(to.path()), &path)
            }
            Target::Symbolic(to) if to.is_relative() => symlink(to, &path),
            Target::Hard(_) | Target::Symbolic(_) => return Err(self.misleads().into()),
        };
        made.map_err(|error| {
            if is_bad_target(&error) {
                return self.misleads().into();
            }
            not_made(self.name.path(), &path, error)
        })
    }

    /// Follows the link to its end, which must lie inside `home`: that is where the archive's
    /// directory `wrapping` has gone, and links beside it are no longer there. The system is asked
    /// rather than the text, because `a/../b` means something else where `a` is a link.
    pub(super) fn check(&self, wrapping: &Path, home: &Path) -> Result<(), UnpackError> {
        let Ok(name) = self.name.path().strip_prefix(wrapping) else { return Ok(()) };
        let home = home.canonicalize().map_err(|error| UnpackError::Io(home.into(), error))?;
        let end = home.join(name).canonicalize();
        if end.is_ok_and(|end| end.starts_with(home)) {
            Ok(())
        } else {
            Err(self.misleads().into())
        }
    }

    fn misleads(&self) -> Breach {
        let target = match &self.target {
            Target::Hard(to) => to.path(),
            Target::Symbolic(to) => to,
        };
        let text = |path: &Path| path.display().to_string();
        Breach::Link { name: text(self.name.path()), target: text(target) }
    }
}

/// Whether the target is empty, too long, or has a NUL in it.
fn is_bad_target(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotFound};
    matches!(error.kind(), NotFound | InvalidFilename | InvalidInput)
}
