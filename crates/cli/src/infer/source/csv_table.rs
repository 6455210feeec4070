//! CSV and TSV with a header: a row becomes a JSON object of its cells by column name. Positions are
//! byte offsets. A row with too few or too many cells fails alone, and so does one that is too long. A
//! quote that is never closed ends the job, since it would make one row of all that follow.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use csv::{ByteRecord, Position, Reader, ReaderBuilder};
use serde_json::{Map, Value};

use super::csv_scan::{CsvScan, open_quote};
use crate::failure::Failure;
use crate::flags::infer::InputFormat;
use crate::infer::row::{InputRow, ROW_BYTES_MAX, RowContent, RowSource, StartPosition};

/// A reader of a table.
pub struct CsvTable {
    reader: Reader<RowLimit>,
    delimiter: u8,
    /// Bytes of the file.
    size: u64,
    columns: Vec<String>,
    record: ByteRecord,
    numbers: bool,
    number: u64,
    /// Whether the last record was too long, and is not in `record`.
    too_long: bool,
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
        let size = file.metadata().map_err(|error| Failure::file("read", path, &error))?.len();
        let limited = RowLimit { file, bytes: 0, limit: ROW_BYTES_MAX };
        let mut reader =
            ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(limited);
        let header = reader.byte_headers().map_err(|error| unreadable(&error))?.clone();
        let columns = header.iter().map(|cell| String::from_utf8_lossy(cell).into_owned());
        let columns: Vec<String> = columns.collect();
        if columns.iter().all(String::is_empty) {
            return Err(Failure::usage("the table has no header")
                .hint("its first line must name the columns"));
        }
        let too_long = false;
        let record = ByteRecord::new();
        let mut table =
            Self { reader, delimiter, size, columns, record, numbers, number: 0, too_long };
        table.check_last(0)?;
        if start.position > 0 {
            let mut position = Position::new();
            position.set_byte(start.position).set_record(start.rows + 1);
            table.reader.seek(position).map_err(|error| unreadable(&error))?;
        }
        table.reader.get_mut().bytes = 0;
        table.number = start.rows;
        Ok(table)
    }

    /// Where the next record begins.
    pub fn position(&self) -> u64 {
        self.reader.position().byte()
    }

    /// Reads over a record; false after the last.
    pub fn skip(&mut self) -> Result<bool, Failure> {
        let from = self.position();
        let read = self.reader.read_byte_record(&mut self.record);
        self.too_long = self.reader.get_ref().is_over();
        let found = if self.too_long {
            self.pass_over(from)?;
            true
        } else {
            read.map_err(|error| unreadable(&error))?
        };
        if found {
            self.check_last(from)?;
            self.reader.get_mut().bytes = 0;
            self.number += 1;
        }
        Ok(found)
    }

    /// Whether the last record was too long to be read.
    pub fn is_too_long(&self) -> bool {
        self.too_long
    }

    /// Moves behind a record that is too long for memory.
    fn pass_over(&mut self, from: u64) -> Result<(), Failure> {
        let end = self.scan(from)?;
        let mut position = Position::new();
        position.set_byte(end).set_record(self.number + 2);
        self.reader.seek(position).map_err(|error| unreadable(&error))
    }

    /// Only the last record can have an open quote: it swallows everything up to the end of the file.
    fn check_last(&mut self, from: u64) -> Result<(), Failure> {
        if self.position() < self.size || self.too_long {
            return Ok(());
        }
        self.scan(from)?;
        self.reader.get_mut().seek(SeekFrom::End(0)).map(drop).map_err(cannot_read)
    }

    /// Where a record ends, unless it has an open quote.
    fn scan(&mut self, from: u64) -> Result<u64, Failure> {
        let file = &mut self.reader.get_mut().file;
        let scan = CsvScan::run(file, from, self.delimiter).map_err(cannot_read)?;
        match scan.open_quote {
            None => Ok(scan.end),
            Some(at) => Err(open_quote(file, at).unwrap_or_else(cannot_read)),
        }
    }

    fn content(&self) -> RowContent {
        let invalid = |reason| {
            let cells: Vec<_> = self.record.iter().map(String::from_utf8_lossy).collect();
            RowContent::invalid(cells.join(",").as_bytes(), reason)
        };
        if self.too_long {
            let limit = self.reader.get_ref().limit;
            return RowContent::too_long(b"", limit);
        }
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
    fn read_numbers(&mut self) {
        self.numbers = true;
    }

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

fn cannot_read(error: io::Error) -> Failure {
    Failure::failed(format!("cannot read the table: {error}"))
}

/// Limits the bytes that are read for one row. Without it the parser would read a whole file into
/// memory after a quote that is never closed.
struct RowLimit {
    file: File,
    /// Bytes read since the last row.
    bytes: u64,
    /// The most of them.
    limit: u64,
}

impl RowLimit {
    fn is_over(&self) -> bool {
        self.bytes > self.limit
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

    #[test]
    fn a_row_that_is_too_long_fails_alone() {
        let long = "x\n\"\"".repeat(20_000);
        let text = format!("a\n1\n\n\"{long}\"\r\n3\n{}\n5\n", "y".repeat(90_000));
        let mut file = tempfile::NamedTempFile::new().expect("file");
        file.write_all(text.as_bytes()).expect("writes");
        let read = |start| {
            let opened = CsvTable::open(file.path(), InputFormat::Csv, true, start);
            let mut table = opened.expect("opens");
            table.reader.get_mut().limit = 30_000;
            let mut found = Vec::new();
            while let Some(row) = table.next().expect("reads") {
                let read = row.content.request();
                let read = read.map(|(_, json)| String::from_utf8_lossy(&json).into_owned());
                found.push((row.number, row.next, read.unwrap_or_else(str::to_owned)));
            }
            found
        };
        let all = read(StartPosition::default());
        let text: Vec<&str> = all.iter().map(|(_, _, text)| text.as_str()).collect();
        let too_long = "the row is longer than 30000 bytes";
        assert_eq!(text, [r#"{"a":1}"#, too_long, r#"{"a":3}"#, too_long, r#"{"a":5}"#]);
        for (at, (number, next, _)) in all.iter().enumerate() {
            let rest = read(StartPosition { rows: number + 1, position: *next });
            assert_eq!(rest, all[at + 1..], "after row {number}");
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_is_named_by_its_line() {
        for (text, expected) in
            [("a,b\n1,2\n\n3,\"x\ny\",z\n5,6\n", 4), ("a,b\n1,2\n\"\"\"\n", 3), ("a,\"b\n1,2\n", 1)]
        {
            let text = text.replacen("y\",", "y", 1);
            let mut file = tempfile::NamedTempFile::new().expect("file");
            file.write_all(text.as_bytes()).expect("writes");
            let start = StartPosition::default();
            let failure = CsvTable::open(file.path(), InputFormat::Csv, false, start)
                .and_then(|mut table| {
                    while table.next()?.is_some() {}
                    Ok(())
                })
                .expect_err("an open quote");
            let expected = format!("the quote that opens in line {expected} is never closed");
            assert!(failure.message.contains(&expected), "{text}: {}", failure.message);
        }
        assert_eq!(rows(b"a,b\n1,\"2\"", false, StartPosition::default()).len(), 1);
        assert_eq!(rows(b"a,b\n1,2\"x", false, StartPosition::default()).len(), 1);
    }
}
