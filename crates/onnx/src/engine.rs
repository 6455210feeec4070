//! What runs a model: ONNX Runtime where its library is found, rten otherwise. Both take tensors in the
//! order of the model's inputs and give tensors in the order of its outputs; what an engine cannot hold
//! is its own business, and it says so when it loads the file.

mod compute_threads;
mod defaults;
pub(super) mod library;
mod ort;
mod rten;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::thread::Scope;

use bytes::BytesMut;
use serde::Deserialize;
use serde_json::Value;

pub(super) use self::compute_threads::ComputeThreads;
use self::library::LibrarySearch;
use self::ort::{OrtEngine, SessionGpu};
use self::rten::{RtenEngine, RtenThreads};
use super::tensor::Tensor;
use jitney_engine::local::Signature;
use jitney_engine::outcome::ModelFailure;

/// Which engine is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EngineChoice {
    /// ONNX Runtime where its library is found.
    #[default]
    Auto,
    OnnxRuntime,
    Builtin,
}

/// What the server says about engines, in the words of its settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EngineOptions {
    #[serde(rename = "onnx_engine")]
    pub choice: EngineChoice,
    #[serde(rename = "onnx_library")]
    library: Option<PathBuf>,
    #[serde(rename = "onnx_threads")]
    threads: Option<String>,
    /// How many workers the model has; not said in the server itself.
    workers: Option<u32>,
    pinned: bool,
    #[serde(rename = "onnx_providers")]
    providers: Option<String>,
    #[serde(flatten)]
    gpu: SessionGpu,
    /// Where else the library may be.
    search: LibrarySearch,
}

impl EngineOptions {
    /// Reads what the server wrote; what cannot be read is as if it was not said.
    pub(super) fn read(told: &Value) -> Self {
        let mut options: Self = Self::deserialize(told).unwrap_or_default();
        options.search.setting = options.library.take().or(options.search.setting);
        options
    }

    /// The engine of this program alone.
    pub(super) fn builtin() -> Self {
        Self { choice: EngineChoice::Builtin, ..Self::default() }
    }

    pub(super) fn threads(&self) -> ComputeThreads {
        let fixed = self.threads.as_deref().and_then(|threads| threads.parse().ok());
        ComputeThreads { fixed, pinned: self.pinned, workers: self.workers }
    }

    fn providers(&self) -> Vec<String> {
        let names = self.providers.as_deref().unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// A loaded model.
pub(super) enum GraphEngine {
    /// The built-in engine, and how to get the other one.
    Builtin(Box<RtenEngine>, &'static str),
    /// ONNX Runtime, from this library.
    OnnxRuntime(OrtEngine, PathBuf),
}

/// An engine as one worker uses it: with threads of its own, and with memory that batches are joined
/// in one after the other.
pub(super) struct EngineWorker<'a> {
    engine: &'a GraphEngine,
    /// Those of the built-in engine.
    threads: Option<RtenThreads>,
    rooms: Vec<BytesMut>,
}

impl GraphEngine {
    /// Loads a file that is known to be well-formed, from its path or from memory.
    pub(super) fn load(
        file: Cow<'static, [u8]>,
        path: Option<&Path>,
        signature: &Signature,
        options: &EngineOptions,
    ) -> Result<Self, String> {
        let found = match options.choice {
            EngineChoice::Builtin => Ok(None),
            EngineChoice::Auto | EngineChoice::OnnxRuntime => {
                options.search.find().and_then(|found| {
                    found.map(|library| ort::load_library(&library).map(|()| library)).transpose()
                })
            }
        };
        let remedy = options.search.remedy();
        let named = options.choice == EngineChoice::OnnxRuntime || options.search.setting.is_some();
        match found {
            Ok(Some(library)) => {
                let (threads, providers) = (options.threads().count(), options.providers());
                let terms = (threads, &providers[..], options.gpu);
                let file = (&file[..], path);
                let engine = OrtEngine::load(&library, file, signature, terms)?;
                Ok(Self::OnnxRuntime(engine, library))
            }
            Ok(None) if options.choice == EngineChoice::OnnxRuntime => {
                Err(format!("ONNX Runtime is not there; {remedy}"))
            }
            // A library that somebody named is not passed over.
            Err(reason) if named => {
                Err(format!("ONNX Runtime cannot be loaded: {reason}; {remedy}"))
            }
            Ok(None) | Err(_) => {
                let engine = RtenEngine::load(file, path, signature);
                engine
                    .map(|engine| Self::Builtin(Box::new(engine), remedy))
                    .map_err(|reason| Self::beyond_builtin(&reason, remedy))
            }
        }
    }

    /// What the built-in engine could not do, and the way out.
    pub(super) fn beyond_builtin(reason: &str, remedy: &str) -> String {
        format!(
            "the built-in engine cannot run it: {reason}; {remedy}, which runs every ONNX model"
        )
    }

    /// Gives a worker the engine until its work is done. The built-in one computes with so many threads meanwhile.
    pub(super) fn in_worker<T: Send>(
        &self,
        threads: usize,
        work: impl FnOnce(&mut EngineWorker<'_>) -> T + Send,
    ) -> T {
        let with = |threads| work(&mut EngineWorker { engine: self, threads, rooms: Vec::new() });
        match self {
            Self::Builtin(..) => RtenThreads::enter(threads, |threads| with(Some(threads))),
            Self::OnnxRuntime(..) => with(None),
        }
    }

    /// From now on so many threads are wanted: ONNX Runtime gets them as soon as it can, and runs batches meanwhile.
    pub(super) fn want_threads<'scope>(
        &'scope self,
        threads: usize,
        scope: &'scope Scope<'scope, '_>,
    ) {
        if let Self::OnnxRuntime(engine, _) = self {
            engine.want_threads(threads);
            scope.spawn(|| engine.follow());
        }
    }
}

/// As the log has it.
impl fmt::Display for GraphEngine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(_, remedy) => {
                write!(out, "the built-in engine; ONNX Runtime is faster: {remedy}")
            }
            Self::OnnxRuntime(_, library) => {
                let version = library::version_of(library).unwrap_or_default();
                write!(out, "ONNX Runtime {version} from {}", library.display())
            }
        }
    }
}

impl EngineWorker<'_> {
    /// Runs the model once on tensors in the order of its inputs.
    pub(super) fn run(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>, ModelFailure> {
        match (self.engine, &self.threads) {
            (GraphEngine::Builtin(engine, _), Some(threads)) => engine.run(tensors, threads),
            (GraphEngine::Builtin(..), None) => {
                Err(ModelFailure::raised("the engine has no threads"))
            }
            (GraphEngine::OnnxRuntime(engine, _), _) => engine.run(tensors),
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
        self.rooms.truncate(ROOMS_MAX);
    }
}

/// Memory that one worker keeps for its next batch: a piece for each input of a usual model.
const ROOMS_MAX: usize = 8;

/// What is known of ONNX Runtime on this machine.
#[derive(Debug)]
pub struct RuntimeStatus {
    /// The library.
    pub library: PathBuf,
    /// Its version, where its name tells.
    pub version: Option<String>,
    /// The execution providers that it has.
    pub providers: Vec<&'static str>,
}

impl RuntimeStatus {
    /// Loads the library into this process, as a worker would.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn look(search: &LibrarySearch) -> Result<Option<Self>, String> {
        let Some(library) = search.find()? else { return Ok(None) };
        ort::load_library(&library)?;
        let version = library::version_of(&library);
        Ok(Some(Self { library, version, providers: ort::providers() }))
    }
}
