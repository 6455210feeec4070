//! A Ray Data job that answers every row of the input in order. The job reads the input by itself; this
//! process only matches its results with the rows, so that journal and output stay the same.

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
use crate::infer::parts::RayInput;
use crate::infer::result::{RowError, RowResult};
use crate::infer::row::InputRow;
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
        address: &str,
        input: &RayInput<'_>,
        python: &PythonHelper,
    ) -> Result<Self, Failure> {
        let parts = input.parts()?;
        let cannot = |error: std::io::Error| Failure::failed(format!("cannot start Ray: {error}"));
        let mut command = python.command("jitney.infer_ray")?;
        let program = std::env::current_exe().map_err(cannot)?;
        let directory = std::env::current_dir().map_err(cannot)?;
        let model = std::path::Path::new(&flags.model);
        let model = if model.exists() { directory.join(model) } else { model.to_owned() };
        command.arg(model).arg(directory.join(&flags.input));
        command.arg("--program").arg(program).arg("--directory").arg(&directory);
        let format = input.format.to_possible_value();
        command.args(["--format", format.as_ref().map_or("", |format| format.get_name())]);
        command.args(["--actors", &input.actors.to_string()]);
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
            tokio::spawn(send_parts(stdin, parts));
        }
        let stdout = child.stdout.take().ok_or_else(|| cannot(std::io::Error::other("no pipe")))?;
        let lines = BufReader::with_capacity(1 << 18, stdout).lines();
        let next = input.start.rows;
        Ok(Self(Arc::new(Mutex::new(RayOutput { lines, next, _child: child }))))
    }

    /// The result of one row. Tasks are started in the order of the rows, and the lock is fair.
    pub async fn infer(self, row: InputRow) -> Result<RowResult, Failure> {
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
