//! Where rows come from: one reader per format behind one trait. Each can begin in the middle, at
//! the place where an earlier run ended, and holds one row at a time; a folder also holds its names.

mod folder;
mod limit;
mod lines;
mod parquet;
mod table;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub use folder::{Folder, Named, list};
pub use lines::Lines;
pub use parquet::Parquet;
pub use table::Table;

use super::python::Helper;
use super::row::Row;
use crate::failure::Failure;
use crate::flags::infer::InputFormat;

/// Rows in order.
pub trait Source: Send {
    /// The next row; `None` after the last. A failure ends the job.
    fn next(&mut self) -> Result<Option<Row>, Failure>;

    /// Whether the next row is at hand, or would have to be waited for.
    fn at_hand(&self) -> bool {
        true
    }
}

/// Where to begin, as the journal remembers it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Rows that are done.
    pub rows: u64,
    /// Where the next one begins.
    pub position: u64,
}

/// A source, and how far it goes: `Row::next` of its last row, where that is known.
pub struct Opened {
    /// The rows.
    pub source: Box<dyn Source>,
    /// Where they end, in the unit of `Row::next`.
    pub end: Option<u64>,
}

/// Opens an input.
pub fn open(
    path: &Path,
    format: InputFormat,
    numbers: bool,
    start: Start,
    helper: &Helper,
) -> Result<Opened, Failure> {
    if path == Path::new("-") {
        let stdin = BufReader::with_capacity(1 << 16, std::io::stdin());
        let source: Box<dyn Source> = match format {
            InputFormat::Images => Box::new(Named::new(stdin)),
            InputFormat::Jsonl | InputFormat::Csv | InputFormat::Tsv | InputFormat::Parquet => {
                Box::new(Lines::new(stdin, start))
            }
        };
        return Ok(Opened { source, end: None });
    }
    let opened = match format {
        InputFormat::Jsonl => {
            let (file, size) = file(path)?;
            Opened { source: Box::new(Lines::from_file(file, start)?), end: Some(size) }
        }
        InputFormat::Csv | InputFormat::Tsv => {
            let (_, size) = file(path)?;
            let table = Table::open(path, format, numbers, start)?;
            Opened { source: Box::new(table), end: Some(size) }
        }
        InputFormat::Parquet => {
            let (parquet, rows) = Parquet::open(path, start, helper)?;
            Opened { source: Box::new(parquet), end: Some(rows) }
        }
        InputFormat::Images => {
            let folder = Folder::open(path, start)?;
            let end = Some(folder.len());
            Opened { source: Box::new(folder), end }
        }
    };
    Ok(opened)
}

fn file(path: &Path) -> Result<(File, u64), Failure> {
    let open = || {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    };
    open().map_err(unreadable(path))
}

/// What is said of an input that cannot be read.
pub fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> Failure + use<> {
    let path = path.display().to_string();
    move |error| Failure::failed(format!("cannot read {path}: {error}"))
}
