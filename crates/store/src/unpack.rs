//! Unpacks an archive file into the directory that a model is served from, or gives an error and leaves no directory.
//!
//! The first bytes of the file tell its format, or else its name. The directory removes itself unless
//! everything went well.
//!
//! The tar reader gathers long names and extended headers in memory, as many bytes as they claim to
//! have. So the stream underneath is limited: between two members only as much may be read as headers
//! need.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};
use zip::ZipArchive;
use zip::read::ZipFile;

use super::allowance::Limits;
use super::error::{Breach, Excess, UnpackError};
use super::jail::{ArchiveLink, Jail, MemberName};

/// Unpacks `archive` into a new directory below `models`.
pub(super) fn unpack(
    archive: &Path,
    models: &Path,
    limits: Limits,
) -> Result<ModelDir, UnpackError> {
    let (file, format) =
        open(archive).map_err(|error| UnpackError::Io(archive.to_owned(), error))?;
    let packed = file.metadata().map_err(|error| UnpackError::Io(archive.to_owned(), error))?.len();
    let dir = reserve(models)?;
    let jail = Jail::new(dir.path(), packed, &limits);
    let mut jail = jail.map_err(|error| UnpackError::Io(dir.path().to_owned(), error))?;
    match format {
        PackedFormat::Zip => unzip(file, &mut jail)?,
        PackedFormat::TarGz => untar(MultiGzDecoder::new(file), &mut jail)?,
        PackedFormat::Tar => untar(file, &mut jail)?,
    }
    let links = jail.seal()?;
    let wrapping = if format.is_wrapped() { wrapping(dir.path())? } else { PathBuf::new() };
    let dir = without(&wrapping, dir, models)?;
    // Only now: a link may lead out and back in by the name of a directory that is no more.
    links.iter().try_for_each(|link| link.check(&wrapping, dir.path()))?;
    Ok(dir)
}

fn open(archive: &Path) -> io::Result<(File, PackedFormat)> {
    let mut file = File::open(archive)?;
    let format = PackedFormat::of(&mut file, archive)?;
    Ok((file, format))
}

/// The name of the one directory around everything, or nothing.
fn wrapping(root: &Path) -> Result<PathBuf, UnpackError> {
    let lone = lone_directory(root).map_err(|error| UnpackError::Io(root.to_owned(), error))?;
    Ok(lone.and_then(|lone| lone.file_name().map(PathBuf::from)).unwrap_or_default())
}

/// Moves what is inside the wrapping to a directory of its own; the rest goes away with the old one.
fn without(wrapping: &Path, dir: ModelDir, models: &Path) -> Result<ModelDir, UnpackError> {
    if wrapping.as_os_str().is_empty() {
        return Ok(dir);
    }
    let home = reserve(models)?;
    let moved = home.take_over(&dir.path().join(wrapping));
    moved.map_err(|error| UnpackError::Io(home.path().to_owned(), error))?;
    Ok(home)
}

fn reserve(models: &Path) -> Result<ModelDir, UnpackError> {
    ModelDir::reserve(models).map_err(|error| UnpackError::Io(models.into(), error))
}

/// Whether a file of this name begins as an archive does.
pub(super) fn begins_as_archive(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && is_archive(&head)
}

/// Whether a file begins as an archive does.
pub(super) fn is_archive(head: &[u8]) -> bool {
    PackedFormat::by_magic(head).is_some()
}

/// The kinds of archive that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackedFormat {
    Zip,
    TarGz,
    Tar,
}

impl PackedFormat {
    /// Looks at the file's beginning and leaves it rewound.
    fn of(file: &mut File, path: &Path) -> io::Result<Self> {
        let mut head = Vec::new();
        file.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
        file.rewind()?;
        Ok(Self::by_magic(&head).unwrap_or_else(|| Self::by_name(path)))
    }

    /// Tar archives carry one directory around everything, which is not part of the model.
    fn is_wrapped(self) -> bool {
        matches!(self, Self::TarGz | Self::Tar)
    }

    fn by_magic(head: &[u8]) -> Option<Self> {
        match head {
            // A first member, an empty archive, or the mark of a split one.
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] | [b'P', b'K', 7, 8, ..] => {
                Some(Self::Zip)
            }
            [0x1f, 0x8b, ..] => Some(Self::TarGz),
            _ if head.get(257..262) == Some(b"ustar") => Some(Self::Tar),
            _ => None,
        }
    }

    fn by_name(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "mar") {
            Self::Zip
        } else {
            Self::TarGz
        }
    }
}

/// As much of a file as tells its format.
pub(super) const HEAD_BYTES: u64 = 512;

/// The longest path that Linux takes, and so the longest target of a symbolic link.
const LINK_BYTES_MAX: u64 = 4096;

