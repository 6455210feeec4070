//! gRPC: TorchServe's services and the Open Inference Protocol. Each service has a file of its own and only
//! translates.

mod call_log;
mod compression;
mod connection;
mod health;
mod inference;
mod management;
mod message_body;
mod message_stream;
mod methods;
mod oip;
mod predict;
mod request;
mod services;
mod status;
mod stream_answers;
mod traced;
mod unary;

pub(crate) use connection::serve;
#[cfg(test)]
pub(crate) use methods::{GrpcMethod, METHODS};
#[cfg(fuzzing)]
pub(crate) use oip::fuzzing;
pub(crate) use services::GrpcServices;
