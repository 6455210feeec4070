//! CSV and TSV with a header: a row becomes a JSON object of its cells by column name. Positions are
//! byte offsets. A row with too few or too many cells fails alone.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use csv::{ByteRecord, Position, Reader, ReaderBuilder};
use serde_json::{Map, Value};

use super::json_lines::too_long;
use crate::failure::Failure;
use crate::flags::infer::InputFormat;
use crate::infer::row::{InputRow, ROW_BYTES_MAX, RowContent, RowSource, StartPosition};

/// A reader of a table.
pub struct CsvTable {
    reader: Reader<RowLimit>,
    columns: Vec<String>,
    record: ByteRecord,
    numbers: bool,
    number: u64,
}

impl CsvTable {
    /// Opens a file with the delimiter of its format, reads the header and moves to the start position.
    pub fn open(
        path: &Path,
        format: InputFormat,
        numbers: bool,
        start: StartPosition,
    ) -> Result<Self, Failure> {
        let delimiter = if format == InputFormat::Tsv { b'\t' } else { b',' };
        let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
        let limited = RowLimit { file, bytes: 0 };
        let mut reader =
            ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(limited);
        let header = reader.byte_headers().map_err(|error| unreadable(&error))?.clone();
        let columns = header.iter().map(|cell| String::from_utf8_lossy(cell).into_owned());
        let columns: Vec<String> = columns.collect();
        if columns.iter().all(String::is_empty) {
            return Err(Failure::usage("the table has no header")
                .hint("its first line must name the columns"));
        }
        if start.position > 0 {
            let mut position = Position::new();
            position.set_byte(start.position).set_record(start.rows + 1);
            reader.seek(position).map_err(|error| unreadable(&error))?;
        }
        reader.get_mut().bytes = 0;
        Ok(Self { reader, columns, record: ByteRecord::new(), numbers, number: start.rows })
    }

    /// Where the next record begins.
    pub fn position(&self) -> u64 {
        self.reader.position().byte()
    }

    /// Reads over a record; false after the last.
    pub fn skip(&mut self) -> Result<bool, Failure> {
        let read = self.reader.read_byte_record(&mut self.record);
        if self.reader.get_ref().is_over() {
            return Err(too_long(self.number));
        }
        let found = read.map_err(|error| unreadable(&error))?;
        if found {
            self.reader.get_mut().bytes = 0;
            self.number += 1;
        }
        Ok(found)
    }

    fn content(&self) -> RowContent {
        let invalid = |reason| {
            let cells: Vec<_> = self.record.iter().map(String::from_utf8_lossy).collect();
            RowContent::invalid(cells.join(",").as_bytes(), reason)
        };
        let (has, wants) = (self.record.len(), self.columns.len());
        if has != wants {
            return invalid(format!("the row has {has} cells, but the header has {wants}"));
        }
        let mut object = Map::with_capacity(self.columns.len());
        for (name, cell) in self.columns.iter().zip(&self.record) {
            let Ok(text) = std::str::from_utf8(cell) else {
                return invalid(format!("column {name:?} is not UTF-8"));
            };
            object.insert(name.clone(), value(text, self.numbers));
        }
        RowContent::Json(Bytes::from(Value::Object(object).to_string()))
    }
}

impl RowSource for CsvTable {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        let number = self.number;
        if !self.skip()? {
            return Ok(None);
        }
        Ok(Some(InputRow { number, next: self.position(), content: self.content() }))
    }
}

/// The value of a cell; with `numbers` a cell that is a JSON number becomes one, so `007` stays text.
fn value(text: &str, numbers: bool) -> Value {
    let number = || serde_json::from_str::<serde_json::Number>(text).ok();
    let number = if numbers { number() } else { None };
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn unreadable(error: &csv::Error) -> Failure {
    Failure::failed(format!("cannot read the table: {error}"))
}

/// Limits the bytes that are read for one row. Without it the parser would read a whole file into
/// memory after a quote that is never closed.
struct RowLimit {
    file: File,
    /// Bytes read since the last row.
    bytes: u64,
}

impl RowLimit {
    fn is_over(&self) -> bool {
        self.bytes > ROW_BYTES_MAX
    }
}

impl Read for RowLimit {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_over() {
            return Err(io::Error::other("a row is too long"));
        }
        let read = self.file.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl Seek for RowLimit {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn rows(input: &[u8], numbers: bool, start: StartPosition) -> Vec<(u64, u64, String)> {
        let mut file = tempfile::NamedTempFile::new().expect("file");
        file.write_all(input).expect("writes");
        let table = CsvTable::open(file.path(), InputFormat::Csv, numbers, start);
        let mut table = table.expect("opens");
        let mut found = Vec::new();
        while let Some(row) = table.next().expect("reads") {
            let text = match row.content {
                RowContent::Json(json) => String::from_utf8_lossy(&json).into_owned(),
                RowContent::Invalid { reason, .. } => reason,
                RowContent::File { name, .. } => name,
            };
            found.push((row.number, row.next, text));
        }
        found
    }

    const TEXT: &[u8] = b"a,b\n1,\"x, \"\"y\"\"\nz\"\n007,2.5\n1\n\xff,1\n";

    #[test]
    fn records_become_objects_and_invalid_ones_fail_alone() {
        let found = rows(TEXT, false, StartPosition::default());
        let text: Vec<&str> = found.iter().map(|(_, _, text)| text.as_str()).collect();
        let expected = [
            r#"{"a":"1","b":"x, \"y\"\nz"}"#,
            r#"{"a":"007","b":"2.5"}"#,
            "the row has 1 cells, but the header has 2",
            "column \"a\" is not UTF-8",
        ];
        assert_eq!(text, expected);
        let found = rows(TEXT, true, StartPosition::default());
        assert_eq!(found[1].2, r#"{"a":"007","b":2.5}"#);
    }

    #[test]
    fn reading_can_start_after_any_row() {
        let all = rows(TEXT, false, StartPosition::default());
        for (at, (number, next, _)) in all.iter().enumerate() {
            let rest = rows(TEXT, false, StartPosition { rows: number + 1, position: *next });
            assert_eq!(rest, all[at + 1..], "after row {number}");
        }
    }
}
