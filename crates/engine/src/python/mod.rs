//! Workers that are Python processes: started here, they connect over a Unix socket.
//!
//! Connect = alive, handshake = loaded, end of file = gone. The server passes an address and a
//! one-time token to the process it starts; the frames are those of `protocol/spec.md`, and this
//! folder is the only one that knows them. It never looks into a request's values.

mod connection;
mod devices;
mod environment;
mod frame;
mod launcher;
mod listener;
mod order;
mod output;
mod runtime;
mod worker;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use self::devices::Devices;
pub(crate) use self::environment::Environment;
pub(crate) use self::launcher::PythonLauncher;
pub(crate) use self::listener::WorkerListener;
pub(crate) use self::order::LoadOrder;
pub use self::runtime::unpack_runtime;

/// How Python workers are started.
#[derive(Clone, Debug)]
pub struct PythonConfig {
    /// The interpreter.
    pub interpreter: PathBuf,
    /// The workers' whole environment; nothing of the server's own is added but what they need.
    pub env: Vec<(OsString, OsString)>,
    /// Decode JSON and text bodies for the handler, as TorchServe does by default.
    pub decode_input: bool,
    /// Keep PIL's limit on image sizes.
    pub limit_max_image_pixels: bool,
    /// A request envelope for every model.
    pub envelope: Option<String>,
    /// Install what a model's requirements file asks for before its first worker starts.
    pub install_requirements: bool,
    /// Bytes of one answer; a larger one fails its request.
    pub response_bytes_max: Option<u64>,
    /// GPUs that workers are spread over.
    pub gpus: u32,
}

impl PythonConfig {
    /// An interpreter and nothing else.
    pub fn bare(interpreter: PathBuf) -> Self {
        Self {
            interpreter,
            env: Vec::new(),
            decode_input: true,
            limit_max_image_pixels: true,
            envelope: None,
            install_requirements: false,
            response_bytes_max: None,
            gpus: 0,
        }
    }
}

/// What can go wrong between the server and a worker it started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the worker hung up")]
    Closed,
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the worker broke the protocol: {0}")]
    Protocol(#[from] frame::FrameError),
}
