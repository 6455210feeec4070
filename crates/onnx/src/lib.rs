//! ONNX models: a `.onnx` file is loaded, its requests are decoded, batched, run and answered, without
//! Python.
//!
//! A request passes these files in order: `decode` checks it against the model's signature before it
//! waits, `batch` joins it with others and runs the model, `answer` writes the outputs in the form in
//! which the request came. `runtime` is what the engine sees of all this, `worker` is the process in which
//! models of users run, and `wire` is how requests get there. Only `engine` knows what runs a model.
//! Nothing that a client sends reaches a batch unchecked, since a batch
//! holds requests of others.

mod answer;
mod bad_input;
mod batch;
mod body;
mod card;
mod decode;
mod elements;
pub mod embedded;
mod engine;
mod file;
mod file_bytes;
mod fit;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hint;
mod labels;
mod model;
mod numbers;
mod padding;
mod prepare;
mod probe;
mod protobuf;
mod request;
mod runtime;
mod shape_groups;
mod tensor;
mod wire;
mod worker;

#[cfg(test)]
mod tests;

pub use engine::RuntimeStatus;
pub use engine::library::{
    LibrarySearch, in_directory as library_in, version_of as library_version,
};
pub use file::needs_runtime;
pub use model::{OnnxError, OnnxModel, OnnxSession};
#[doc(hidden)]
pub use prepare::image_preparer;
pub use runtime::RUNTIME;
pub use worker::run_worker;
