//! Parquet, read by pyarrow in a short-lived Python process that prints one JSON line per row. A
//! reader in Rust would need several dozen more crates. Positions are row numbers.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use super::json_lines::JsonLines;
use crate::failure::Failure;
use crate::infer::row::{InputRow, RowSource, StartPosition};
use crate::python::PythonHelper;

/// The rows that the Python process prints; dropping this value ends the process.
pub struct ParquetRows {
    lines: JsonLines<ChildStdout>,
    child: Child,
    next: u64,
    /// The number of rows.
    pub end: u64,
}

impl ParquetRows {
    /// Starts the process, whose first line is the number of rows.
    pub fn open(path: &Path, start: StartPosition, python: &PythonHelper) -> Result<Self, Failure> {
        let mut command = python.command("jitney.offline.parquet")?;
        command.arg("read").arg(path).arg("--skip").arg(start.position.to_string());
        let cannot = |error| Failure::file("read", path, &error);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let stdout = child.stdout.take().ok_or_else(|| cannot(std::io::Error::other("no pipe")))?;
        let mut reader = BufReader::with_capacity(1 << 18, stdout);
        let mut head = String::new();
        reader.read_line(&mut head).map_err(cannot)?;
        let Ok(end) = head.trim().parse() else {
            let _ = child.wait();
            // The process has printed the reason on stderr.
            return Err(Failure::failed(format!("cannot read {}", path.display())));
        };
        let lines = JsonLines::new(reader, start);
        Ok(Self { lines, child, next: start.position, end })
    }
}

impl RowSource for ParquetRows {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        match self.lines.next()? {
            Some(row) => {
                self.next += 1;
                Ok(Some(InputRow { next: self.next, ..row }))
            }
            None if self.next == self.end => Ok(None),
            None => Err(Failure::failed(format!(
                "the Parquet reader stopped after {} of {} rows",
                self.next, self.end
            ))),
        }
    }
}

impl Drop for ParquetRows {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
