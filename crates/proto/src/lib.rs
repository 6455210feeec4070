//! The messages and services that the gRPC doors speak, and the messages of metrics: `.proto` files and the
//! code made from them.
//!
//! Nothing else lives here. The code in `generated/` is checked in, so that building the server needs
//! neither protoc nor a generator; `tests/generated.rs` makes it anew and compares. TorchServe's package
//! `openinference` shares the messages of KServe's and Triton's `inference`: they are the same on the wire.

/// What clients may call as a serialized `FileDescriptorSet`, for reflection and for clients in tests.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

#[rustfmt::skip]
#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "made by a generator"
)]
mod generated {
    pub mod inference;
    pub mod kserve;
    pub mod management;
    pub mod openinference;
    pub mod otlp;
    pub mod prometheus;
    pub mod status;
}

/// A message of any type, for the details of an error.
pub use prost::Message;
pub use prost_types::Any;

pub use generated::{inference, kserve, management, openinference, otlp, prometheus, status};
