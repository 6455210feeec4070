//! From an archive file to a model's directory, or to an error and no directory at all.
//!
//! What the file is, its first bytes say; its name decides only where they are silent. The
//! directory removes itself unless everything went well.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;

use super::{
    dir::{ModelDir, lone_directory},
    error::{Breach, Excess, StoreError},
    jail::Jail,
    limits::Limits,
    untar::untar,
    unzip::unzip,
};

/// Why unpacking stopped; the url joins when it becomes a [`StoreError`].
#[derive(Debug)]
pub(super) enum UnpackError {
    Hostile(Breach),
    TooLarge(Excess),
    Corrupt(String),
    Io(PathBuf, io::Error),
}

impl UnpackError {
    /// The archive's reader failed: the archive is damaged.
    pub(super) fn corrupt(error: impl std::fmt::Display) -> Self {
        Self::Corrupt(error.to_string())
    }

    /// Adds which archive it was.
    pub(super) fn at(self, url: &str) -> StoreError {
        let url = url.to_owned();
        match self {
            Self::Hostile(breach) => StoreError::Hostile { url, breach },
            Self::TooLarge(excess) => StoreError::TooLarge { url, excess },
            Self::Corrupt(why) => StoreError::Corrupt { url, why },
            Self::Io(path, source) => StoreError::Io { url, path, source },
        }
    }
}

impl From<Breach> for UnpackError {
    fn from(breach: Breach) -> Self {
        Self::Hostile(breach)
    }
}

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
        Format::Zip => unzip(file, &mut jail)?,
        Format::TarGz => untar(MultiGzDecoder::new(file), &mut jail)?,
        Format::Tar => untar(file, &mut jail)?,
    }
    let links = jail.seal()?;
    let wrapping = if format.is_wrapped() { wrapping(dir.path())? } else { PathBuf::new() };
    let dir = without(&wrapping, dir, models)?;
    // Only now: a link may lead out and back in by the name of a directory that is no more.
    links.iter().try_for_each(|link| link.check(&wrapping, dir.path()))?;
    Ok(dir)
}

fn open(archive: &Path) -> io::Result<(File, Format)> {
    let mut file = File::open(archive)?;
    let format = Format::of(&mut file, archive)?;
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
enum Format {
    Zip,
    TarGz,
    Tar,
}

impl Format {
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
