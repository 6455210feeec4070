//! The Open Inference Protocol without a transport: what a request asks of a model, what the answer is,
//! and what the server tells about its models. REST and gRPC read and write their own forms of these.
//!
//! A model that takes tensors gets them as they came. Any other gets the protocol's JSON or plain bodies
//! (see [`archive`]).

pub(crate) mod answer;
pub(crate) mod archive;
pub(crate) mod bodies;
mod check;
mod classification;
pub(crate) mod elements;
pub(crate) mod framed;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod generated;
pub(crate) mod metadata;
pub(crate) mod request;
pub(crate) mod shared;
pub(crate) mod shared_location;
pub(crate) mod statistics;
