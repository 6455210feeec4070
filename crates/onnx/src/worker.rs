//! An ONNX worker process: loads the file that the server names and runs its batches, one after another,
//! until the server hangs up. Whatever the model does, only this process suffers: memory is limited, and
//! a server that is gone takes it along.

use std::path::Path;
use std::thread;

use bytes::Bytes;
use jitney_engine::local::{WorkerEnd, WorkerLoad};
use jitney_engine::outcome::{BatchOutcome, ItemOutcome, ModelFailure};

use super::answer::ServedName;
use super::batch;
use super::engine::{ComputeThreads, EngineWorker};
use super::model::{OnnxModel, OnnxSession};
use super::wire;

/// Runs a worker that connects to `socket` with this token; the exit status of the process.
/// `memory_limit` holds unless the server sets another.
pub fn run_worker(socket: &Path, token: &str, memory_limit: u64) -> u8 {
    let ended =
        WorkerEnd::connect(socket, token).and_then(|(end, load)| serve(end, &load, memory_limit));
    // After an error the server is gone, and with it whoever would read more.
    ended.unwrap_or_default()
}

fn serve(mut end: WorkerEnd, load: &WorkerLoad, memory_limit: u64) -> std::io::Result<u8> {
    load.limit_memory(memory_limit)?;
    let session = match OnnxSession::open(&load.file, &load.options) {
        Ok(session) => session,
        Err(error) => {
            end.load_failed(&error.to_string())?;
            return Ok(1);
        }
    };
    end.loaded(&session.model.signature, &session.engine.to_string())?;
    let served = ServedName { name: load.model_name.clone(), version: load.model_version.clone() };
    thread::scope(|scope| {
        let mut threads = session.threads;
        while let Some(workers) = run_batches(&mut end, &session, &served, threads)? {
            threads = threads.among(workers);
            session.engine.want_threads(threads.count(), scope);
        }
        Ok(0)
    })
}

/// Runs batches with these threads until the server is done with this worker, or until so many workers serve that others
/// are wanted.
fn run_batches(
    end: &mut WorkerEnd,
    session: &OnnxSession,
    served: &ServedName,
    threads: ComputeThreads,
) -> std::io::Result<Option<u32>> {
    let count = threads.count();
    session.engine.in_worker(count, |worker| {
        loop {
            match end.run_batches(|items| run(&session.model, served, items, worker))? {
                Some(workers) if threads.among(workers).count() == count => {}
                told => return Ok(told),
            }
        }
    })
}

fn run(
    model: &OnnxModel,
    served: &ServedName,
    items: Vec<(Bytes, Bytes)>,
    worker: &mut EngineWorker<'_>,
) -> BatchOutcome {
    let requests = items.into_iter().map(|(meta, body)| wire::request(&meta, body));
    let Some(requests) = requests.collect::<Option<Vec<_>>>() else {
        return BatchOutcome::Failed(ModelFailure::raised("the request does not read as tensors"));
    };
    let inputs: Vec<_> = requests.iter().collect();
    match batch::run_tensors(model, served, &inputs, worker) {
        BatchOutcome::Items(items) => BatchOutcome::Items(items.into_iter().map(written).collect()),
        BatchOutcome::Failed(failure) => BatchOutcome::Failed(failure),
    }
}

/// Tensors travel as the body of their answer.
fn written(item: ItemOutcome) -> ItemOutcome {
    let mut output = item?;
    if let Some(tensors) = output.tensors.take() {
        output.body = wire::outputs(&tensors);
    }
    Ok(output)
}
