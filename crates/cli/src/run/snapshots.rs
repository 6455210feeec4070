//! Writes snapshots while the server runs: one before the ports open, one after every change, one at
//! the end. It runs on the admin plane; if the disk fails, a warning is logged.

use std::sync::Arc;
use std::time::SystemTime;

use jitney_engine::{ChangeRecorder, Engine};

use crate::snapshot::{self, Models, Moment, Snapshots};

/// Writes the snapshots of a running server.
pub struct SnapshotRecorder<'a> {
    snapshots: &'a Snapshots,
    engine: &'a Arc<Engine>,
    changes: ChangeRecorder,
    last: Models,
}

impl<'a> SnapshotRecorder<'a> {
    /// Writes the first snapshot.
    pub fn start(snapshots: &'a Snapshots, engine: &'a Arc<Engine>) -> Self {
        let changes = engine.changes().recorder();
        let mut recorder = Self { snapshots, engine, changes, last: Models::new() };
        recorder.write(Moment::Startup);
        recorder
    }

    /// Writes a snapshot after every change, until it is cancelled.
    pub async fn write_changes(&mut self) {
        loop {
            let change = self.changes.next().await;
            // A change that was undone, or set the same value, needs no snapshot.
            if snapshot::models(self.engine, &self.snapshots.store) != self.last {
                self.write(Moment::Change);
            }
            self.changes.done(change);
        }
    }

    /// Writes the last snapshot, before the models are removed.
    pub fn write_last(mut self) {
        self.write(Moment::Shutdown);
    }

    fn write(&mut self, moment: Moment) {
        self.last = snapshot::models(self.engine, &self.snapshots.store);
        match self.snapshots.write(&self.last, moment, SystemTime::now()) {
            Ok(path) => tracing::debug!(file = %path.display(), "snapshot written"),
            Err(error) => tracing::warn!(%error, "a snapshot could not be written"),
        }
    }
}
