//! Bytes and connections: listeners, TLS, limits, the carriers of HTTP, bodies and their compression.
//!
//! A connection's way through this crate: [`listen`] binds sockets (or `given` takes those that listen already), [`accept`] takes connections within the
//! limits of their plane, and a [`ConnectionService`] serves each. Where that is HTTP, [`http`] reads the requests
//! and writes what an [`HttpService`] answers. The crate knows no model, no endpoint and no plugin, picks no status for a failure, and reads no file, flag or environment.

pub mod accept;
mod awaited_body;
mod body_error;
mod certificate;
pub mod compression;
pub mod connection;
mod connection_limits;
pub mod events;
mod given;
mod growing_body;
pub mod handover;
mod handshake;
pub mod http;
mod incoming_body;
pub mod listen;
mod log_limit;
mod networks;
mod numbers;
pub mod open_connections;
mod outgoing_body;
pub mod request_id;
pub mod tls;

pub use accept::{ConnectionService, Listener};
pub use body_error::BodyError;
pub use connection_limits::ConnectionLimits;
pub use given::{BoundSockets, GivenSockets};
pub use growing_body::GrowingBody;
pub use http::HttpService;
pub use http::http2::ConnectionAge;
pub use incoming_body::{LARGE, RequestBody};
pub use listen::Bind;
pub use log_limit::LogLimit;
pub use networks::Networks;
pub use numbers::{push_number, push_thousandths};
pub use outgoing_body::{AnswerPiece, PieceError, PieceStream, ResponseBody, SMALL_ANSWER};
pub use tls::{ClientRules, Tls};
