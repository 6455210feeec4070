//! JSON lines: every line that is not blank is a row. Positions are bytes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom};

use bytes::Bytes;

use super::{Source, Start};
use crate::failure::Failure;
use crate::infer::row::{Given, ROW_BYTES_MAX, Row};

/// A reader of lines.
pub struct Lines<R> {
    reader: R,
    number: u64,
    position: u64,
}

impl Lines<BufReader<File>> {
    /// Goes on in the middle of a file.
    pub fn from_file(mut file: File, start: Start) -> Result<Self, Failure> {
        file.seek(SeekFrom::Start(start.position)).map_err(broken)?;
        Ok(Self::new(BufReader::with_capacity(1 << 18, file), start))
    }
}

impl<R: BufRead> Lines<R> {
    /// The reader already stands at the start.
    pub fn new(reader: R, start: Start) -> Self {
        Self { reader, number: start.rows, position: start.position }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let most = ROW_BYTES_MAX + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut line).map_err(broken)?;
        if read as u64 == most && line.last() != Some(&b'\n') {
            return Err(too_long(self.number));
        }
        self.position += read as u64;
        Ok((read > 0).then_some(line))
    }
}

impl<R: BufRead + Send> Source for Lines<R>
where
    Self: AtHand,
{
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        while let Some(mut line) = self.line()? {
            line.truncate(line.trim_ascii_end().len());
            // A byte order mark is no part of the first row.
            let begins = if line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
            if line[begins..].is_empty() {
                continue;
            }
            let number = self.number;
            self.number += 1;
            let given = Given::json(Bytes::from(line).slice(begins..));
            return Ok(Some(Row { number, next: self.position, given }));
        }
        Ok(None)
    }

    fn at_hand(&self) -> bool {
        self.has_line()
    }
}

/// Whether a whole line has been read ahead.
pub trait AtHand {
    /// A look at the buffer.
    fn has_line(&self) -> bool;
}

impl<R: std::io::Read> AtHand for Lines<BufReader<R>> {
    fn has_line(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::failed(format!("the input broke off: {error}"))
}

/// What is said of a row without end.
pub fn too_long(number: u64) -> Failure {
    let mebibytes = ROW_BYTES_MAX >> 20;
    Failure::failed(format!("row {number} of the input is longer than {mebibytes} MiB"))
        .hint("is it the right format? --format says what the input is")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, start: Start) -> Vec<(u64, u64, bool)> {
        let mut lines = Lines::new(BufReader::new(text.as_bytes()), start);
        let mut found = Vec::new();
        while let Some(row) = lines.next().expect("reads") {
            found.push((row.number, row.next, matches!(row.given, Given::Json(_))));
        }
        found
    }

    #[test]
    fn lines_are_rows_and_blank_ones_are_not() {
        let text = "\u{feff}1\n\n {\"a\":2}\r\nnonsense\n3";
        let expected = [(0, 5, true), (1, 16, true), (2, 25, false), (3, 26, true)];
        assert_eq!(rows(text, Start::default()), expected);
    }

    #[test]
    fn they_go_on_where_they_ended() {
        assert_eq!(rows("2\n3\n", Start { rows: 7, position: 40 }), [(7, 42, true), (8, 44, true)]);
    }
}
