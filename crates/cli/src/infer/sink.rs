//! Where results go. Rows come in the order of the input, each exactly once.

use std::io::{self, Write as _};

use super::journal::JobProgress;
use super::layout::OutputLayout;
use super::result::RowResult;
use super::row::InputRow;
use crate::failure::Failure;
use crate::python::PythonHelper;

/// Bytes that are buffered before they are written.
const BUFFER: usize = 1 << 16;

/// Writes results.
pub trait RowSink {
    /// How much is written, by this run and those before it.
    fn progress(&self) -> JobProgress;

    /// Writes the next row.
    fn write(&mut self, row: &InputRow, result: &RowResult) -> Result<(), Failure>;

    /// Called when no other row is ready; a sink that someone watches shows its rows.
    fn idle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Makes everything written so far durable.
    fn commit(&mut self) -> Result<(), Failure>;

    /// Called when the job could not start. Removes its files, unless an earlier run wrote rows.
    fn discard(&self) {}

    /// Called when every row is written; gives the output its name.
    fn finish(&mut self, python: &PythonHelper) -> Result<(), Failure>;
}

/// JSON lines on stdout, answered and failed rows together, for pipes and for Python's iterator. No
/// progress is stored, so such a job cannot be resumed.
pub struct StdoutSink {
    layout: OutputLayout,
    buffer: Vec<u8>,
    progress: JobProgress,
}

impl StdoutSink {
    /// A sink without rows.
    pub fn new(layout: OutputLayout) -> Self {
        Self { layout, buffer: Vec::with_capacity(BUFFER), progress: JobProgress::default() }
    }
}

impl RowSink for StdoutSink {
    fn progress(&self) -> JobProgress {
        self.progress
    }

    fn write(&mut self, row: &InputRow, result: &RowResult) -> Result<(), Failure> {
        let first = self.progress.rows == 0;
        self.progress.count(row, result);
        match result {
            RowResult::Answered(json) => {
                self.layout.answered(&mut self.buffer, row, json, first).map_err(unwritable)?;
            }
            RowResult::Failed(error) => self.layout.failed_inline(&mut self.buffer, row, error),
        }
        if self.buffer.len() >= BUFFER { self.idle() } else { Ok(()) }
    }

    fn idle(&mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&self.buffer).and_then(|()| stdout.flush()).map_err(unwritable)?;
        self.buffer.clear();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.idle()
    }

    fn finish(&mut self, _: &PythonHelper) -> Result<(), Failure> {
        self.idle()
    }
}

fn unwritable(error: io::Error) -> Failure {
    Failure::failed(format!("cannot write to stdout: {error}"))
}
