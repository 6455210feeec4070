//! Calls from workers: the parts of an application call each other, and a definition any model.
//!
//! A worker connects to where it gets its batches from and says that it is going to call; from there on the
//! frames are those of a handle, without HTTP. Who let the worker's own request in has let its calls in, so
//! they are asked for no token. They are served before the ports open, since a model may call another while
//! it loads, and until the worker ends, since what was admitted before a drain may still have to call.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use jitney_engine::frames::{CallConnection, CallingWorker};
use jitney_net::connection::{ConnectionStage, ListenerSignal, Peer};
use jitney_net::http::WatchedStream;
use jitney_net::open_connections::{ListedConnection, OpenConnections};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::connection::{CallRight, serve_stream};
use crate::keys::Caller;
use crate::state::ServerState;

/// Connections of workers at a time; a further one waits.
const CONNECTIONS_MAX: usize = 4096;

/// Serves the calls of all workers on these runtimes, by turns, until the runtimes end.
pub(crate) fn serve_workers(state: &Arc<ServerState>, runtimes: &[Handle]) {
    let (Some(connections), Some(first)) = (state.engine.take_calls(), runtimes.first()) else {
        return;
    };
    first.spawn(accept(Arc::clone(state), connections, runtimes.to_vec()));
}

async fn accept(
    state: Arc<ServerState>,
    mut connections: mpsc::Receiver<CallConnection>,
    runtimes: Vec<Handle>,
) {
    let open = OpenConnections::new(CONNECTIONS_MAX, Duration::MAX);
    // Nothing is sent: such a connection ends with its worker.
    let (_signals, ending) = watch::channel(ListenerSignal::Tick);
    for runtime in runtimes.iter().cycle() {
        let Some(connection) = connections.recv().await else { return };
        let Some(permit) = open.permit().await else { return };
        let number = state.peers.fetch_add(1, Relaxed);
        let listed = open.list(number, permit);
        let (state, ending) = (Arc::clone(&state), ending.clone());
        runtime.spawn(async move {
            let worker = connection.caller.worker;
            if let Err(error) = serve(connection, number, &listed, &state, ending).await {
                tracing::warn!(worker, %error, "the calls of a worker cannot be served");
            }
        });
    }
}

async fn serve(
    connection: CallConnection,
    number: u64,
    listed: &ListedConnection,
    state: &Arc<ServerState>,
    mut signals: watch::Receiver<ListenerSignal>,
) -> std::io::Result<()> {
    let CallConnection { stream, ahead, caller, mut ended } = connection;
    let (open, admission) = (Arc::clone(&listed.open), Arc::clone(state.engine.admission()));
    let peer = Arc::new(Peer::new(number, address(&caller), open, admission));
    peer.enter(ConnectionStage::Busy);
    let stream = TokioIo::new(UnixStream::from_std(stream)?);
    let stream = TokioIo::new(WatchedStream::new(stream, ahead, Arc::clone(&peer)));
    tokio::select! {
        () = serve_stream(stream, CallRight::Admitted, Caller::ANYBODY, &peer, state, &mut signals) => {}
        () = ended.wait() => {}
    }
    Ok(())
}

/// What the access log and traces show as the client's address.
fn address(caller: &CallingWorker) -> String {
    format!("worker:{}:{}:{}", caller.model, caller.version, caller.worker)
}
