//! Where rows go: files that survive anything, or stdout. Rows come in the order of the input and
//! each exactly once; what was written after the last journal is cut off again by the next run.

mod files;
mod stdout;

pub use files::Files;
pub use stdout::Stdout;

use super::answer::Outcome;
use super::python::Helper;
use super::row::Row;
use super::source::Start;
use crate::failure::Failure;

/// What was written so far, of this run and those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Rows.
    pub rows: u64,
    /// How many of them failed.
    pub failed: u64,
}

/// A sink.
pub enum Sink {
    /// An output, a side file and a journal.
    Files(Box<Files>),
    /// Lines for the next program.
    Stdout(Stdout),
}

impl Sink {
    /// Where the input has to begin.
    pub fn start(&self) -> Start {
        match self {
            Self::Files(files) => files.start(),
            Self::Stdout(_) => Start::default(),
        }
    }

    /// What was written so far.
    pub fn count(&self) -> Count {
        match self {
            Self::Files(files) => files.count(),
            Self::Stdout(stdout) => stdout.count,
        }
    }

    /// Writes the next row down.
    pub fn write(&mut self, row: &Row, outcome: &Outcome) -> Result<(), Failure> {
        match self {
            Self::Files(files) => files.write(row, outcome),
            Self::Stdout(stdout) => stdout.write(row, outcome),
        }
    }

    /// Nothing else is ready: whoever watches should see what there is.
    pub fn pause(&mut self) -> Result<(), Failure> {
        match self {
            Self::Files(_) => Ok(()),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }

    /// Makes what was written last, whatever comes.
    pub fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Files(files) => files.settle(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }

    /// The job could not even begin: nothing of it stays, unless an earlier run did begin.
    pub fn abandon(&self) {
        if let Self::Files(files) = self
            && files.count().rows == 0
        {
            files.remove();
        }
    }

    /// Every row is written: the output takes its name.
    pub fn finish(&mut self, helper: &Helper) -> Result<(), Failure> {
        match self {
            Self::Files(files) => files.finish(helper),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}
