//! Unpacks an archive file into a model's directory, or gives an error and leaves no directory.
//!
//! The first bytes of the file tell its format, or else its name. The directory removes itself unless
//! everything went well.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use zip::{ZipArchive, read::ZipFile};

use super::{
    config::Limits,
    dir::{ModelDir, lone_directory},
    error::{Breach, UnpackError},
    jail::{ArchiveLink, Jail},
    member::MemberName,
    untar::untar,
};

/// Unpacks `archive` into a new directory below `models`.
pub(super) fn unpack(
    archive: &Path,
    models: &Path,
    limits: Limits,
) -> Result<ModelDir, UnpackError> {
    let (file, format) =
        open(archive).map_err(|error| UnpackError::Io(archive.to_owned(), error))?;
    let dir = reserve(models)?;
    let mut jail = Jail::new(dir.path(), limits);
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
        file.by_ref().take(512).read_to_end(&mut head)?;
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
        _ => Err(Breach::Special { name: String::from_utf8_lossy(&raw).into_owned() }.into()),
    }
}

/// A zip file keeps a link's target as the member's content.
fn link_target(member: &mut impl Read) -> Result<Vec<u8>, UnpackError> {
    let mut target = Vec::new();
    let read = member.take(LINK_BYTES_MAX).read_to_end(&mut target);
    read.map_err(UnpackError::corrupt)?;
    Ok(target)
}
