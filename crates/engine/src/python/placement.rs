//! Places workers on the nodes of a Ray cluster, and takes over their connections.
//!
//! A side-car process knows Ray. It is told to start and to end actors, and tells what becomes of them; what
//! an actor's worker does and how it ends comes over connections of their own, so that neither Ray nor the
//! side-car is needed for a worker that runs.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::remote_process::{NodePaths, adopt};
use super::secure_listener::SecureListener;
use super::worker::WorkerStream;
use crate::frames::WorkerListener;
use crate::outcome::LaunchError;
use crate::pool::{LoadProgress, ProgressSender};
use crate::process::WorkerProcess;

/// Orders that may wait for the side-car.
const ORDERS_MAX: usize = 1024;
/// How often a start is told that there is no cluster.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How long after the side-car has called an actor lost its connection is still listened to.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Messages that may wait for one worker's start; what comes beside them is out of date anyway.
const NEWS_MAX: usize = 16;

/// Where workers are placed, as the operator says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayConfig {
    /// The cluster: `auto`, or the host and port of its head.
    pub address: String,
    /// The address of this machine that workers connect to; by default the one that the cluster knows.
    pub worker_host: Option<IpAddr>,
    /// The port; 0 for any.
    pub worker_port: u16,
}

/// What the side-car tells.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum SideCarEvent {
    /// It is part of the cluster, in which this machine has that address.
    Ready { address: IpAddr, ray: String },
    /// It could not become part of the cluster.
    Failed { why: String },
    /// An actor waits for a place.
    Pending { id: u64, why: String },
    /// An actor was placed.
    Placed { id: u64, node: String },
    /// An actor ended, or could not be started.
    Ended { id: u64, why: String },
}

/// What one start of a worker is told.
#[derive(Debug)]
enum PlacementNews {
    Step(String),
    /// The actor has ended.
    Ended(String),
    /// Nobody is there to start it; one that runs does not need anybody.
    NoCluster(String),
}

/// Whether there is a cluster.
#[derive(Clone, Debug)]
enum Cluster {
    /// Not yet, or not any more; why, where that is known.
    Joining(Option<String>),
    Joined(Arc<SecureListener>),
}

/// A worker to be placed.
#[derive(Clone, Debug)]
pub(crate) struct PlacementOrder {
    /// What it is called in the cluster.
    pub(crate) name: String,
    /// What it needs, as Ray counts it.
    pub(crate) resources: Value,
    /// Directories of this machine that it needs, by their purpose.
    pub(crate) files: Value,
}

/// The places of all workers.
pub(crate) struct Placement {
    listener: Arc<WorkerListener>,
    /// Where connections of actors are read.
    runtime: Handle,
    orders: mpsc::Sender<Value>,
    cluster: watch::Sender<Cluster>,
    starts: Mutex<HashMap<u64, mpsc::Sender<PlacementNews>>>,
    next: AtomicU64,
}

impl Placement {
    /// Without a cluster yet; the side-car takes the orders.
    pub(super) fn new(
        listener: &Arc<WorkerListener>,
        runtime: Handle,
    ) -> (Arc<Self>, mpsc::Receiver<Value>) {
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let placement = Self {
            listener: Arc::clone(listener),
            runtime,
            orders,
            cluster: watch::Sender::new(Cluster::Joining(None)),
            starts: Mutex::default(),
            next: AtomicU64::new(1),
        };
        (Arc::new(placement), taken)
    }

    /// Waits until there is a cluster; the error says why there is none.
    pub(crate) async fn joined(&self) -> Result<(), String> {
        let mut cluster = self.cluster.subscribe();
        let known = cluster.wait_for(|it| !matches!(it, Cluster::Joining(None))).await;
        match known.as_deref() {
            Ok(Cluster::Joining(Some(why))) => Err(why.clone()),
            Ok(Cluster::Joined(_)) => Ok(()),
            Ok(Cluster::Joining(None)) | Err(_) => Err("the server is ending".to_owned()),
        }
    }

    /// The side-car is part of a cluster, and workers find this server there.
    pub(super) fn join(&self, listener: Arc<SecureListener>) {
        self.cluster.send_replace(Cluster::Joined(listener));
    }

    pub(super) fn workers(&self) -> &Arc<WorkerListener> {
        &self.listener
    }

    /// There is no cluster (any more). Workers that run do not need it; those that start are told.
    pub(super) fn lose_cluster(&self, why: &str) {
        self.cluster.send_replace(Cluster::Joining(Some(why.to_owned())));
        for start in self.starts().values() {
            drop(start.try_send(PlacementNews::NoCluster(why.to_owned())));
        }
    }

