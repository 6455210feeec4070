//! Models without Python: what the engine asks of them, and what it gives to those who run them.
//!
//! The engine knows no file format and no tensors. Whoever builds it hands in a [`LocalRuntime`]; the
//! requests of its models are decoded and checked before they wait, so that one that does not fit the
//! model is rejected alone and cannot spoil a batch. Batches run in processes of this very program, which
//! a model can end or fill without harm to others, or in threads, where that was asked for.

pub(crate) mod declared;
pub(crate) mod declared_model;
pub(crate) mod gpus;
pub(crate) mod process;
mod sequence_state;
mod signature;
pub(crate) mod thread;
pub(crate) mod worker;
mod worker_end;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

pub use self::signature::{Dim, Signature, TensorSpec};
pub use self::worker_end::{WorkerEnd, WorkerLoad};
use crate::call::{DecodedInput, Input, Output};
use crate::outcome::{BatchOutcome, ItemOutcome};

/// Makes a model of a file and its signature.
pub type DescribeModel = fn(&Path, Signature) -> Result<Arc<dyn LocalModel>, String>;

/// Loads models of one kind of file.
#[derive(Clone, Copy, Debug)]
pub struct LocalRuntime {
    /// The extension of its files, without the dot.
    pub extension: &'static str,
    /// Loads a file into this process with these options, which may take long; a sentence if it cannot be
    /// served.
    pub load: fn(&Path, &serde_json::Value) -> Result<LoadedModel, String>,
    /// The model of a file as the file itself declares it, without any engine; a sentence if it cannot be served.
    pub declare: fn(&Path) -> Result<Arc<dyn LocalModel>, String>,
    /// The model of a file that a worker process has loaded, which told its signature; a sentence if it
    /// cannot be served.
    pub describe: DescribeModel,
    /// The command of this program that makes it a worker process.
    pub worker_command: &'static str,
}

/// A model that was loaded into this process.
#[derive(Clone)]
pub struct LoadedModel {
    /// What is known of it.
    pub model: Arc<dyn LocalModel>,
    /// What runs it.
    pub session: Arc<dyn LocalSession>,
}

/// Runs the batches of a model in threads of this process.
pub trait LocalSession: Send + Sync + 'static {
    /// Runs all batches of one worker, on a thread of its own. Answers call the model by `name` and
    /// `version`.
    fn run_batches(&self, name: &str, version: &str, batches: Batches);
}

/// What a plain request to a model without Python brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// Tensors as JSON.
    Tensors,
    /// An image of one of the usual kinds.
    Image,
    /// Text.
    Text,
    /// A file of any kind.
    File,
}

/// A model without Python, as it is known without being loaded.
pub trait LocalModel: Send + Sync + 'static {
    /// The runtime's name in descriptions of the model.
    fn runtime(&self) -> &'static str;

    /// The name that the model gives itself.
    fn name(&self) -> &str;

    /// The version that the model gives itself.
    fn version(&self) -> &str;

    /// What it takes and gives.
    fn signature(&self) -> &Signature;

    /// The same of the file alone, which its workers compare theirs with.
    fn file_signature(&self) -> &Signature {
        self.signature()
    }

    /// Whether it takes requests in tensors, and answers those with tensors.
    fn takes_tensors(&self) -> bool {
        false
    }

    /// The names of the classes that an output scores, where they are known.
    fn labels(&self, _output: &str) -> Option<&[String]> {
        None
    }

    /// What a plain request to it brings.
    fn body_kind(&self) -> BodyKind {
        BodyKind::Tensors
    }

    /// Most items in a batch; `None` where the model sets no limit.
    fn max_batch_size(&self) -> Option<u32>;

    /// Whether the items of a batch are padded to the longest of them.
    fn pads(&self) -> bool;

    /// Decodes and checks one request.
    ///
    /// # Errors
    /// A sentence for the client: what was expected and what came.
    fn decode(&self, input: Input) -> Result<Decoded, String>;

    /// One item to warm up and measure the model with, if one can be made up.
    fn sample(&self) -> Option<Decoded>;

    /// Reads the tensors that a worker process gave for a request that wants them, or for a part of one;
    /// the answer to the whole once no part is missing, an empty one before. Answers call the model by
    /// `name` and `version`.
    fn finish(
        &self,
        name: &str,
        version: &str,
        input: &dyn DecodedInput,
        output: Output,
    ) -> ItemOutcome;
}

/// A request that fits its model.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// What the worker is given.
    pub input: Arc<dyn DecodedInput>,
    /// How many items it brings.
    pub items: u32,
    /// Requests of different groups must not share a batch: their shapes differ.
    pub group: u16,
    /// Whether its items may run in different batches.
    pub splits: bool,
    /// How long its items are, for a model that pads them.
    pub length: Option<u64>,
}

/// The batches of one worker, as its thread takes them.
#[derive(Debug)]
pub struct Batches(mpsc::Receiver<ThreadBatch>);

/// A batch on its way to the thread, with the way back for its outcome.
#[derive(Debug)]
pub(crate) struct ThreadBatch {
    inputs: Vec<Arc<dyn DecodedInput>>,
    outcome: oneshot::Sender<BatchOutcome>,
}

impl Batches {
    /// Runs one batch after the other until the worker is ended or a batch panics.
    pub fn run(mut self, mut work: impl FnMut(&[Arc<dyn DecodedInput>]) -> BatchOutcome) {
        while let Some(ThreadBatch { inputs, outcome }) = self.0.blocking_recv() {
            if outcome.is_closed() {
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| work(&inputs))) {
                // If the caller is gone meanwhile, the outcome is not needed.
                Ok(done) => drop(outcome.send(done)),
                Err(panic) => {
                    let (requests, panic) = (inputs.len(), message(&*panic));
                    tracing::error!(requests, panic, "a model's thread panicked");
                    return;
                }
            }
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
