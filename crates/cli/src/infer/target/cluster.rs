//! A Ray Data job that answers every row of the input in order. The job reads the input by itself; here
//! its outcomes are only matched with the rows, so that journal, side file and formats stay the same.

use std::process::Stdio;
use std::sync::Arc;

use clap::ValueEnum as _;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use crate::failure::Failure;
use crate::flags::infer::InferFlags;
use crate::infer::answer::{Outcome, Trouble};
use crate::infer::parts::Whole;
use crate::infer::python::Helper;
use crate::infer::row::{Given, Row};

/// The job's outcomes. Its process ends with the last clone.
#[derive(Clone)]
pub struct Cluster(Arc<Mutex<Stream>>);

struct Stream {
    lines: Lines<BufReader<ChildStdout>>,
    /// The row whose outcome is next.
    next: u64,
    /// Killed when nobody needs it any more.
    _child: Child,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    status: u16,
}

impl Cluster {
    /// Starts the job behind the rows that are done.
    pub fn start(
        flags: &InferFlags,
        address: &str,
        whole: &Whole<'_>,
        helper: &Helper,
    ) -> Result<Self, Failure> {
        let parts = whole.parts()?;
        let cannot = |error: std::io::Error| Failure::failed(format!("cannot start Ray: {error}"));
        let mut command = helper.command("jitney.infer_ray")?;
        let program = std::env::current_exe().map_err(cannot)?;
        let directory = std::env::current_dir().map_err(cannot)?;
        let model = std::path::Path::new(&flags.model);
        let model = if model.exists() { directory.join(model) } else { model.to_owned() };
        command.arg(model).arg(directory.join(&flags.input));
        command.arg("--program").arg(program).arg("--directory").arg(&directory);
        let format = whole.format.to_possible_value();
        command.args(["--format", format.as_ref().map_or("", |format| format.get_name())]);
        command.args(["--actors", &whole.actors.to_string()]);
        command.args(flags.numbers.then_some("--numbers"));
        if !address.is_empty() {
            command.args(["--address", address]);
        }
        if let Some(size) = flags.batch_size {
            command.args(["--batch-size", &size.to_string()]);
        }
        if let Some(endpoint) = &flags.endpoint {
            command.args(["--endpoint", endpoint]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().map_err(cannot)?;
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(tell(stdin, parts));
        }
        let stdout = child.stdout.take().ok_or_else(|| cannot(std::io::Error::other("no pipe")))?;
        let lines = BufReader::with_capacity(1 << 18, stdout).lines();
        let next = whole.start.rows;
        Ok(Self(Arc::new(Mutex::new(Stream { lines, next, _child: child }))))
    }

    /// The outcome of one row. Rows ask in their order, and the lock is given in the order of asking.
    pub async fn ask(self, row: Row) -> Result<Outcome, Failure> {
        let mut stream = self.0.lock().await;
        if row.number != stream.next {
            return Err(Failure::failed("outcomes are out of order; this is a mistake in jitney"));
        }
        stream.next += 1;
        let line = stream.lines.next_line().await;
        let ended = || Failure::failed("the Ray job ended early").hint("its words are above");
        let line = line.ok().flatten().ok_or_else(ended)?;
        match row.given {
            Given::Broken { why, .. } => Ok(Outcome::bad_input(&why)),
            Given::Json(_) | Given::File { .. } => outcome(&line),
        }
    }
}

/// Tells the job its parts, one per line. A job that ends meanwhile says by itself why.
async fn tell(mut stdin: ChildStdin, parts: Vec<Value>) {
    for part in parts {
        if stdin.write_all(format!("{part}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn outcome(line: &str) -> Result<Outcome, Failure> {
    let read: Line<'_> = serde_json::from_str(line)
        .map_err(|error| Failure::failed(format!("the Ray job said something strange: {error}")))?;
    Ok(match read.output {
        Some(output) => Outcome::Answered(output.get().to_owned()),
        None => Outcome::Failed(Trouble { status: read.status, message: read.error }),
    })
}
