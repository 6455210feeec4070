//! What runs a model: ONNX Runtime where its library is found, rten otherwise. Both take tensors in the
//! order of the model's inputs and give tensors in the order of its outputs; what an engine cannot hold
//! is its own business, and it says so when it loads the file.

pub(super) mod rten;

use bytes::BytesMut;

use self::rten::{RtenEngine, RtenThreads};
use super::tensor::Tensor;

/// A loaded model.
pub(super) enum GraphEngine {
    /// The built-in engine.
    Builtin(RtenEngine),
}

/// An engine as one worker uses it: with threads of its own, and with memory that batches are joined
/// in one after the other.
pub(super) struct EngineWorker<'a> {
    engine: &'a GraphEngine,
    threads: RtenThreads,
    rooms: Vec<BytesMut>,
}

impl GraphEngine {
    /// Gives a worker the engine until its work is done.
    pub(super) fn in_worker<T: Send>(
        &self,
        work: impl FnOnce(&mut EngineWorker<'_>) -> T + Send,
    ) -> T {
        match self {
            Self::Builtin(_) => RtenThreads::enter(|threads| {
                work(&mut EngineWorker { engine: self, threads, rooms: Vec::new() })
            }),
        }
    }
}

impl EngineWorker<'_> {
    /// Runs the model once on tensors in the order of its inputs.
    pub(super) fn run(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>, String> {
        match self.engine {
            GraphEngine::Builtin(engine) => engine.run(tensors, &self.threads),
        }
    }

    /// Memory to join a batch in.
    pub(super) fn room(&mut self) -> BytesMut {
        self.rooms.pop().unwrap_or_default()
    }

    /// Takes the memory of a batch that was run back, unless it is in use elsewhere.
    pub(super) fn give_back(&mut self, tensors: Vec<Tensor>) {
        for tensor in tensors.into_iter().rev() {
            if let Ok(mut room) = tensor.into_data().try_into_mut() {
                room.clear();
                self.rooms.push(room);
            }
        }
    }
}
