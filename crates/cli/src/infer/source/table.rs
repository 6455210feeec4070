//! CSV with a header: a row becomes an object of its cells by column name. Positions are bytes.
//! A row with too few or too many cells fails alone.

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use csv::{ByteRecord, Position, Reader, ReaderBuilder};
use serde_json::{Map, Value};

use super::limit::{Limited, Meter};
use super::lines::too_long;
use super::{Source, Start, unreadable};
use crate::failure::Failure;
use crate::flags::infer::InputFormat;
use crate::infer::row::{Given, Row};

/// A reader of records.
pub struct Table {
    reader: Reader<Limited<File>>,
    columns: Vec<String>,
    record: ByteRecord,
    meter: Meter,
    numbers: bool,
    number: u64,
}

impl Table {
    /// Opens a file whose cells are separated as the format says.
    pub fn open(
        path: &Path,
        format: InputFormat,
        numbers: bool,
        start: Start,
    ) -> Result<Self, Failure> {
        let delimiter = if format == InputFormat::Tsv { b'\t' } else { b',' };
        Self::new(File::open(path).map_err(unreadable(path))?, delimiter, numbers, start)
    }

    /// Where the next record begins.
    pub fn position(&self) -> u64 {
        self.reader.position().byte()
    }

    /// Passes over a record; false after the last.
    pub fn skip(&mut self) -> Result<bool, Failure> {
        let read = self.reader.read_byte_record(&mut self.record);
        if self.meter.is_over() {
            return Err(too_long(self.number));
        }
        let is_there = read.map_err(|error| broken(&error))?;
        if is_there {
            self.meter.reset();
            self.number += 1;
        }
        Ok(is_there)
    }

    /// Reads the header, and goes on in the middle if it is to.
    pub fn new(file: File, delimiter: u8, numbers: bool, start: Start) -> Result<Self, Failure> {
        let meter = Meter::default();
        let limited = Limited::new(file, meter.clone());
        let mut reader =
            ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(limited);
        let header = reader.byte_headers().map_err(|error| broken(&error))?.clone();
        let columns = header.iter().map(|cell| String::from_utf8_lossy(cell).into_owned());
        let columns: Vec<String> = columns.collect();
        if columns.iter().all(String::is_empty) {
            return Err(Failure::usage("the table has no header")
                .hint("its first line must name the columns"));
        }
        if start.position > 0 {
            let mut position = Position::new();
            position.set_byte(start.position).set_record(start.rows + 1);
            reader.seek(position).map_err(|error| broken(&error))?;
        }
        meter.reset();
        let (record, number) = (ByteRecord::new(), start.rows);
        Ok(Self { reader, columns, record, meter, numbers, number })
    }

    fn given(&self) -> Given {
        let cells = || {
            let cells: Vec<_> = self.record.iter().map(String::from_utf8_lossy).collect();
            cells.join(",")
        };
        if self.record.len() != self.columns.len() {
            let (has, wants) = (self.record.len(), self.columns.len());
            return Given::broken(
                cells().as_bytes(),
                format!("the row has {has} cells, the header {wants}"),
            );
        }
        let mut object = Map::with_capacity(self.columns.len());
        for (name, cell) in self.columns.iter().zip(&self.record) {
            let Ok(text) = std::str::from_utf8(cell) else {
                let why = format!("column {name:?} is not UTF-8");
                return Given::broken(cells().as_bytes(), why);
            };
            object.insert(name.clone(), value(text, self.numbers));
        }
        Given::Json(Bytes::from(Value::Object(object).to_string()))
    }
}

impl Source for Table {
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        let number = self.number;
        if !self.skip()? {
            return Ok(None);
        }
        Ok(Some(Row { number, next: self.position(), given: self.given() }))
    }
}

/// A cell; with `numbers` what JSON would call a number is one, so that `007` stays text.
fn value(text: &str, numbers: bool) -> Value {
    let number = || serde_json::from_str::<serde_json::Number>(text).ok();
    let number = if numbers { number() } else { None };
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn broken(error: &csv::Error) -> Failure {
    Failure::failed(format!("the table cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn rows(text: &[u8], numbers: bool, start: Start) -> Vec<(u64, u64, String)> {
        let mut file = tempfile::tempfile().expect("file");
        file.write_all(text).expect("writes");
        file.rewind().expect("rewinds");
        let mut table = Table::new(file, b',', numbers, start).expect("opens");
        let mut found = Vec::new();
        while let Some(row) = table.next().expect("reads") {
            let said = match row.given {
                Given::Json(json) => String::from_utf8_lossy(&json).into_owned(),
                Given::Broken { why, .. } => why,
                Given::File { name, .. } => name,
            };
            found.push((row.number, row.next, said));
        }
        found
    }

    const TEXT: &[u8] = b"a,b\n1,\"x, \"\"y\"\"\nz\"\n007,2.5\n1\n\xff,1\n";

    #[test]
    fn records_become_objects_and_strange_ones_fail_alone() {
        let found = rows(TEXT, false, Start::default());
        let said: Vec<&str> = found.iter().map(|(_, _, said)| said.as_str()).collect();
        let expected = [
            r#"{"a":"1","b":"x, \"y\"\nz"}"#,
            r#"{"a":"007","b":"2.5"}"#,
            "the row has 1 cells, the header 2",
            "column \"a\" is not UTF-8",
        ];
        assert_eq!(said, expected);
        let found = rows(TEXT, true, Start::default());
        assert_eq!(found[1].2, r#"{"a":"007","b":2.5}"#);
    }

    #[test]
    fn every_row_is_a_place_to_go_on_from() {
        let all = rows(TEXT, false, Start::default());
        for (at, (number, next, _)) in all.iter().enumerate() {
            let rest = rows(TEXT, false, Start { rows: number + 1, position: *next });
            assert_eq!(rest, all[at + 1..], "after row {number}");
        }
    }
}
