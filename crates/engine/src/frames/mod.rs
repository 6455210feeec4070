//! The frames between the server and its worker processes (`protocol/spec.md`): their bytes, the connections
//! that carry them, and the socket that workers connect to.
//!
//! Connect = alive, handshake = loaded, end of file = gone. Python workers and the processes of `local` speak
//! the same frames. This folder starts no process and decides nothing about a model.

mod answer_room;
mod batch_frame;
mod connection;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod listener;
mod taken_numbers;
mod tensor_entries;
mod worker_socket;

#[cfg(test)]
mod tests;

pub(crate) use self::batch_frame::{BatchFrame, BatchItem};
pub(crate) use self::connection::{ConnectionError, WorkerConnection, next_frame};
pub(crate) use self::frame::{
    FrameError, FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, decode_chunk, decode_control,
    decode_failed, decode_items, decode_reply, decode_times, encode_control,
};
pub use self::listener::{CallConnection, CallerEnded, CallingWorker};
pub(crate) use self::listener::{CallsToken, ExpectedWorker, PROTOCOL, WorkerListener};
