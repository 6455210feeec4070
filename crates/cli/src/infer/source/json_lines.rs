//! JSON lines: every line that is not blank is a row. Positions are byte offsets.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Seek as _, SeekFrom};

use bytes::Bytes;

use crate::failure::Failure;
use crate::infer::row::{InputRow, ROW_BYTES_MAX, RowContent, RowSource, StartPosition};

/// A reader of JSON lines.
pub struct JsonLines<R> {
    reader: BufReader<R>,
    number: u64,
    position: u64,
}

impl JsonLines<File> {
    /// Reads a file from a position on.
    pub fn from_file(mut file: File, start: StartPosition) -> Result<Self, Failure> {
        file.seek(SeekFrom::Start(start.position)).map_err(unreadable)?;
        Ok(Self::new(BufReader::with_capacity(1 << 18, file), start))
    }
}

impl<R: Read> JsonLines<R> {
    /// Takes a reader that is already at the position.
    pub fn new(reader: BufReader<R>, start: StartPosition) -> Self {
        Self { reader, number: start.rows, position: start.position }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let most = ROW_BYTES_MAX + 1;
        let reader = self.reader.by_ref();
        let read = reader.take(most).read_until(b'\n', &mut line).map_err(unreadable)?;
        if read as u64 == most && line.last() != Some(&b'\n') {
            return Err(too_long(self.number));
        }
        self.position += read as u64;
        Ok((read > 0).then_some(line))
    }
}

impl<R: Read + Send> RowSource for JsonLines<R> {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        while let Some(mut line) = self.line()? {
            line.truncate(line.trim_ascii_end().len());
            // A byte order mark is not part of the first row.
            let begins = if line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
            if line[begins..].is_empty() {
                continue;
            }
            let number = self.number;
            self.number += 1;
            let content = RowContent::json(Bytes::from(line).slice(begins..));
            return Ok(Some(InputRow { number, next: self.position, content }));
        }
        Ok(None)
    }

    fn is_ready(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot read the input: {error}"))
}

/// The failure of a job with a row beyond the limit.
pub fn too_long(number: u64) -> Failure {
    let mebibytes = ROW_BYTES_MAX >> 20;
    Failure::failed(format!("row {number} of the input is longer than {mebibytes} MiB"))
        .hint("check that --format names the format of the input")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, start: StartPosition) -> Vec<(u64, u64, bool)> {
        let mut lines = JsonLines::new(BufReader::new(text.as_bytes()), start);
        let mut found = Vec::new();
        while let Some(row) = lines.next().expect("reads") {
            found.push((row.number, row.next, matches!(row.content, RowContent::Json(_))));
        }
        found
    }

    #[test]
    fn lines_are_rows_and_blank_ones_are_not() {
        let text = "\u{feff}1\n\n {\"a\":2}\r\nnonsense\n3";
        let expected = [(0, 5, true), (1, 16, true), (2, 25, false), (3, 26, true)];
        assert_eq!(rows(text, StartPosition::default()), expected);
    }

    #[test]
    fn reading_starts_at_a_position() {
        assert_eq!(
            rows("2\n3\n", StartPosition { rows: 7, position: 40 }),
            [(7, 42, true), (8, 44, true)]
        );
    }
}
