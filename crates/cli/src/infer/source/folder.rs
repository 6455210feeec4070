//! A folder of images: every file with a known ending is a row, in the order of its path. The names
//! are held in memory, the images are not. Positions are rows.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Source, Start, unreadable};
use crate::failure::Failure;
use crate::infer::row::{Given, ROW_BYTES_MAX, Row};

/// Endings and what they say.
const KNOWN: [(&str, &str); 9] = [
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("png", "image/png"),
    ("gif", "image/gif"),
    ("bmp", "image/bmp"),
    ("webp", "image/webp"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ppm", "image/x-portable-pixmap"),
];

/// Bytes of a file's name on a line.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// Folders inside folders, at most.
const DEPTH_MAX: usize = 64;

/// A reader of files.
pub struct Folder {
    root: PathBuf,
    names: Vec<String>,
    at: usize,
}

impl Folder {
    /// Lists the files.
    pub fn open(root: &Path, start: Start) -> Result<Self, Failure> {
        let names = list(root)?;
        let at = usize::try_from(start.position).unwrap_or(usize::MAX);
        Ok(Self { root: root.to_owned(), names, at })
    }

    /// How many files there are.
    pub fn len(&self) -> u64 {
        self.names.len() as u64
    }
}

/// Files whose names come one per line.
pub struct Named<R> {
    names: BufReader<R>,
    number: u64,
}

impl<R: Read> Named<R> {
    /// Reads names until they end.
    pub fn new(names: BufReader<R>) -> Self {
        Self { names, number: 0 }
    }
}

impl<R: Read + Send> Source for Named<R> {
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        let mut name = String::new();
        let broken = |error| Failure::failed(format!("the names broke off: {error}"));
        let read = (&mut self.names).take(NAME_BYTES_MAX).read_line(&mut name).map_err(broken)?;
        if read == 0 {
            return Ok(None);
        }
        let (name, number) = (name.trim_end_matches(['\r', '\n']), self.number);
        self.number += 1;
        Ok(Some(Row { number, next: self.number, given: given(Path::new(""), name) }))
    }

    fn at_hand(&self) -> bool {
        self.names.buffer().contains(&b'\n')
    }
}

fn given(root: &Path, name: &str) -> Given {
    let path = root.join(name);
    let size = path.metadata().map_or(0, |data| data.len());
    if size > ROW_BYTES_MAX {
        let why = format!("the file is larger than {} MiB", ROW_BYTES_MAX >> 20);
        return Given::broken(name.as_bytes(), why);
    }
    match std::fs::read(path) {
        Ok(bytes) => Given::File {
            name: name.to_owned(),
            content_type: content_type(Path::new(name)).unwrap_or("application/octet-stream"),
            bytes: Bytes::from(bytes),
        },
        Err(error) => Given::broken(name.as_bytes(), format!("cannot read the file: {error}")),
    }
}

impl Source for Folder {
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        let Some(name) = self.names.get(self.at) else { return Ok(None) };
        let (number, given) = (self.at as u64, given(&self.root, name));
        self.at += 1;
        Ok(Some(Row { number, next: self.at as u64, given }))
    }
}

/// The names of the images below a folder, sorted.
pub fn list(root: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    collect(root, root, 0, &mut names)?;
    names.sort_unstable();
    Ok(names)
}

fn collect(
    root: &Path,
    folder: &Path,
    depth: usize,
    names: &mut Vec<String>,
) -> Result<(), Failure> {
    if depth > DEPTH_MAX {
        return Err(Failure::failed(format!("{} is too deep", folder.display())));
    }
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let entry = entry.map_err(unreadable(folder))?;
        let path = entry.path();
        // Links to folders are not followed: they may lead around in circles.
        if entry.file_type().map_err(unreadable(&path))?.is_dir() {
            collect(root, &path, depth + 1, names)?;
        } else if content_type(&path).is_some() {
            let name = path.strip_prefix(root).unwrap_or(&path);
            let name = name.to_str().ok_or_else(|| {
                Failure::failed(format!("the name of {} is not UTF-8", path.display()))
            })?;
            names.push(name.to_owned());
        }
    }
    Ok(())
}

fn content_type(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    KNOWN.iter().find(|(known, _)| *known == ending).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_lines_are_rows_too_and_a_file_that_is_missing_fails_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("a.png");
        std::fs::write(&file, "x").expect("file");
        let names = format!("{}\nnone.jpg\n", file.display());
        let mut named = Named::new(BufReader::new(names.as_bytes()));
        let row = named.next().expect("reads").expect("a row");
        assert!(matches!(row.given, Given::File { content_type: "image/png", .. }));
        let row = named.next().expect("reads").expect("a row");
        assert!(matches!(row.given, Given::Broken { .. }));
        assert!(named.next().expect("reads").is_none());
    }

    #[test]
    fn images_are_rows_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir(dir.path().join("sub")).expect("directory");
        for name in ["b.JPG", "a.png", "notes.txt", "sub/c.jpeg"] {
            std::fs::write(dir.path().join(name), name).expect("file");
        }
        let mut folder = Folder::open(dir.path(), Start { rows: 1, position: 1 }).expect("opens");
        assert_eq!(
            (folder.len(), folder.names.join(" ")),
            (3, "a.png b.JPG sub/c.jpeg".to_owned())
        );
        let row = folder.next().expect("reads").expect("a row");
        assert!(matches!(row.given, Given::File { content_type: "image/jpeg", .. }));
        assert_eq!((row.number, row.next), (1, 2));
    }
}
