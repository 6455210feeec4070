//! The server over real sockets, against the real engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod browsers;
mod conformance;
mod ending;
mod fixture;
mod grpc;
mod grpc_client;
mod http2;
mod malformed;
mod management;
mod metrics;
mod overview;
mod plain;
mod predictions;
mod routing;
mod tls;
mod tokens;