    /// What the side-car tells of one worker.
    pub(super) fn hear(&self, event: SideCarEvent) {
        let (id, news) = match event {
            SideCarEvent::Pending { id, why } => (id, PlacementNews::Step(why)),
            SideCarEvent::Placed { id, node } => {
                (id, PlacementNews::Step(format!("placed on node {node}")))
            }
            SideCarEvent::Ended { id, why } => (id, PlacementNews::Ended(why)),
            SideCarEvent::Ready { .. } | SideCarEvent::Failed { .. } => return,
        };
        if let Some(start) = self.starts().get(&id) {
            drop(start.try_send(news));
        }
    }

    /// Finds a place for a worker and starts its process there, with this token.
    pub(crate) async fn start(
        self: Arc<Self>,
        order: PlacementOrder,
        token: String,
        output: [WorkerStream; 2],
        progress: &ProgressSender,
    ) -> Result<(WorkerProcess, NodePaths), LaunchError> {
        let server = self.server(progress).await?;
        let expected = self.listener.expect();
        let mut expected = expected.map_err(|error| LaunchError::Spawn(error.to_string()))?;
        let (tell, mut news) = mpsc::channel(NEWS_MAX);
        let start = PlacedActor::new(&self, tell);
        let ordered = self.orders.send(json!({
            "do": "start",
            "id": start.id,
            "name": order.name,
            "resources": order.resources,
            "files": order.files,
            "token": expected.token.text(),
            "server": {
                "host": server.address.ip(),
                "port": server.address.port(),
                "certificate": server.certificate,
            },
        }));
        ordered.await.map_err(|_| LaunchError::Spawn("the server is ending".to_owned()))?;
        let stream = loop {
            tokio::select! {
                stream = &mut expected.connection => {
                    let gone = || LaunchError::Spawn("the server is ending".to_owned());
                    break stream.map_err(|_| gone())?;
                }
                Some(news) = news.recv() => match news {
                    PlacementNews::Step(what) => {
                        progress.send(LoadProgress { what, ..LoadProgress::default() }).await;
                    }
                    PlacementNews::Ended(why) | PlacementNews::NoCluster(why) => {
                        return Err(LaunchError::Spawn(why));
                    }
                }
            }
        };
        let lost = async move {
            let others = |it: &PlacementNews| {
                matches!(it, PlacementNews::Step(_) | PlacementNews::NoCluster(_))
            };
            while news.recv().await.as_ref().is_some_and(others) {}
            // Its own last words may be on their way.
            tokio::time::sleep(LAST_WORDS).await;
            drop(start);
        };
        let adopted = adopt(&self.runtime, stream, json!({ "token": token }), output, lost).await;
        adopted.map_err(|error: io::Error| LaunchError::Spawn(error.to_string()))
    }

    /// Where workers connect, once there is a cluster.
    async fn server(&self, progress: &ProgressSender) -> Result<Arc<SecureListener>, LaunchError> {
        let mut cluster = self.cluster.subscribe();
        loop {
            let known = cluster.borrow_and_update().clone();
            match known {
                Cluster::Joined(listener) => return Ok(listener),
                Cluster::Joining(why) => {
                    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                    let what = format!("waiting for the Ray cluster{why}");
                    progress.send(LoadProgress { what, ..LoadProgress::default() }).await;
                }
            }
            // Told again and again: a worker's time to load must not run out meanwhile.
            if let Ok(Err(_)) = timeout(TELL_EVERY, cluster.changed()).await {
                return Err(LaunchError::Spawn("the server is ending".to_owned()));
            }
        }
    }

    fn starts(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<PlacementNews>>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An actor that was asked for. Dropping it ends the actor, wherever it is by then.
struct PlacedActor {
    placement: Arc<Placement>,
    id: u64,
}

impl PlacedActor {
    fn new(placement: &Arc<Placement>, tell: mpsc::Sender<PlacementNews>) -> Self {
        let id = placement.next.fetch_add(1, Ordering::Relaxed);
        placement.starts().insert(id, tell);
        Self { placement: Arc::clone(placement), id }
    }
}

impl Drop for PlacedActor {
    fn drop(&mut self) {
        self.placement.starts().remove(&self.id);
        let order = json!({ "do": "end", "id": self.id });
        if self.placement.orders.try_send(order).is_err() {
            tracing::debug!(id = self.id, "nobody to end an actor; it ends with its connection");
        }
    }
}

#[cfg(test)]
mod tests;
