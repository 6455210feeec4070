//! Parquet, read by pyarrow in a short-lived Python process that prints one JSON line per row. Rust's
//! own reader would bring several dozen crates for what Python users have installed anyway.
//! Positions are rows.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use super::lines::Lines;
use super::{Source, Start};
use crate::failure::Failure;
use crate::infer::python::Helper;
use crate::infer::row::Row;

/// Rows from another process; it ends with this value.
pub struct Parquet {
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
    next: u64,
    end: u64,
}

impl Parquet {
    /// Starts the reader and learns how many rows there are.
    pub fn open(path: &Path, start: Start, helper: &Helper) -> Result<(Self, u64), Failure> {
        let mut command = helper.command("jitney.parquet")?;
        command.arg("read").arg(path).arg("--skip").arg(start.position.to_string());
        let cannot = |error| Failure::failed(format!("cannot read {}: {error}", path.display()));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let stdout = child.stdout.take().ok_or_else(|| cannot(std::io::Error::other("no pipe")))?;
        let mut reader = BufReader::with_capacity(1 << 18, stdout);
        let mut head = String::new();
        reader.read_line(&mut head).map_err(cannot)?;
        let Ok(end) = head.trim().parse() else {
            let _ = child.wait();
            // Its own words are on stderr already.
            return Err(Failure::failed(format!("cannot read {}", path.display())));
        };
        let lines = Lines::new(reader, start);
        Ok((Self { lines, child, next: start.position, end }, end))
    }
}

impl Source for Parquet {
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        let Some(row) = self.lines.next()? else {
            let whole = self.next == self.end;
            let broken = || Failure::failed(format!("reading stopped after {} rows", self.next));
            return if whole { Ok(None) } else { Err(broken()) };
        };
        self.next += 1;
        Ok(Some(Row { next: self.next, ..row }))
    }
}

impl Drop for Parquet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
