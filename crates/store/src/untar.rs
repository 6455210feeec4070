//! Reads tar archives into the jail, compressed or not.
//!
//! The tar reader gathers long names and extended headers in memory, as many bytes as they claim to
//! have. So the stream underneath is limited: between two members only as much may be read as headers
//! need.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use tar::{Archive, Entry, EntryType};

use super::{
    error::{Breach, Excess, UnpackError},
    jail::{ArchiveLink, Jail},
    member::MemberName,
};

/// What may lie between two members: headers, long names, extended attributes.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// What may lie behind the last member: tar fills up to its block size with zeros.
const PADDING_BYTES_MAX: u64 = 16 << 20;

/// Puts every member of the archive into the jail.
pub(super) fn untar(stream: impl Read, jail: &mut Jail<'_>) -> Result<(), UnpackError> {
    let limit = ReadLimit::default();
    let mut archive = Archive::new(LimitedStream { stream, limit: limit.clone() });
    let mut entries = archive.entries().map_err(UnpackError::corrupt)?;
    loop {
        limit.allow(HEADER_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(|error| limit.explain(error, HEADER_BYTES_MAX))?;
        put(&mut entry, &limit, jail)?;
    }
    // The checksum of a compressed stream stands at its very end.
    limit.allow(PADDING_BYTES_MAX);
    let drained = io::copy(&mut archive.into_inner(), &mut io::sink());
    drained.map(drop).map_err(|error| limit.explain(error, PADDING_BYTES_MAX))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "whatever tar invents next is not for us")]
fn put(
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
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            limit.allow(u64::MAX);
            put_file(entry, &MemberName::parse_file(&raw)?, jail)
        }
        EntryType::Symlink => {
            jail.link(ArchiveLink::symbolic(MemberName::parse_file(&raw)?, &target(entry)))
        }
        EntryType::Link => {
            let to = MemberName::parse_file(&target(entry))?;
            jail.link(ArchiveLink::hard(MemberName::parse_file(&raw)?, to))
        }
        _ => Err(Breach::Special { name: String::from_utf8_lossy(&raw).into_owned() }.into()),
    }
}

/// The jail counts the bytes; here they are compared with the header.
fn put_file(
    entry: &mut Entry<'_, impl Read>,
    name: &MemberName,
    jail: &mut Jail<'_>,
) -> Result<(), UnpackError> {
    let executable = entry.header().mode().unwrap_or(0) & 0o111 != 0;
    let written = jail.file(name, executable, entry)?;
    if written == entry.size() {
        Ok(())
    } else {
        Err(UnpackError::corrupt(format_args!("{} ends early", name.path().display())))
    }
}

fn target(entry: &Entry<'_, impl Read>) -> Vec<u8> {
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
            0 => UnpackError::TooLarge(Excess::Headers { max }),
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
