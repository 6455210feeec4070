//! `jitney infer MODEL INPUT -o OUTPUT`: runs a model over a file or a folder without a server. Rows go
//! through the same engine, batches and workers as requests; the output is in the order of the
//! input, and a job that was ended in any way can be resumed.

mod backend;
mod folder_job;
mod identity;
mod job;
mod journal;
mod layout;
mod progress;
mod ray_command;
mod read_ahead;
mod row;
mod sink;
mod source;

use std::path::Path;

use crate::env::Env;
use crate::failure::{self, Failure, cannot};
use crate::flags::infer::{InferFlags, InputFormat};
use crate::python::PythonHelper;
use crate::{console, run};
use backend::StartedBackend;
use identity::JobIdentity;
use job::{InferJob, JobEnd};
use layout::OutputLayout;
use progress::ProgressDisplay;
use read_ahead::ReadAhead;
use sink::{FileSink, RowSink, StdoutSink};

/// The last line of a job that answered nothing; `jitney.infer` knows it by these words.
const EVERY_ROW_FAILED: &str = "error: every row failed";

/// The exit code of an interrupted job, as of a shell.
const INTERRUPTED: u8 = 130;

/// Runs the job and returns the exit code.
pub fn infer(flags: &InferFlags, env: &Env) -> Result<u8, Failure> {
    backend::check(flags)?;
    let python = PythonHelper::new(flags.python.clone(), env);
    if folder_job::is_folder_job(flags) {
        return folder_job::run(flags, &python);
    }
    if !flags.columns.is_empty() {
        return Err(Failure::usage("--columns is for folders of Parquet files"));
    }
    let format = input_format(flags)?;
    let stdin = flags.input == Path::new("-");
    if stdin && !matches!(format, InputFormat::Jsonl | InputFormat::Images) {
        let message = "stdin can be JSON lines or, with --format images, file names";
        return Err(Failure::usage(message).hint("write the table to a file"));
    }
    if flags.ray.is_some() && stdin {
        return Err(Failure::usage(
            "--ray needs a file or folder that all nodes can read, not stdin",
        ));
    }
    let mut sink = open_sink(flags, format)?;
    if sink.progress().complete {
        sink.finish(&python)?;
        console::err(format!("{} is already complete", flags.output.display()));
        return Ok(0);
    }
    run::runtime("start")?.block_on(run_job(flags, format, env, sink, &python))
}

async fn run_job(
    flags: &InferFlags,
    format: InputFormat,
    env: &Env,
    sink: Box<dyn RowSink>,
    python: &PythonHelper,
) -> Result<u8, Failure> {
    let before = sink.progress();
    let start = before.start();
    let input = source::open(&flags.input, format, flags.numbers, start, python)
        .inspect_err(|_| sink.discard())?;
    if before.rows > 0 {
        console::err(format!("resuming after {} rows", before.rows));
    }
    let stop = run::stop_signal().map_err(cannot("listen for signals"))?;
    let mut stop = std::pin::pin!(stop);
    let started = tokio::select! {
        started = backend::start(flags, format, env, start, input.end, python) => started,
        () = &mut stop => return Ok(INTERRUPTED),
    };
    let StartedBackend { backend, in_flight, engine } = started.inspect_err(|_| sink.discard())?;
    let mut source = input.source;
    if backend.takes_tables() {
        source.read_numbers();
    }
    let mut job = InferJob {
        backend,
        rows: ReadAhead::start(source)?,
        sink,
        display: ProgressDisplay::new(before, input.end),
        in_flight,
        failed_max: flags.max_failed,
    };
    let ended = job.run(stop).await;
    job.display.clear();
    if let Some((engine, logs)) = engine {
        engine.end().await;
        logs.finish();
    }
    match ended? {
        JobEnd::Complete => {
            job.sink.finish(python)?;
            let progress = job.sink.progress();
            console::err(job.display.summary(progress));
            if progress.rows > 0 && progress.failed == progress.rows {
                console::err(EVERY_ROW_FAILED);
                return Ok(failure::FAILED);
            }
            Ok(0)
        }
        JobEnd::Interrupted => {
            let rows = job.sink.progress().rows;
            console::err(format!(
                "interrupted after {rows} rows; the same command resumes the job"
            ));
            Ok(INTERRUPTED)
        }
    }
}

fn open_sink(flags: &InferFlags, format: InputFormat) -> Result<Box<dyn RowSink>, Failure> {
    let stdout = flags.output == Path::new("-");
    let extension = extension(&flags.output);
    if !stdout && !["csv", "jsonl", "ndjson", "json", "parquet"].contains(&extension) {
        let output = flags.output.display();
        return Err(Failure::usage(format!(
            "{output}: the output must end in .jsonl, .csv or .parquet"
        )));
    }
    let from_table = matches!(format, InputFormat::Csv | InputFormat::Tsv);
    let csv = !stdout && extension == "csv";
    let layout = OutputLayout { csv, with_input: flags.with_input, from_table };
    if stdout {
        return Ok(Box::new(StdoutSink::new(layout)));
    }
    if flags.input == Path::new("-") {
        return Err(Failure::usage("a job that reads stdin cannot be resumed")
            .hint("write to stdout as well: -o -"));
    }
    let job = JobIdentity::of(flags, format)?;
    Ok(Box::new(FileSink::open(&flags.output, job, layout, flags.overwrite)?))
}

/// The format of the input: the flag, else what the name of the input tells.
fn input_format(flags: &InferFlags) -> Result<InputFormat, Failure> {
    let input = &flags.input;
    if let Some(format) = flags.format {
        return Ok(format);
    }
    if input == Path::new("-") {
        return Ok(InputFormat::Jsonl);
    }
    if input.is_dir() {
        return Ok(InputFormat::Images);
    }
    match extension(input).to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => Ok(InputFormat::Jsonl),
        "csv" => Ok(InputFormat::Csv),
        "tsv" => Ok(InputFormat::Tsv),
        "parquet" | "pq" => Ok(InputFormat::Parquet),
        _ if !input.exists() => {
            Err(Failure::usage(format!("{}: no such file or folder", input.display())))
        }
        _ => Err(Failure::usage(format!(
            "{}: cannot tell the format from the name",
            input.display()
        ))
        .hint("set --format to jsonl, csv, tsv, parquet or images")),
    }
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_derived_from_the_name() {
        let of = |input: &str| {
            input_format(&InferFlags { input: input.into(), ..InferFlags::default() }).ok()
        };
        assert_eq!(of("a.jsonl"), Some(InputFormat::Jsonl));
        assert_eq!(of("a.CSV"), Some(InputFormat::Csv));
        assert_eq!(of("-"), Some(InputFormat::Jsonl));
        assert_eq!(of("/"), Some(InputFormat::Images));
        assert_eq!(of("a.txt"), None);
    }
}
