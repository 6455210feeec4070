//! `jitney onnx-worker`: this program as a worker process of an ONNX model.

use crate::env::Env;
use crate::failure::Failure;
use crate::machine;

/// Runs the worker that a server has started, until that server is done with it.
pub fn run(env: &Env) -> Result<u8, Failure> {
    let socket = env.path("JITNEY_WORKER_SOCKET");
    let (Some(socket), Some(token)) = (socket, env.text("JITNEY_WORKER_TOKEN")) else {
        let words = "onnx-worker is started by the server itself; try `jitney serve model.onnx`";
        return Err(Failure::usage(words));
    };
    Ok(jitney_onnx::run_worker(&socket, token, machine::worker_memory()))
}
