//! Reads `.mar` archives, which are zip files, into the jail.

use std::{
    fs::File,
    io::{BufReader, Read},
};

use zip::{ZipArchive, read::ZipFile};

use super::{error::Breach, jail::Jail, links::Link, member::MemberName, unpack::UnpackError};

/// The longest path that Linux takes, and so the longest target of a symbolic link.
const LINK_BYTES_MAX: u64 = 4096;

/// The bits of a Unix mode that say what kind of file it is.
const KIND: u32 = 0o170_000;
const KIND_UNKNOWN: u32 = 0;
const KIND_REGULAR: u32 = 0o100_000;
const KIND_DIRECTORY: u32 = 0o040_000;
const KIND_LINK: u32 = 0o120_000;

/// Puts every member of the archive into the jail.
pub(super) fn unzip(file: File, jail: &mut Jail<'_>) -> Result<(), UnpackError> {
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(UnpackError::corrupt)?;
    // The reader shows only one of them, so the jail would never know.
    if archive.has_duplicate_names() {
        return Err(Breach::Repeated.into());
    }
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(UnpackError::corrupt)?;
        put(&mut member, jail)?;
    }
    Ok(())
}

fn put<R: Read>(member: &mut ZipFile<'_, R>, jail: &mut Jail<'_>) -> Result<(), UnpackError> {
    let raw = member.name().map_err(UnpackError::corrupt)?.into_owned().into_bytes();
    let mode = member.unix_mode().unwrap_or(KIND_UNKNOWN);
    match mode & KIND {
        _ if raw.ends_with(b"/") => jail.directory(&MemberName::parse(&raw)?),
        KIND_DIRECTORY => jail.directory(&MemberName::parse(&raw)?),
        KIND_LINK => {
            let name = MemberName::parse_file(&raw)?;
            let link = Link::symbolic(name, &link_target(member)?);
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
