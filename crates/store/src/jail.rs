//! The only hand that writes while an archive is unpacked.
//!
//! Every member passes through here, whatever the format, so every limit and every refusal lives
//! here once. Links are made last: no member is ever written through one, so a link can at worst
//! be wrong, and that is found out before anybody follows it. The directory is fresh and private,
//! so nobody else changes it meanwhile.

use std::{
    collections::HashSet,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{
    error::Breach,
    limits::{Limits, Tally},
    links::Link,
    member::MemberName,
    unpack::UnpackError,
};

/// A directory being filled.
pub(super) struct Jail<'a> {
    root: &'a Path,
    tally: Tally,
    /// The directories made so far, relative to the root: real ones, never links.
    directories: HashSet<PathBuf>,
    /// Links to make when all else is there.
    links: Vec<Link>,
    buffer: Box<[u8]>,
}

impl<'a> Jail<'a> {
    /// A jail in `root`, which must be empty and belong to nobody else.
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

    /// Writes a file and says how many bytes it got.
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
    pub(super) fn link(&mut self, link: Link) -> Result<(), UnpackError> {
        self.tally.file()?;
        self.links.push(link);
        Ok(())
    }

    /// Makes the links, hard ones first, and gives them back to be checked where the model ends up.
    pub(super) fn seal(mut self) -> Result<Vec<Link>, UnpackError> {
        let mut links = std::mem::take(&mut self.links);
        links.sort_by_key(Link::is_symbolic);
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
        return Breach::Collides { name: member.display().to_string() }.into();
    }
    UnpackError::Io(path.to_owned(), error)
}
