//! JSON lines on stdout, answered and failed rows in one order, for pipes and for Python's iterator.
//! Nothing is remembered: who reads them is the memory.

use std::io::{self, Write as _};

use super::Count;
use crate::failure::Failure;
use crate::infer::answer::Outcome;
use crate::infer::record::Layout;
use crate::infer::row::Row;

/// Bytes that wait for company.
const BUFFER: usize = 1 << 16;

/// The lines.
pub struct Stdout {
    layout: Layout,
    buffer: Vec<u8>,
    /// What was written so far.
    pub count: Count,
}

impl Stdout {
    /// Nothing yet.
    pub fn new(layout: Layout) -> Self {
        Self { layout, buffer: Vec::with_capacity(BUFFER), count: Count::default() }
    }

    /// Writes a row.
    pub fn write(&mut self, row: &Row, outcome: &Outcome) -> Result<(), Failure> {
        self.count.rows += 1;
        match outcome {
            Outcome::Answered(json) => {
                let first = self.count.rows == 1;
                self.layout.answered(&mut self.buffer, row, json, first).map_err(gone)?;
            }
            Outcome::Failed(trouble) => {
                self.count.failed += 1;
                self.layout.failed_inline(&mut self.buffer, row, trouble);
            }
        }
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Sends everything on.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&self.buffer).and_then(|()| stdout.flush()).map_err(gone)?;
        self.buffer.clear();
        Ok(())
    }
}

fn gone(error: io::Error) -> Failure {
    Failure::failed(format!("cannot write to stdout: {error}"))
}
