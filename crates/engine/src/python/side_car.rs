//! The process beside the server that knows Ray: started, fed with orders, listened to, started again.
//!
//! Orders and events are JSON objects, one on each line of its standard input and output. What it prints as
//! an error goes to the log.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::placement::{Placement, RayConfig, SideCarEvent};
use super::secure_listener::SecureListener;
use crate::outcome::last_line;
use crate::process::{OutputSink, ProcessThread, WorkerProcess};

/// How long it may take to read an order.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before it is started again, doubled each time up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Events that may wait to be looked at.
const EVENTS_MAX: usize = 256;

/// The side-car and what it is for.
pub(super) struct SideCar {
    pub(super) config: RayConfig,
    /// Makes its command, without input and output.
    pub(super) command: Box<dyn Fn() -> Command + Send + Sync>,
    pub(super) processes: Weak<ProcessThread>,
    pub(super) placement: Arc<Placement>,
    pub(super) orders: mpsc::Receiver<Value>,
    /// Where workers' connections are read.
    pub(super) data: Handle,
    /// Where they connect, from the first cluster on.
    pub(super) listener: Option<Arc<SecureListener>>,
}

impl SideCar {
    /// Keeps one running, as long as the server runs.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            let ended = self.one_life().await;
            let Some((why, joined)) = ended else { return };
            self.placement.lose_cluster(&why);
            tracing::error!("Ray: {why}; workers that run go on, new ones wait");
            pause = if joined { PAUSE } else { (2 * pause).min(PAUSE_MAX) };
            sleep(pause).await;
        }
    }

    /// From start to end: why it ended, and whether it was part of a cluster. None when the server ends.
    async fn one_life(&mut self) -> Option<(String, bool)> {
        let last_error = Arc::default();
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let (mut process, mut input) = match self.start(&last_error, sender).await? {
            Ok(started) => started,
            Err(error) => return Some((format!("cannot start its side-car: {error}"), false)),
        };
        let (mut joined, mut failed) = (false, None);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(SideCarEvent::Ready { address, ray }) => {
                        match self.listen(address).await {
                            Ok(listener) => {
                                let address = listener.address;
                                tracing::info!(%address, ray, "part of the Ray cluster; its workers connect here");
                                self.placement.join(listener);
                                joined = true;
                            }
                            Err(why) => return Some((why, false)),
                        }
                    }
                    Some(SideCarEvent::Failed { why }) => failed = Some(why),
                    Some(event) => self.placement.hear(event),
                    None => break,
                },
                order = self.orders.recv(), if joined => {
                    let mut line = order?.to_string();
                    line.push('\n');
                    let written = timeout(WRITE_TIMEOUT, input.write_all(line.as_bytes())).await;
                    if !matches!(written, Ok(Ok(()))) {
                        break;
                    }
                }
                _ = process.wait() => {
                    process.drained().await;
                    while let Ok(event) = events.try_recv() {
                        if let SideCarEvent::Failed { why } = event {
                            failed = Some(why);
                        }
                    }
                    break;
                }
            }
        }
        let said = last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = failed.unwrap_or_else(|| format!("its side-car ended: {said}"));
        Some((why, joined))
    }

    /// None when the server ends.
    async fn start(
        &self,
        last_error: &Arc<Mutex<String>>,
        events: mpsc::Sender<SideCarEvent>,
    ) -> Option<io::Result<(WorkerProcess, pipe::Sender)>> {
        let mut command = (self.command)();
        let piped = || {
            let (reader, writer) = io::pipe()?;
            let sender = pipe::Sender::from_owned_fd(OwnedFd::from(writer))?;
            Ok((reader, sender))
        };
        let (reader, sender) = match piped() {
            Ok(pipe) => pipe,
            Err(error) => return Some(Err(error)),
        };
        command.stdin(reader);
        let log = SideCarStream::Errors(Arc::clone(last_error));
        let spawned = self.processes.upgrade()?.spawn(command, SideCarStream::Events(events), log);
        Some(spawned.await.map(|process| (process, sender)))
    }

    /// Where workers connect: the same place as before where there was a side-car before.
    async fn listen(&mut self, address: std::net::IpAddr) -> Result<Arc<SecureListener>, String> {
        if let Some(listener) = &self.listener {
            return Ok(Arc::clone(listener));
        }
        let RayConfig { worker_host, worker_port, .. } = self.config;
        let host = worker_host.unwrap_or(address);
        let workers = self.placement.workers();
        let listening = SecureListener::listen(host, worker_port, workers, &self.data).await;
        let listener = Arc::new(listening.map_err(|error| {
            format!(
                "cannot listen for workers on {host} port {worker_port}: {error}; \
                 worker_host names an address of this machine that the cluster's nodes reach"
            )
        })?);
        self.listener = Some(Arc::clone(&listener));
        Ok(listener)
    }
}

/// One of its streams.
enum SideCarStream {
    Events(mpsc::Sender<SideCarEvent>),
    /// What it prints otherwise; the last line is kept.
    Errors(Arc<Mutex<String>>),
}

impl OutputSink for SideCarStream {
    fn take(&mut self, piece: &[u8], _begins: bool) {
        match self {
            Self::Events(events) => match serde_json::from_slice(piece) {
                Ok(event) => {
                    if events.try_send(event).is_err() {
                        tracing::warn!("Ray: an event was not looked at in time");
                    }
                }
                Err(error) => tracing::warn!(%error, "Ray: its side-car said something unreadable"),
            },
            Self::Errors(last) => {
                let text = String::from_utf8_lossy(piece);
                let line = last_line(&text);
                if !line.is_empty() {
                    line.clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
                    tracing::info!("Ray: {line}");
                }
            }
        }
    }
}
