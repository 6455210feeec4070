//! Packs members into a zip, a compressed tar or a directory. Files are copied in pieces, because
//! weights may not fit into memory.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::members::{ArchiveMembers, MemberSource};

/// The last second that has a date with four digits.
const YEAR_9999: u64 = 253_402_300_799;

/// Writes a zip.
pub fn zip(file: &mut File, members: &ArchiveMembers, method: CompressionMethod) -> io::Result<()> {
    let mut zip = ZipWriter::new(BufWriter::new(file));
    for (name, source) in &members.members {
        let mut member = OpenMember::open(source)?;
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .unix_permissions(member.mode)
            .large_file(member.size >= u64::from(u32::MAX))
            .last_modified_time(zip_time(member.modified));
        zip.start_file(name, options)?;
        io::copy(&mut member.content, &mut zip)?;
    }
    zip.finish()?.flush()
}

/// Writes a compressed tar with one directory at its top.
pub fn tgz(file: &mut File, members: &ArchiveMembers, top: &str) -> io::Result<()> {
    let encoder = GzEncoder::new(BufWriter::new(file), Compression::default());
    let mut tar = tar::Builder::new(encoder);
    for (name, source) in &members.members {
        let member = OpenMember::open(source)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(member.size);
        header.set_mode(member.mode);
        header.set_mtime(seconds(member.modified));
        // A file that grows meanwhile must not overwrite the next header.
        tar.append_data(&mut header, format!("{top}/{name}"), member.content.take(member.size))?;
    }
    tar.into_inner()?.finish()?.flush()
}

/// Writes a directory.
pub fn directory(root: &Path, members: &ArchiveMembers) -> io::Result<()> {
    for (name, source) in &members.members {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match source {
            MemberSource::File(from) => fs::copy(from, &path).map(drop)?,
            MemberSource::Text(text) => fs::write(&path, text)?,
        }
    }
    Ok(())
}

/// A member that is being copied.
struct OpenMember<'a> {
    content: Box<dyn Read + 'a>,
    size: u64,
    mode: u32,
    modified: SystemTime,
}

impl<'a> OpenMember<'a> {
    fn open(source: &'a MemberSource) -> io::Result<Self> {
        match source {
            MemberSource::File(path) => {
                let file = File::open(path).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                let metadata = file.metadata()?;
                Ok(Self {
                    content: Box::new(file),
                    size: metadata.len(),
                    mode: metadata.permissions().mode() & 0o777,
                    modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                })
            }
            MemberSource::Text(text) => Ok(Self {
                content: Box::new(text.as_bytes()),
                size: text.len() as u64,
                mode: 0o644,
                modified: SystemTime::now(),
            }),
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Zip supports the years 1980 to 2107; other times become its earliest.
fn zip_time(time: SystemTime) -> DateTime {
    let since = Duration::from_secs(seconds(time).min(YEAR_9999));
    let text = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since).to_string();
    let part = |from, to| text.get(from..to).and_then(|part| part.parse().ok()).unwrap_or(0_u16);
    let small = |from| part(from, from + 2) as u8;
    let date = (part(0, 4), small(5), small(8));
    DateTime::from_date_and_time(date.0, date.1, date.2, small(11), small(14), small(17))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_the_range_of_zip_become_its_earliest() {
        let at = |seconds| zip_time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let date = |time: DateTime| (time.year(), time.month(), time.day(), time.hour());
        assert_eq!(date(at(1_735_693_200)), (2025, 1, 1, 1));
        assert_eq!(date(at(0)), (1980, 1, 1, 0));
        assert_eq!(date(at(u64::from(u32::MAX) * 100)), (1980, 1, 1, 0));
        assert_eq!(
            date(zip_time(SystemTime::UNIX_EPOCH - Duration::from_secs(9))),
            (1980, 1, 1, 0)
        );
    }
}
