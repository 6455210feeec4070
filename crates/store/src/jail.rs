//! Writes the members of an archive, inside a fresh and private directory.
//!
//! Every member passes through here, whatever the format, so every limit and every check is here once.
//! Everything is counted while it is written; sizes in headers are never believed. Links are made after
//! everything else, hard ones before symbolic ones: a hard link can only name a regular file, nothing is
//! written through a symbolic one, and a link that leads outside is found before it is followed.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use super::{
    config::Limits,
    error::{Breach, Excess, UnpackError},
    member::MemberName,
};

/// A directory being filled.
pub(super) struct Jail<'a> {
    root: &'a Path,
    tally: Tally,
    /// The directories made so far, relative to the root: real ones, never links.
    directories: HashSet<PathBuf>,
    /// Links to make when all else is there.
    links: Vec<ArchiveLink>,
    buffer: Box<[u8]>,
}

impl<'a> Jail<'a> {
    /// A jail in `root`, which must be empty and used by no one else.
    pub(super) fn new(root: &'a Path, limits: Limits) -> Self {
        Self {
            root,
            tally: Tally::new(limits),
            directories: HashSet::from([PathBuf::new()]),
            links: Vec::new(),
            buffer: vec![0; 128 << 10].into_boxed_slice(),
        }
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
        self.tally.file()?;
        let path = self.root.join(name.path());
        let mode = if executable { 0o755 } else { 0o644 };
        let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut file = opened.map_err(|error| not_made(name.path(), &path, error))?;
        self.pour(content, &mut file, &path)
    }

    /// Remembers a link until [`Jail::seal`].
    pub(super) fn link(&mut self, link: ArchiveLink) -> Result<(), UnpackError> {
        self.tally.file()?;
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

    fn make_parent(&mut self, member: &Path) -> Result<(), UnpackError> {
        self.make_directory(member.parent().unwrap_or(Path::new("")))
    }

    fn make_directory(&mut self, member: &Path) -> Result<(), UnpackError> {
        if self.directories.contains(member) {
            return Ok(());
        }
        self.make_parent(member)?;
        self.tally.file()?;
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
            self.tally.bytes(read)?;
            let saved = file.write_all(&self.buffer[..read]);
            saved.map_err(|error| UnpackError::Io(path.to_owned(), error))?;
            written += read as u64;
        }
    }
}

/// Something that is in the way is the archive's fault, all else the disk's.
pub(super) fn not_made(member: &Path, path: &Path, error: io::Error) -> UnpackError {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Breach::Collides(member.display().to_string()).into();
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

/// What one archive has used up so far.
pub(super) struct Tally {
    limits: Limits,
    bytes: u64,
    files: u64,
}

impl Tally {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, bytes: 0, files: 0 }
    }

    /// Counts bytes that are about to be written.
    pub(super) fn bytes(&mut self, count: usize) -> Result<(), UnpackError> {
        let max = self.limits.unpacked_bytes_max;
        self.bytes = self.bytes.saturating_add(count as u64);
        if self.bytes > max { Err(UnpackError::TooLarge(Excess::Bytes(max))) } else { Ok(()) }
    }

    /// Counts a file, directory or link that is about to be made.
    pub(super) fn file(&mut self) -> Result<(), UnpackError> {
        let max = self.limits.files_max;
        self.files = self.files.saturating_add(1);
        if self.files > max { Err(UnpackError::TooLarge(Excess::Files(max))) } else { Ok(()) }
    }
}
