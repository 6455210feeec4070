//! A Ray Data job that answers every row of the input in order. The job reads the input by itself; this
//! process only matches its results with the rows, so that journal and output stay the same.
//!
//! The input is split into parts, so that each actor reads some of it by itself. Parts follow each other
//! without gaps, and every row belongs to exactly one. There are several parts per actor, so that all
//! actors finish at about the same time.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use clap::ValueEnum as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use crate::failure::Failure;
use crate::flags::infer::{InferFlags, InputFormat};
use crate::infer::ray_command::ray_command;
use crate::infer::row::{InputRow, RowError, RowResult, StartPosition};
use crate::infer::source::{CsvTable, list_images};
use crate::python::PythonHelper;

/// The results of the job. Its process ends with the last clone.
#[derive(Clone)]
pub struct RayJob(Arc<Mutex<RayOutput>>);

struct RayOutput {
    lines: Lines<BufReader<ChildStdout>>,
    /// The row whose result is next.
    next: u64,
    /// Killed when it is dropped.
    _child: Child,
}

#[derive(Deserialize)]
struct RayLine<'a> {
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    status: u16,
}

impl RayJob {
    /// Starts the job after the rows that are done.
    pub fn start(
        flags: &InferFlags,
        input: &RayInput<'_>,
        python: &PythonHelper,
    ) -> Result<Self, Failure> {
        let parts = input.parts()?;
        let cannot = |error: std::io::Error| Failure::failed(format!("cannot start Ray: {error}"));
        let mut command = ray_command(flags, "jitney.offline.infer_ray", python)?;
        command.arg(std::path::absolute(&flags.input).map_err(cannot)?);
        let format = input.format.to_possible_value();
        command.args(["--format", format.as_ref().map_or("", |format| format.get_name())]);
        command.args(["--actors", &input.actors.to_string()]);
        command.args(flags.numbers.then_some("--numbers"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().map_err(cannot)?;
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(send_parts(stdin, parts));
        }
        let stdout = child.stdout.take().ok_or_else(|| cannot(std::io::Error::other("no pipe")))?;
        let lines = BufReader::with_capacity(1 << 18, stdout).lines();
        let next = input.start.rows;
        Ok(Self(Arc::new(Mutex::new(RayOutput { lines, next, _child: child }))))
    }

    /// The result of one row. Tasks are started in the order of the rows, and the lock is fair.
    pub async fn infer(self, row: &InputRow) -> Result<RowResult, Failure> {
        let mut output = self.0.lock().await;
        if row.number != output.next {
            return Err(Failure::failed("results are out of order; this is a bug in jitney"));
        }
        output.next += 1;
        let line = output.lines.next_line().await;
        let ended = || Failure::failed("the Ray job ended early").hint("see the Ray output above");
        let line = line.ok().flatten().ok_or_else(ended)?;
        match row.content.request() {
            Err(reason) => Ok(RowResult::bad_input(reason)),
            Ok(_) => parse(&line),
        }
    }
}

/// Sends the parts to the job, one per line. A job that ends meanwhile prints the reason itself.
async fn send_parts(mut stdin: ChildStdin, parts: Vec<Value>) {
    for part in parts {
        if stdin.write_all(format!("{part}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn parse(line: &str) -> Result<RowResult, Failure> {
    let line: RayLine<'_> = serde_json::from_str(line)
        .map_err(|error| Failure::failed(format!("the Ray job sent invalid output: {error}")))?;
    Ok(match line.output {
        Some(output) => RowResult::Answered(output.get().to_owned()),
        None => RowResult::Failed(RowError { status: line.status, message: line.error }),
    })
}

/// Parts for each actor, if the input is large enough.
const PER_ACTOR: u64 = 8;

/// Fewest and most bytes of a part.
const BYTES: (u64, u64) = (4 << 10, 4 << 20);

/// Fewest and most rows of a part of a Parquet file.
const ROWS: (u64, u64) = (256, 16 << 10);

/// Fewest and most images of a part.
const IMAGES: (u64, u64) = (8, 512);

/// The input of a Ray job.
pub struct RayInput<'a> {
    /// The file or folder.
    pub input: &'a Path,
    /// Its format.
    pub format: InputFormat,
    /// Where an earlier run ended.
    pub start: StartPosition,
    /// Where the input ends, in the same unit.
    pub end: u64,
    /// The number of actors.
    pub actors: u32,
}

impl RayInput<'_> {
    /// The parts, each as a JSON object for `jitney.offline.infer_ray`.
    pub fn parts(&self) -> Result<Vec<Value>, Failure> {
        let begin = self.start.position;
        Ok(match self.format {
            InputFormat::Jsonl => {
                let part = |(from, to)| json!({"begin": from, "end": to, "first": from == begin});
                self.ranges(BYTES).map(part).collect()
            }
            InputFormat::Csv | InputFormat::Tsv => self.records()?,
            InputFormat::Parquet => self
                .ranges(ROWS)
                .map(|(from, to)| json!({"skip": from, "count": to - from}))
                .collect(),
            InputFormat::Images => {
                let names = list_images(self.input)?;
                let some = |(from, to): (u64, u64)| names.get(from as usize..to as usize);
                let named = self.ranges(IMAGES).filter_map(some);
                named.map(|names| json!({"names": names})).collect()
            }
        })
    }

    /// CSV records may hold line breaks, so the table is read once to find where its records begin.
    fn records(&self) -> Result<Vec<Value>, Failure> {
        let size = self.size(BYTES);
        let mut table = CsvTable::open(self.input, self.format, false, self.start)?;
        let part = |begin: u64, end: u64, rows: u64, too_long: bool| json!({"begin": begin, "end": end, "rows": rows, "too_long": too_long});
        let (mut parts, mut begin, mut rows) = (Vec::new(), table.position(), 0);
        let mut before = begin;
        while table.skip()? {
            if table.is_too_long() {
                // No actor needs to read it: the row fails here.
                parts.extend((rows > 0).then(|| part(begin, before, rows, false)));
                parts.push(part(before, table.position(), 1, true));
                (begin, before, rows) = (table.position(), table.position(), 0);
                continue;
            }
            before = table.position();
            rows += 1;
            if table.position() - begin >= size {
                parts.push(part(begin, table.position(), rows, false));
                (begin, rows) = (table.position(), 0);
            }
        }
        if rows > 0 {
            parts.push(part(begin, table.position(), rows, false));
        }
        Ok(parts)
    }

    fn ranges(&self, bounds: (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
        let (size, end) = (self.size(bounds), self.end);
        let starts =
            (self.start.position..end).step_by(usize::try_from(size).unwrap_or(usize::MAX));
        starts.map(move |from| (from, (from + size).min(end)))
    }

    fn size(&self, (least, most): (u64, u64)) -> u64 {
        let rest = self.end.saturating_sub(self.start.position);
        (rest / (PER_ACTOR * u64::from(self.actors.max(1)))).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(input: &Path, format: InputFormat, start: StartPosition, end: u64) -> Vec<Value> {
        RayInput { input, format, start, end, actors: 2 }.parts().expect("cuts")
    }

    #[test]
    fn ranges_follow_each_other_from_the_start_to_the_end() {
        let start = StartPosition { rows: 1, position: 10 };
        let found = parts(Path::new("x"), InputFormat::Jsonl, start, 9000);
        assert_eq!(found[0], json!({"begin": 10, "end": 4106, "first": true}));
        assert_eq!(found[2], json!({"begin": 8202, "end": 9000, "first": false}));
        let found = parts(
            Path::new("x"),
            InputFormat::Parquet,
            StartPosition { rows: 7, position: 7 },
            300,
        );
        assert_eq!(found, [json!({"skip": 7, "count": 256}), json!({"skip": 263, "count": 37})]);
        assert!(
            parts(Path::new("x"), InputFormat::Parquet, StartPosition::default(), 0).is_empty()
        );
    }

    #[test]
    fn a_table_is_cut_between_its_records() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("in.csv");
        let record = format!("\"a\n{}\",1\n", "x".repeat(3000));
        std::fs::write(&file, format!("text,number\n{}", record.repeat(3))).expect("file");
        let (head, one) = (12, record.len());
        let end = (head + 3 * one) as u64;
        let expected = [
            json!({"begin": head, "end": head + 2 * one, "rows": 2, "too_long": false}),
            json!({"begin": head + 2 * one, "end": end, "rows": 1, "too_long": false}),
        ];
        assert_eq!(parts(&file, InputFormat::Csv, StartPosition::default(), end), expected);
        let rest = StartPosition { rows: 2, position: (head + 2 * one) as u64 };
        assert_eq!(parts(&file, InputFormat::Csv, rest, end), expected[1..]);
    }

    #[test]
    fn images_are_named() {
        let dir = tempfile::tempdir().expect("directory");
        for name in ["b.png", "a.jpg", "notes.txt"] {
            std::fs::write(dir.path().join(name), "x").expect("file");
        }
        let start = StartPosition { rows: 1, position: 1 };
        assert_eq!(parts(dir.path(), InputFormat::Images, start, 2), [json!({"names": ["b.png"]})]);
    }
}
