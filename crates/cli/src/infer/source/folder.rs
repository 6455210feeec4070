//! A folder of images: every file with a known extension is a row, in the order of its path. The names
//! are held in memory, the images are not. Positions are row numbers.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::failure::Failure;
use crate::infer::row::{InputRow, ROW_BYTES_MAX, RowContent, RowSource, StartPosition};

/// Extensions and their content types.
const CONTENT_TYPES: [(&str, &str); 9] = [
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

/// The most bytes of a file name on a line.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// The most folders inside each other.
const DEPTH_MAX: usize = 64;

/// The images below a folder.
pub struct ImageFolder {
    root: PathBuf,
    /// The files, sorted.
    pub names: Vec<String>,
    at: usize,
}

impl ImageFolder {
    /// Lists the files.
    pub fn open(root: &Path, start: StartPosition) -> Result<Self, Failure> {
        let names = list_images(root)?;
        let at = usize::try_from(start.position).unwrap_or(usize::MAX);
        Ok(Self { root: root.to_owned(), names, at })
    }
}

/// Files whose names are read from lines.
pub struct FileNames<R> {
    names: BufReader<R>,
    number: u64,
}

impl<R: Read> FileNames<R> {
    /// Reads names until they end.
    pub fn new(names: BufReader<R>) -> Self {
        Self { names, number: 0 }
    }
}

impl<R: Read + Send> RowSource for FileNames<R> {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        let mut name = String::new();
        let bytes = (&mut self.names).take(NAME_BYTES_MAX).read_line(&mut name);
        let broken = |error| Failure::failed(format!("cannot read the file names: {error}"));
        if bytes.map_err(broken)? == 0 {
            return Ok(None);
        }
        let (name, number) = (name.trim_end_matches(['\r', '\n']), self.number);
        self.number += 1;
        Ok(Some(InputRow { number, next: self.number, content: read(Path::new(""), name) }))
    }

    fn is_ready(&self) -> bool {
        self.names.buffer().contains(&b'\n')
    }
}

fn read(root: &Path, name: &str) -> RowContent {
    let path = root.join(name);
    let size = path.metadata().map_or(0, |data| data.len());
    if size > ROW_BYTES_MAX {
        let reason = format!("the file is larger than {} MiB", ROW_BYTES_MAX >> 20);
        return RowContent::invalid(name.as_bytes(), reason);
    }
    match std::fs::read(path) {
        Ok(bytes) => RowContent::File {
            name: name.to_owned(),
            content_type: content_type(Path::new(name)).unwrap_or("application/octet-stream"),
            bytes: Bytes::from(bytes),
        },
        Err(error) => {
            RowContent::invalid(name.as_bytes(), format!("cannot read the file: {error}"))
        }
    }
}

impl RowSource for ImageFolder {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        let Some(name) = self.names.get(self.at) else { return Ok(None) };
        let (number, content) = (self.at as u64, read(&self.root, name));
        self.at += 1;
        Ok(Some(InputRow { number, next: self.at as u64, content }))
    }
}

/// The names of the images below a folder, sorted.
pub fn list_images(root: &Path) -> Result<Vec<String>, Failure> {
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
        return Err(Failure::failed(format!("{} is nested too deeply", folder.display())));
    }
    let unreadable = |error| Failure::file("read", folder, &error);
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        // Links to folders are not followed: they could form a loop.
        if entry.file_type().map_err(unreadable)?.is_dir() {
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
    CONTENT_TYPES.iter().find(|(known, _)| *known == ending).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_rows_and_a_missing_file_fails_only_its_row() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("a.png");
        std::fs::write(&file, "x").expect("file");
        let names = format!("{}\nnone.jpg\n", file.display());
        let mut files = FileNames::new(BufReader::new(names.as_bytes()));
        let row = files.next().expect("reads").expect("a row");
        assert!(matches!(row.content, RowContent::File { content_type: "image/png", .. }));
        let row = files.next().expect("reads").expect("a row");
        assert!(matches!(row.content, RowContent::Invalid { .. }));
        assert!(files.next().expect("reads").is_none());
    }

    #[test]
    fn images_are_rows_in_the_order_of_their_paths() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir(dir.path().join("sub")).expect("directory");
        for name in ["b.JPG", "a.png", "notes.txt", "sub/c.jpeg"] {
            std::fs::write(dir.path().join(name), name).expect("file");
        }
        let mut folder =
            ImageFolder::open(dir.path(), StartPosition { rows: 1, position: 1 }).expect("opens");
        assert_eq!(
            (folder.names.len(), folder.names.join(" ")),
            (3, "a.png b.JPG sub/c.jpeg".to_owned())
        );
        let row = folder.next().expect("reads").expect("a row");
        assert!(matches!(row.content, RowContent::File { content_type: "image/jpeg", .. }));
        assert_eq!((row.number, row.next), (1, 2));
    }
}
