//! Finds the end of a record of a table without holding it, and a quote that is never closed.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use crate::failure::Failure;

/// What was found.
pub struct CsvScan {
    /// Where the next record begins, or the end of the file.
    pub end: u64,
    /// Where a quote opens that is never closed.
    pub open_quote: Option<u64>,
}

/// What the bytes so far mean for the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellState {
    /// A blank line, or the line break after a carriage return, is not a record.
    RecordStart,
    CellStart,
    Plain,
    Quoted {
        from: u64,
    },
    /// After a quote in a quoted cell: a second one stands for a quote, anything else ends the quoting.
    QuoteInQuoted {
        from: u64,
    },
}

impl CsvScan {
    /// Reads from a byte at which a record begins.
    pub fn run(file: &mut File, from: u64, delimiter: u8) -> io::Result<Self> {
        file.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let (mut state, mut end) = (CellState::RecordStart, from);
        loop {
            let bytes = reader.fill_buf()?;
            let length = bytes.len();
            if length == 0 {
                let open_quote = match state {
                    CellState::Quoted { from } => Some(from),
                    CellState::RecordStart
                    | CellState::CellStart
                    | CellState::Plain
                    | CellState::QuoteInQuoted { .. } => None,
                };
                return Ok(Self { end, open_quote });
            }
            for byte in bytes {
                let ended = state != CellState::RecordStart;
                state = state.after(*byte, delimiter, end);
                end += 1;
                if ended && state == CellState::RecordStart {
                    return Ok(Self { end, open_quote: None });
                }
            }
            reader.consume(length);
        }
    }
}

/// The failure of a table with an open quote.
pub fn open_quote(file: &mut File, at: u64) -> io::Result<Failure> {
    file.seek(SeekFrom::Start(0))?;
    let mut before = BufReader::with_capacity(1 << 16, file).take(at);
    let (mut line, mut length) = (1, usize::MAX);
    while length > 0 {
        let bytes = before.fill_buf()?;
        line += bytes.iter().filter(|byte| **byte == b'\n').count();
        length = bytes.len();
        before.consume(length);
    }
    let what =
        format!("cannot read the table: the quote that opens in line {line} is never closed");
    Ok(Failure::failed(what).hint("close it, or write a quote inside a cell twice"))
}

impl CellState {
    fn after(self, byte: u8, delimiter: u8, at: u64) -> Self {
        match (self, byte) {
            (Self::Quoted { from }, b'"') => Self::QuoteInQuoted { from },
            (Self::Quoted { from }, _) | (Self::QuoteInQuoted { from }, b'"') => {
                Self::Quoted { from }
            }
            (_, b'\n' | b'\r') => Self::RecordStart,
            (_, byte) if byte == delimiter => Self::CellStart,
            (Self::RecordStart | Self::CellStart, b'"') => Self::Quoted { from: at },
            (_, _) => Self::Plain,
        }
    }
}
