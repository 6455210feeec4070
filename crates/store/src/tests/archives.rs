//! Archives to order, honest and otherwise. The names are written as they are given, because the
//! archivers themselves would refuse most of what the tests need.

use std::io::{Cursor, Write};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use tar::{EntryType, Header};
use zip::{ZipWriter, write::SimpleFileOptions};

/// A manifest for a model of this name.
pub(super) fn manifest(name: &str) -> String {
    json!({"model": {"modelName": name, "handler": "handler.py"}}).to_string()
}

/// The members of a small honest model, below `prefix`.
pub(super) fn model(name: &str, prefix: &str) -> Vec<(String, String)> {
    vec![
        (format!("{prefix}MAR-INF/MANIFEST.json"), manifest(name)),
        (format!("{prefix}handler.py"), "def handle(data, context): return data".to_owned()),
        (format!("{prefix}data/words.txt"), "ride".repeat(100)),
    ]
}

/// A zip file of plain members.
pub(super) fn zip(members: &[(String, String)]) -> Vec<u8> {
    zip_with(|writer, options| {
        for (name, content) in members {
            writer.start_file(name, options).unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
    })
}

/// A zip file of one member.
pub(super) fn zip_of(name: &str, content: &str) -> Vec<u8> {
    zip(&[(name.to_owned(), content.to_owned())])
}

/// A zip file that somebody else fills.
pub(super) fn zip_with(
    fill: impl FnOnce(&mut ZipWriter<Cursor<Vec<u8>>>, SimpleFileOptions),
) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    fill(&mut writer, SimpleFileOptions::default());
    writer.finish().unwrap().into_inner()
}

/// Changes every occurrence of `from` in an archive, such as a name, to as many other bytes.
pub(super) fn patched(mut archive: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    for at in 0..=archive.len() - from.len() {
        if archive[at..].starts_with(from) {
            archive[at..at + to.len()].copy_from_slice(to);
        }
    }
    archive
}

/// A member of a tar archive.
pub(super) struct Member<'a> {
    pub(super) kind: EntryType,
    pub(super) name: &'a str,
    /// Where a link leads.
    pub(super) target: &'a str,
    pub(super) content: &'a [u8],
    pub(super) mode: u32,
}

impl<'a> Member<'a> {
    pub(super) fn file(name: &'a str, content: &'a str) -> Self {
        let kind = EntryType::Regular;
        Self { kind, name, target: "", content: content.as_bytes(), mode: 0o600 }
    }

    pub(super) fn of(kind: EntryType, name: &'a str, target: &'a str) -> Self {
        Self { kind, name, target, content: b"", mode: 0o777 }
    }

    fn write(&self, archive: &mut Vec<u8>) {
        let mut header = Header::new_gnu();
        header.set_entry_type(self.kind);
        header.set_size(self.content.len() as u64);
        header.set_mode(self.mode);
        let fields = header.as_gnu_mut().unwrap();
        fields.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        fields.linkname[..self.target.len()].copy_from_slice(self.target.as_bytes());
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(self.content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
}

/// A tar archive, not compressed.
pub(super) fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut archive = Vec::new();
    members.iter().for_each(|member| member.write(&mut archive));
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// A compressed tar archive of a model, as `tgz` is made.
pub(super) fn tgz_of(members: &[(String, String)]) -> Vec<u8> {
    let members = members.iter().map(|(name, content)| Member::file(name, content));
    gz(&tar(&members.collect::<Vec<_>>()))
}

/// Anything, compressed.
pub(super) fn gz(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
