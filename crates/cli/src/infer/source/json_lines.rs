//! JSON lines: every line that is not blank is a row. Positions are byte offsets. A line that is too long
//! is read over, and fails alone.

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
    /// The most bytes of a line.
    limit: u64,
}

/// A line of the input.
enum InputLine {
    Whole(Vec<u8>),
    /// The beginning of a line that is too long.
    TooLong(Vec<u8>),
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
        Self { reader, number: start.rows, position: start.position, limit: ROW_BYTES_MAX }
    }

    fn line(&mut self) -> Result<Option<InputLine>, Failure> {
        let mut line = Vec::new();
        let most = self.limit + 1;
        let reader = self.reader.by_ref();
        let read = reader.take(most).read_until(b'\n', &mut line).map_err(unreadable)?;
        self.position += read as u64;
        if read as u64 == most && line.last() != Some(&b'\n') {
            self.position += self.reader.skip_until(b'\n').map_err(unreadable)? as u64;
            return Ok(Some(InputLine::TooLong(line)));
        }
        Ok((read > 0).then_some(InputLine::Whole(line)))
    }
}

impl<R: Read + Send> RowSource for JsonLines<R> {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        while let Some(line) = self.line()? {
            let content = match line {
                InputLine::TooLong(begins) => RowContent::too_long(&begins, self.limit),
                InputLine::Whole(mut line) => {
                    line.truncate(line.trim_ascii_end().len());
                    // A byte order mark is not part of the first row.
                    let begins = if line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
                    if line[begins..].is_empty() {
                        continue;
                    }
                    RowContent::json(Bytes::from(line).slice(begins..))
                }
            };
            let number = self.number;
            self.number += 1;
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

    #[test]
    fn a_line_that_is_too_long_fails_alone() {
        let text = format!("1\n\"{}\"\n3\n[{}", "x".repeat(5000), "4, ".repeat(5000));
        let mut lines = JsonLines::new(BufReader::new(text.as_bytes()), StartPosition::default());
        lines.limit = 1000;
        let mut found = Vec::new();
        while let Some(row) = lines.next().expect("reads") {
            let reason = row.content.request().map_err(str::to_owned).map(drop);
            found.push((row.number, row.next, reason));
        }
        let too_long = || Err("the row is longer than 1000 bytes".to_owned());
        let end = text.len() as u64;
        let expected =
            [(0, 2, Ok(())), (1, 5005, too_long()), (2, 5007, Ok(())), (3, end, too_long())];
        assert_eq!(found, expected);
    }
}