/// The bits of a Unix mode for the kind of file.
const KIND: u32 = 0o170_000;
const KIND_UNKNOWN: u32 = 0;
const KIND_REGULAR: u32 = 0o100_000;
const KIND_DIRECTORY: u32 = 0o040_000;
const KIND_LINK: u32 = 0o120_000;

/// Puts every member of the archive into the jail.
fn unzip(file: File, jail: &mut Jail<'_>) -> Result<(), UnpackError> {
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(UnpackError::corrupt)?;
    // The reader shows only one of them, so the jail would never know.
    if archive.has_duplicate_names() {
        return Err(Breach::Repeated.into());
    }
    let total = archive.decompressed_size().unwrap_or_default();
    jail.announce(u64::try_from(total).unwrap_or(u64::MAX))?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(UnpackError::corrupt)?;
        put_zip_member(&mut member, jail)?;
    }
    Ok(())
}

fn put_zip_member<R: Read>(
    member: &mut ZipFile<'_, R>,
    jail: &mut Jail<'_>,
) -> Result<(), UnpackError> {
    let raw = member.name().map_err(UnpackError::corrupt)?.into_owned().into_bytes();
    let mode = member.unix_mode().unwrap_or(KIND_UNKNOWN);
    match mode & KIND {
        _ if raw.ends_with(b"/") => jail.directory(&MemberName::parse(&raw)?),
        KIND_DIRECTORY => jail.directory(&MemberName::parse(&raw)?),
        KIND_LINK => {
            let name = MemberName::parse_file(&raw)?;
            let link = ArchiveLink::symbolic(name, &link_target(member)?);
            jail.link(link)
        }
        KIND_UNKNOWN | KIND_REGULAR => {
            let name = MemberName::parse_file(&raw)?;
            jail.file(&name, mode & 0o111 != 0, member).map(drop)
        }
        _ => Err(Breach::Special(String::from_utf8_lossy(&raw).into_owned()).into()),
    }
}

/// A zip file keeps a link's target as the member's content.
fn link_target(member: &mut impl Read) -> Result<Vec<u8>, UnpackError> {
    let mut target = Vec::new();
    let read = member.take(LINK_BYTES_MAX).read_to_end(&mut target);
    read.map_err(UnpackError::corrupt)?;
    Ok(target)
}

/// What may lie between two members: headers, long names, extended attributes.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// What may lie behind the last member: tar fills up to its block size with zeros.
const PADDING_BYTES_MAX: u64 = 16 << 20;

/// Puts every member of the archive into the jail.
fn untar(stream: impl Read, jail: &mut Jail<'_>) -> Result<(), UnpackError> {
    let limit = ReadLimit::default();
    let mut archive = Archive::new(LimitedStream { stream, limit: limit.clone() });
    let mut entries = archive.entries().map_err(UnpackError::corrupt)?;
    loop {
        limit.allow(HEADER_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(|error| limit.explain(error, HEADER_BYTES_MAX))?;
        put_tar_member(&mut entry, &limit, jail)?;
    }
    // The checksum of a compressed stream stands at its very end.
    limit.allow(PADDING_BYTES_MAX);
    let drained = io::copy(&mut archive.into_inner(), &mut io::sink());
    drained.map(drop).map_err(|error| limit.explain(error, PADDING_BYTES_MAX))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "whatever tar invents next is not for us")]
fn put_tar_member(
    entry: &mut Entry<'_, impl Read>,
    limit: &ReadLimit,
    jail: &mut Jail<'_>,
) -> Result<(), UnpackError> {
    let raw = entry.path_bytes().into_owned();
    let kind = entry.header().entry_type();
    match kind {
        EntryType::XGlobalHeader => Ok(()),
        EntryType::Directory => jail.directory(&MemberName::parse(&raw)?),
        // Before 1988 a directory was a file with a slash at its end.
        EntryType::Regular if raw.ends_with(b"/") => jail.directory(&MemberName::parse(&raw)?),
        EntryType::GNUSparse => {
            Err(Breach::Sparse(String::from_utf8_lossy(&raw).into_owned()).into())
        }
        EntryType::Regular | EntryType::Continuous => {
            if is_sparse(entry)? {
                return Err(Breach::Sparse(String::from_utf8_lossy(&raw).into_owned()).into());
            }
            limit.allow(u64::MAX);
            put_tar_file(entry, &MemberName::parse_file(&raw)?, jail)
        }
        EntryType::Symlink => {
            jail.link(ArchiveLink::symbolic(MemberName::parse_file(&raw)?, &tar_link_target(entry)))
        }
        EntryType::Link => {
            let to = MemberName::parse_file(&tar_link_target(entry))?;
            jail.link(ArchiveLink::hard(MemberName::parse_file(&raw)?, to))
        }
        _ => Err(Breach::Special(String::from_utf8_lossy(&raw).into_owned()).into()),
    }
}

