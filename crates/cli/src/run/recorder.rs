//! Keeps snapshots while the server runs: one before the doors open, one after every change, one at
//! the end. It runs on the admin plane; a disk that fails costs a warning, never the server.

use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use jitney_engine::Engine;
use tokio::sync::watch;

use crate::torchserve::snapshot::{self, Models, Moment, Snapshots};

/// The one who writes them down, or nobody where no snapshots are kept.
pub struct Recorder<'a>(Option<Desk<'a>>);

struct Desk<'a> {
    snapshots: &'a Snapshots,
    engine: &'a Arc<Engine>,
    changes: watch::Receiver<u64>,
    last: Models,
}

impl<'a> Recorder<'a> {
    /// Writes the first snapshot.
    pub fn start(snapshots: Option<&'a Snapshots>, engine: &'a Arc<Engine>) -> Self {
        let mut recorder = Self(snapshots.map(|snapshots| Desk {
            snapshots,
            engine,
            changes: engine.changes(),
            last: Models::new(),
        }));
        if let Some(desk) = &mut recorder.0 {
            desk.write(Moment::Startup);
        }
        recorder
    }

    /// Writes a snapshot after every change, until `end`.
    pub async fn keep(&mut self, end: impl Future<Output = ()>) {
        match &mut self.0 {
            None => end.await,
            Some(desk) => tokio::select! {
                () = end => {}
                () = desk.keep() => {}
            },
        }
    }

    /// Writes the last snapshot, while the models still are what they were.
    pub fn finish(&mut self) {
        if let Some(desk) = &mut self.0 {
            desk.write(Moment::Shutdown);
        }
    }
}

impl Desk<'_> {
    async fn keep(&mut self) {
        // The engine outlives the loop, so the channel never closes.
        while self.changes.changed().await.is_ok() {
            // What was said twice, or came to nothing, is no change.
            if snapshot::models(self.engine, &self.snapshots.store) != self.last {
                self.write(Moment::Change);
            }
        }
    }

    fn write(&mut self, moment: Moment) {
        self.last = snapshot::models(self.engine, &self.snapshots.store);
        match self.snapshots.write(&self.last, moment, SystemTime::now()) {
            Ok(path) => tracing::debug!(file = %path.display(), "snapshot written"),
            Err(error) => tracing::warn!(%error, "a snapshot could not be written"),
        }
    }
}
