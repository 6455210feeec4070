//! The name of an archive's member, checked once: after that it can only lie inside the jail.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::error::Breach;

/// The longest part of a path that Linux file systems take.
const PART_BYTES_MAX: usize = 255;

/// Deeper trees than this are not unpacked: removing one holds a file descriptor per level.
const PARTS_MAX: usize = 64;

/// A relative path of plain parts: no root, no `..`, no NUL. Empty for the archive's own root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberName(PathBuf);

impl MemberName {
    /// Checks a name as it stands in the archive; `.` and doubled slashes are dropped.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, Breach> {
        let name = || String::from_utf8_lossy(raw).into_owned();
        if raw.starts_with(b"/") {
            return Err(Breach::Absolute(name()));
        }
        let parts = || raw.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        if parts().any(|part| part == b"..") {
            return Err(Breach::Escapes(name()));
        }
        let unusable = |part: &[u8]| part.contains(&0) || part.len() > PART_BYTES_MAX;
        if parts().any(unusable) || parts().count() > PARTS_MAX {
            return Err(Breach::BadName(name()));
        }
        Ok(Self(parts().map(OsStr::from_bytes).collect()))
    }

    /// The same for a member that must have a name of its own, as every file has.
    pub(super) fn parse_file(raw: &[u8]) -> Result<Self, Breach> {
        let name = Self::parse(raw)?;
        if name.0.as_os_str().is_empty() {
            Err(Breach::BadName(String::from_utf8_lossy(raw).into_owned()))
        } else {
            Ok(name)
        }
    }

    /// The path, relative to the archive's root.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Whether a file name of a manifest stays inside the model's directory.
pub fn stays_inside(name: &str) -> bool {
    MemberName::parse_file(name.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &[u8], expected: Result<&str, fn(&Breach) -> bool>) {
        match (MemberName::parse_file(raw), expected) {
            (Ok(name), Ok(path)) => assert_eq!(name.path(), Path::new(path)),
            (Err(breach), Err(kind)) => assert!(kind(&breach), "{raw:?}: {breach}"),
            (outcome, _) => panic!("{raw:?} gave {outcome:?}"),
        }
    }

    #[test]
    fn plain_names_pass_and_lose_their_dots_and_doubled_slashes() {
        check(b"handler.py", Ok("handler.py"));
        check(b"./MAR-INF//MANIFEST.json", Ok("MAR-INF/MANIFEST.json"));
        check(b"dir/", Ok("dir"));
        check(b"..data", Ok("..data"));
        check("modèle/ü".as_bytes(), Ok("modèle/ü"));
    }

    #[test]
    fn names_that_leave_the_archive_are_rejected() {
        check(b"/etc/passwd", Err(|breach| matches!(breach, Breach::Absolute { .. })));
        check(b"//etc/passwd", Err(|breach| matches!(breach, Breach::Absolute { .. })));
        check(b"../evil", Err(|breach| matches!(breach, Breach::Escapes { .. })));
        check(b"a/../../evil", Err(|breach| matches!(breach, Breach::Escapes { .. })));
        check(b"a/..", Err(|breach| matches!(breach, Breach::Escapes { .. })));
    }

    #[test]
    fn names_that_no_file_system_takes_are_rejected() {
        let is_bad = |breach: &Breach| matches!(breach, Breach::BadName { .. });
        check(b"", Err(is_bad));
        check(b"./", Err(is_bad));
        check(b"a\0b", Err(is_bad));
        check(&[b'x'; 256], Err(is_bad));
        check("d/".repeat(65).as_bytes(), Err(is_bad));
        check("d/".repeat(64).as_bytes(), Ok(&"d/".repeat(64)));
    }
}
