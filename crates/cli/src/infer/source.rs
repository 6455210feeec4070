//! Opens an input: one reader per format, each of which can start where an earlier run ended.

mod csv_scan;
mod csv_table;
mod folder;
mod json_lines;
mod parquet;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub use csv_table::CsvTable;
pub use folder::list_images;

use super::row::{RowSource, StartPosition};
use crate::failure::Failure;
use crate::flags::infer::InputFormat;
use crate::python::PythonHelper;
use folder::{FileNames, ImageFolder};
use json_lines::JsonLines;
use parquet::ParquetRows;

/// An open input.
pub struct OpenInput {
    /// The rows.
    pub source: Box<dyn RowSource>,
    /// Where they end, in the unit of `InputRow::next`, if that is known.
    pub end: Option<u64>,
}

/// Opens an input; `-` is stdin.
pub fn open(
    path: &Path,
    format: InputFormat,
    numbers: bool,
    start: StartPosition,
    python: &PythonHelper,
) -> Result<OpenInput, Failure> {
    if path == Path::new("-") {
        let stdin = BufReader::with_capacity(1 << 16, std::io::stdin());
        let source: Box<dyn RowSource> = if format == InputFormat::Images {
            Box::new(FileNames::new(stdin))
        } else {
            Box::new(JsonLines::new(stdin, start))
        };
        return Ok(OpenInput { source, end: None });
    }
    let unreadable = |error| Failure::file("read", path, &error);
    let size = || path.metadata().map(|metadata| metadata.len()).map_err(unreadable);
    let (source, end): (Box<dyn RowSource>, u64) = match format {
        InputFormat::Jsonl => {
            let file = File::open(path).map_err(unreadable)?;
            (Box::new(JsonLines::from_file(file, start)?), size()?)
        }
        InputFormat::Csv | InputFormat::Tsv => {
            (Box::new(CsvTable::open(path, format, numbers, start)?), size()?)
        }
        InputFormat::Parquet => {
            let rows = ParquetRows::open(path, start, python)?;
            let end = rows.end;
            (Box::new(rows), end)
        }
        InputFormat::Images => {
            let folder = ImageFolder::open(path, start)?;
            let end = folder.names.len() as u64;
            (Box::new(folder), end)
        }
    };
    Ok(OpenInput { source, end: Some(end) })
}