/// Whether extended headers make a plain member a sparse one, as GNU tar writes it in POSIX archives.
fn is_sparse(entry: &mut Entry<'_, impl Read>) -> Result<bool, UnpackError> {
    let Some(headers) = entry.pax_extensions().map_err(UnpackError::corrupt)? else {
        return Ok(false);
    };
    let sparse = |header: tar::PaxExtension<'_>| header.key_bytes().starts_with(b"GNU.sparse.");
    Ok(headers.flatten().any(sparse))
}

/// The jail counts the bytes; here they are compared with the header.
fn put_tar_file(
    entry: &mut Entry<'_, impl Read>,
    name: &MemberName,
    jail: &mut Jail<'_>,
) -> Result<(), UnpackError> {
    let executable = entry.header().mode().unwrap_or(0) & 0o111 != 0;
    jail.announce(entry.size())?;
    let written = jail.file(name, executable, entry)?;
    if written == entry.size() {
        Ok(())
    } else {
        Err(UnpackError::corrupt(format_args!("{} ends early", name.path().display())))
    }
}

fn tar_link_target(entry: &Entry<'_, impl Read>) -> Vec<u8> {
    entry.link_name_bytes().unwrap_or_default().into_owned()
}

/// How many bytes may still be read, shared by the stream and by whoever allows them.
#[derive(Clone, Default)]
struct ReadLimit {
    left: Rc<Cell<u64>>,
}

impl ReadLimit {
    fn allow(&self, bytes: u64) {
        self.left.set(bytes);
    }

    /// Distinguishes a stream that hit its limit from a broken one.
    fn explain(&self, error: io::Error, max: u64) -> UnpackError {
        match self.left.get() {
            0 => UnpackError::TooLarge(Excess::Headers(max)),
            _ => UnpackError::corrupt(error),
        }
    }
}

/// A stream that fails, rather than ends, when its limit is used up.
struct LimitedStream<R> {
    stream: R,
    limit: ReadLimit,
}

impl<R: Read> Read for LimitedStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.limit.left.get();
        if left == 0 {
            return Err(io::Error::other("more headers than allowed"));
        }
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.stream.read(&mut buffer[..wanted])?;
        self.limit.left.set(left - read as u64);
        Ok(read)
    }
}

/// Where archives keep their manifest.
pub(super) const MANIFEST_DIRECTORY: &str = "MAR-INF";

/// Where models of SageMaker's have their code, which is a part of a model also where nothing else is.
const CODE_DIRECTORY: &str = "code";

/// A model's directory. An unpacked copy is ours and goes away with this value; any other directory
/// is served where it is and never touched.
#[derive(Debug)]
pub struct ModelDir {
    path: PathBuf,
    ours: bool,
    /// What was made for the model and leaves with it.
    beside: Vec<ModelDir>,
}

impl ModelDir {
    /// Where the model's files are: an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory that was there before.
    pub fn existing(path: PathBuf) -> Self {
        Self { path, ours: false, beside: Vec::new() }
    }

    /// Keeps another directory for as long as this one.
    pub fn attach(&mut self, beside: Self) {
        self.beside.push(beside);
    }

    /// A new directory below `models`, named by 32 hexadecimal digits, for our eyes only.
    pub fn reserve(models: &Path) -> io::Result<Self> {
        let models = std::path::absolute(models)?;
        DirBuilder::new().mode(0o700).recursive(true).create(&models)?;
        let path = models.join(format!("{:032x}", fastrand::u128(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, ours: true, beside: Vec::new() })
    }

    /// Becomes what `inner` was; this directory must still be empty.
    pub(super) fn take_over(&self, inner: &Path) -> io::Result<()> {
        fs::rename(inner, &self.path)?;
        fs::set_permissions(&self.path, Permissions::from_mode(0o700))
    }
}

impl Drop for ModelDir {
    fn drop(&mut self) {
        if self.ours {
            removed(fs::remove_dir_all(&self.path), &self.path, "an unpacked model");
        }
    }
}

/// Logs what could not be removed; what is gone already is fine.
pub(super) fn removed(outcome: io::Result<()>, path: &Path, what: &str) {
    if let Err(error) = outcome
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove {what}");
    }
}

/// The one sub-directory of a directory that holds nothing else. What a Mac's Finder strews about
/// does not count, and a manifest or code alone is a model, not a wrapping.
pub(super) fn lone_directory(dir: &Path) -> io::Result<Option<PathBuf>> {
    let mut lone = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b"._") || name == ".DS_Store" {
            continue;
        }
        let kept = name == MANIFEST_DIRECTORY || name == CODE_DIRECTORY;
        if lone.is_some() || kept || !entry.file_type()?.is_dir() {
            return Ok(None);
        }
        lone = Some(entry.path());
    }
    Ok(lone)
}
