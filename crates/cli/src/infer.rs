//! `jitney infer MODEL INPUT -o OUTPUT`: the model over a file or a folder, without a server. Rows go
//! through the same engine, batches and workers as requests do; the output is in the order of the
//! input, and a job that was ended in any way goes on where it was.

mod answer;
mod identity;
mod job;
mod journal;
mod model;
mod parts;
mod progress;
mod python;
mod reader;
mod record;
mod row;
mod sink;
mod source;
mod target;

use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::infer::{InferFlags, InputFormat};
use crate::logs::Logs;
use identity::Identity;
use job::{Ended, Job};
use model::{Model, load};
use progress::Bar;
use python::Helper;
use reader::Rows;
use record::Layout;
use sink::{Files, Sink, Stdout};

/// What an interrupted job exits with, as shells report an interrupt.
const INTERRUPTED: u8 = 130;

/// Runs the job and returns the exit code.
pub fn main(flags: InferFlags, env: &Env) -> u8 {
    run(&flags, env).unwrap_or_else(|failure| {
        console::err(format!("error: {failure}"));
        failure.code
    })
}

fn run(flags: &InferFlags, env: &Env) -> Result<u8, Failure> {
    let format = format(flags)?;
    let stdin = flags.input == Path::new("-");
    if stdin && !matches!(format, InputFormat::Jsonl | InputFormat::Images) {
        return Err(Failure::usage(
            "stdin brings lines of JSON or, with --format images, names of files",
        )
        .hint("write the table to a file"));
    }
    if flags.ray.is_some() && stdin {
        return Err(Failure::usage(
            "--ray needs a file or folder that all nodes can read, not stdin",
        ));
    }
    let helper = Helper::new(flags.python.clone(), env);
    let mut sink = sink(flags, format)?;
    if let Sink::Files(files) = &mut sink
        && files.is_complete()
    {
        files.finish(&helper)?;
        console::err(format!("{} was complete already", flags.output.display()));
        return Ok(0);
    }
    let opened = source::open(&flags.input, format, flags.numbers, sink.start(), &helper)
        .inspect_err(|_| sink.abandon())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    runtime.block_on(carry_out(flags, env, opened, sink, &helper))
}

async fn carry_out(
    flags: &InferFlags,
    env: &Env,
    opened: source::Opened,
    sink: Sink,
    helper: &Helper,
) -> Result<u8, Failure> {
    let (start, count) = (sink.start(), sink.count());
    if count.rows > 0 {
        console::err(format!("going on after {} rows", count.rows));
    }
    let mut stop = std::pin::pin!(interruption()?);
    let loaded = tokio::select! {
        loaded = load(flags, env, start, opened.end, helper) => loaded.inspect_err(|_| sink.abandon())?,
        () = &mut stop => return Ok(INTERRUPTED),
    };
    let Model { target, offline, in_flight, logs } = loaded;
    let mut job = Job {
        target,
        rows: Rows::read(opened.source)?,
        sink,
        bar: Bar::new(start.position, opened.end, count.rows),
        in_flight,
        failed_max: flags.max_failed,
    };
    let ended = job.run(stop).await;
    job.bar.clear();
    if let Some(offline) = offline {
        offline.end().await;
    }
    logs.into_iter().for_each(Logs::finish);
    match ended? {
        Ended::Complete => {
            job.sink.finish(helper)?;
            console::err(job.bar.summary(job.sink.count()));
            Ok(0)
        }
        Ended::Interrupted => {
            let count = job.sink.count();
            console::err(format!(
                "interrupted after {} rows; the same command goes on",
                count.rows
            ));
            Ok(INTERRUPTED)
        }
    }
}

fn sink(flags: &InferFlags, format: InputFormat) -> Result<Sink, Failure> {
    let stdout = flags.output == Path::new("-");
    let ending = flags.output.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let csv = match ending {
        _ if stdout => false,
        "csv" => true,
        "jsonl" | "ndjson" | "json" | "parquet" => false,
        _ => {
            let output = flags.output.display();
            return Err(Failure::usage(format!(
                "{output}: the output must end in .jsonl, .csv or .parquet"
            )));
        }
    };
    let from_table = matches!(format, InputFormat::Csv | InputFormat::Tsv);
    let layout = Layout { csv, with_input: flags.with_input, from_table };
    if stdout {
        return Ok(Sink::Stdout(Stdout::new(layout)));
    }
    if flags.input == Path::new("-") {
        return Err(Failure::usage("stdin cannot be read again after an interruption")
            .hint("write to stdout as well: -o -"));
    }
    let job = Identity::of(flags, format)?;
    Files::open(&flags.output, job, layout, flags.overwrite)
        .map(|files| Sink::Files(Box::new(files)))
}

/// What the input is, by what was said or by its name.
fn format(flags: &InferFlags) -> Result<InputFormat, Failure> {
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
    let ending = input.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => Ok(InputFormat::Jsonl),
        "csv" => Ok(InputFormat::Csv),
        "tsv" => Ok(InputFormat::Tsv),
        "parquet" | "pq" => Ok(InputFormat::Parquet),
        _ => Err(Failure::usage(format!("{}: what is in it?", input.display()))
            .hint("--format says it: jsonl, csv, tsv, parquet or images")),
    }
}

/// Resolves when somebody asks the job to stop.
fn interruption() -> Result<impl Future<Output = ()>, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_is_known_by_its_name() {
        let of =
            |input: &str| format(&InferFlags { input: input.into(), ..InferFlags::default() }).ok();
        assert_eq!(of("a.jsonl"), Some(InputFormat::Jsonl));
        assert_eq!(of("a.CSV"), Some(InputFormat::Csv));
        assert_eq!(of("-"), Some(InputFormat::Jsonl));
        assert_eq!(of("/"), Some(InputFormat::Images));
        assert_eq!(of("a.txt"), None);
    }
}
