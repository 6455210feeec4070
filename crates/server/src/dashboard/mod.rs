//! The files of the dashboard, which are part of the program: `ui/dist` is checked in, so that building the
//! server needs nothing but cargo. A test compares the table with the directory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A file of the dashboard.
pub(crate) struct DashboardFile {
    name: &'static str,
    content: &'static [u8],
    /// Made when the file is first asked for.
    made: OnceLock<MadeParts>,
}

/// What is made of a file's content.
struct MadeParts {
    etag: String,
    gzip: Bytes,
}

macro_rules! files {
    ($(#[$doc:meta])* $table:ident: $($name:literal),* $(,)?) => {
        $(#[$doc])*
        static $table: [DashboardFile; [$($name),*].len()] = [$(DashboardFile {
            name: $name,
            content: include_bytes!(concat!("../../../../ui/dist/", $name)),
            made: OnceLock::new(),
        }),*];
    };
}

files! {
    /// All of them, as they lie in `ui/dist`.
    FILES: "index.html", "app.js", "app.css", "favicon.svg", "LICENSES.txt"
}

impl DashboardFile {
    /// The file of this name; the page itself has none.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        let name = if name.is_empty() { "index.html" } else { name };
        FILES.iter().find(|file| file.name == name)
    }

    pub(crate) fn content(&self) -> Bytes {
        Bytes::from_static(self.content)
    }

    /// The content as gzip.
    pub(crate) fn gzip(&self) -> Bytes {
        self.made().gzip.clone()
    }

    /// Changes with the content.
    pub(crate) fn etag(&self) -> &str {
        &self.made().etag
    }

    pub(crate) fn content_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("png") => "image/png",
            Some("txt") => "text/plain; charset=utf-8",
            Some("json") => "application/json",
            Some("woff2") => "font/woff2",
            _ => "application/octet-stream",
        }
    }

    fn made(&self) -> &MadeParts {
        self.made.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            self.content.hash(&mut hasher);
            MadeParts { etag: format!("W/\"{:016x}\"", hasher.finish()), gzip: gzip(self.content) }
        })
    }
}

fn gzip(content: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.map(Bytes::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_directory_is_in_the_table() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/dist");
        let entries = std::fs::read_dir(directory).unwrap();
        let names: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(FILES.iter().map(|file| file.name.to_owned()).collect::<BTreeSet<_>>(), names);
    }

    #[test]
    fn a_file_is_found_by_its_name_and_the_page_without_one() {
        let page = DashboardFile::find("").unwrap();
        assert_eq!((page.name, page.content_type()), ("index.html", "text/html; charset=utf-8"));
        assert!(page.etag().starts_with("W/\""));
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&page.gzip()[..]), &mut text)
            .unwrap();
        assert_eq!(text, page.content());
        assert!(DashboardFile::find("../Cargo.toml").is_none());
    }
}
