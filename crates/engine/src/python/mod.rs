//! Workers that are Python processes: started here they connect over a Unix socket, and over TLS from the nodes of
//! a Ray cluster.
//!
//! Connect = alive, handshake = loaded, end of file = gone. The server passes an address and a
//! one-time token to the process it starts; the frames are those of `protocol/spec.md`, and this
//! folder and the workers of `local` are the only ones that know them. It never looks into a request's values.

mod call_facts;
mod caller;
mod connection;
mod environment;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gpus;
mod launcher;
mod listener;
mod output;
mod placed_model;
mod placement;
mod remote_process;
mod secure_listener;
mod side_car;
mod socket;
mod tensor_entries;
mod worker;
mod workers;

#[cfg(test)]
mod tests;

pub use self::caller::{CallConnection, Caller, CallerEnded};
pub(crate) use self::connection::{ConnectionError, WorkerConnection};
pub(crate) use self::environment::Environment;
pub(crate) use self::frame::{
    FrameError, FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, decode_control, decode_failed,
    decode_items, decode_reply, encode_control,
};
pub(crate) use self::launcher::{LoadCommand, PythonLauncher};
pub(crate) use self::listener::{PROTOCOL, WorkerListener};
pub use self::placement::RayConfig;
pub(crate) use self::worker::next_frame;
pub(crate) use self::workers::PythonWorkers;
pub use self::workers::{PythonConfig, unpack_packages};
