//! Writes the members of an archive, inside a fresh and private directory.
//!
//! Every member passes through here, whatever the format, so every limit and every check is here once.
//! Everything is counted while it is written; sizes in headers are believed only where they are too
//! large. Links are made after everything else, hard ones before symbolic ones: a hard
//! link can only name a regular file, nothing is written through a symbolic one, and a link that leads
//! outside is found before it is followed. The name of a member is checked once, when it is read: after
//! that it can only lie inside.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use super::allowance::{Allowance, Limits};
use super::error::{Breach, Excess, UnpackError};

/// A directory being filled.
pub(super) struct Jail<'a> {
    root: &'a Path,
    files_max: u64,
    /// Bytes that may still be written.
    allowance: Allowance,
    /// Files, directories and links made so far.
    files: u64,
    /// The directories made so far, relative to the root: real ones, never links.
    directories: HashSet<PathBuf>,
    /// Links to make when all else is there.
    links: Vec<ArchiveLink>,
    buffer: Box<[u8]>,
}

impl<'a> Jail<'a> {
    /// A jail in `root`, which must be empty and used by no one else, for an archive of `packed` bytes.
    pub(super) fn new(root: &'a Path, packed: u64, limits: &Limits) -> io::Result<Self> {
        Ok(Self {
            root,
            files_max: limits.files_max,
            allowance: Allowance::new(root.to_owned(), packed, limits)?,
            files: 0,
            directories: HashSet::from([PathBuf::new()]),
            links: Vec::new(),
            buffer: vec![0; 128 << 10].into_boxed_slice(),
        })
    }

    /// Ends an archive whose headers announce more bytes than it may unpack to.
    pub(super) fn announce(&self, bytes: u64) -> Result<(), UnpackError> {
        self.allowance.check(bytes)
    }

    /// Makes a directory and those above it; one that is there already is fine.
    pub(super) fn directory(&mut self, name: &MemberName) -> Result<(), UnpackError> {
        self.make_directory(name.path())
    }

    /// Writes a file; gives its number of bytes.
    pub(super) fn file(
        &mut self,
        name: &MemberName,
        executable: bool,
        content: &mut dyn Read,
    ) -> Result<u64, UnpackError> {
        self.make_parent(name.path())?;
        self.count_file()?;
        let path = self.root.join(name.path());
        let mode = if executable { 0o755 } else { 0o644 };
        let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut file = opened.map_err(|error| not_made(name.path(), &path, error))?;
        self.pour(content, &mut file, &path)
    }

    /// Remembers a link until [`Jail::seal`].
    pub(super) fn link(&mut self, link: ArchiveLink) -> Result<(), UnpackError> {
        self.count_file()?;
        self.links.push(link);
        Ok(())
    }

    /// Makes the links, hard ones first, and gives them back to be checked where the model ends up.
    pub(super) fn seal(mut self) -> Result<Vec<ArchiveLink>, UnpackError> {
        let mut links = std::mem::take(&mut self.links);
        links.sort_by_key(ArchiveLink::is_symbolic);
        for link in &links {
            self.make_parent(link.name.path())?;
            link.make(self.root)?;
        }
        Ok(links)
    }

    fn count_file(&mut self) -> Result<(), UnpackError> {
        self.files += 1;
        let most = self.files_max;
        if self.files > most { Err(UnpackError::TooLarge(Excess::Files(most))) } else { Ok(()) }
    }

    fn make_parent(&mut self, member: &Path) -> Result<(), UnpackError> {
        self.make_directory(member.parent().unwrap_or(Path::new("")))
    }

    fn make_directory(&mut self, member: &Path) -> Result<(), UnpackError> {
        if self.directories.contains(member) {
            return Ok(());
        }
        self.make_parent(member)?;
        self.count_file()?;
        let path = self.root.join(member);
        let made = DirBuilder::new().mode(0o755).create(&path);
        made.map_err(|error| not_made(member, &path, error))?;
        self.directories.insert(member.to_owned());
        Ok(())
    }

    fn pour(
        &mut self,
        content: &mut dyn Read,
        file: &mut File,
        path: &Path,
    ) -> Result<u64, UnpackError> {
        let mut written = 0;
        loop {
            let read = match content.read(&mut self.buffer) {
                Ok(0) => return Ok(written),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(UnpackError::corrupt(error)),
            };
            self.allowance.take(read as u64)?;
            let saved = file.write_all(&self.buffer[..read]);
            saved.map_err(|error| not_written(path, error))?;
            written += read as u64;
        }
    }
}

/// Something that is in the way is the archive's fault, all else the disk's.
pub(super) fn not_made(member: &Path, path: &Path, error: io::Error) -> UnpackError {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Breach::Collides(member.display().to_string()).into();
    }
    not_written(path, error)
}

/// A full disk is no failure of it.
fn not_written(path: &Path, error: io::Error) -> UnpackError {
    if error.kind() == io::ErrorKind::StorageFull {
        return UnpackError::TooLarge(Excess::Disk);
    }
    UnpackError::Io(path.to_owned(), error)
}

/// A link that an archive asks for.
pub(super) struct ArchiveLink {
    /// Where the link itself lies.
    pub(super) name: MemberName,
    target: LinkTarget,
}

enum LinkTarget {
    /// A second name for a file of the archive.
    Hard(MemberName),
    /// Any text, not checked yet.
    Symbolic(PathBuf),
}

impl ArchiveLink {
    pub(super) fn hard(name: MemberName, to: MemberName) -> Self {
        Self { name, target: LinkTarget::Hard(to) }
    }

    pub(super) fn symbolic(name: MemberName, to: &[u8]) -> Self {
        Self { name, target: LinkTarget::Symbolic(PathBuf::from(OsStr::from_bytes(to))) }
    }

    pub(super) fn is_symbolic(&self) -> bool {
        matches!(self.target, LinkTarget::Symbolic(_))
    }

    /// Makes the link; its directory is there and is no link itself.
    pub(super) fn make(&self, root: &Path) -> Result<(), UnpackError> {
        let path = root.join(self.name.path());
        let made = match &self.target {
            LinkTarget::Hard(to) if root.join(to.path()).is_file() => {
                fs::hard_link(root.join(to.path()), &path)
            }
            LinkTarget::Symbolic(to) if to.is_relative() => symlink(to, &path),
            LinkTarget::Hard(_) | LinkTarget::Symbolic(_) => return Err(self.misleads().into()),
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
            LinkTarget::Hard(to) => to.path(),
            LinkTarget::Symbolic(to) => to,
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
