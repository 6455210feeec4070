//! ONNX models in this process: a `.onnx` file is decoded, batched, run and answered without Python.
//!
//! A request passes these rooms in order: `intake` checks it against the model's signature
//! at the door, `batch` joins it with its neighbours, `session` runs the batch on a thread of its
//! own, `answer` words the outputs in the form in which the request asked. The engine underneath is
//! rten, and only `load`, `model`, `value`,
//! `batch` and `session` know its name. Nothing here knows HTTP, and nothing
//! that a client can send may reach a batch unchecked: a batch has innocent neighbours in it.

mod answer;
mod batch;
mod body;
mod bucket;
mod card;
mod declared;
pub mod embedded;
mod features;
mod fit;
mod gather;
mod hint;
mod intake;
mod load;
mod model;
mod nest;
mod numbers;
mod pad;
mod protobuf;
mod ranking;
mod refusal;
mod request;
mod runtime;
mod tensor;
mod value;
mod wellformed;

#[cfg(test)]
mod tests;

pub use load::OnnxError;
pub use model::OnnxModel;
pub use runtime::RUNTIME;
