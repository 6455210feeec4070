//! REST: HTTP requests become calls, answers become HTTP responses. One file per group of endpoints.
//!
//! An endpoint takes a request's context and returns a response or a problem. None knows sockets, and
//! none picks a status for a failure.

mod admin;
mod authorize;
mod context;
mod health;
mod inference;
mod input;
mod management;
mod openapi;
mod plain;
mod plugins;
mod service;

pub(crate) use context::ConnectionContext;
#[cfg(fuzzing)]
pub(crate) use input::fuzzing;
pub(crate) use plain::serve;
