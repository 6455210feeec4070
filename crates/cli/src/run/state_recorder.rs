//! What a running server keeps for the next one: snapshots, or the shares of versions alone.

use std::sync::Arc;

use jitney_engine::Engine;

use super::snapshots::SnapshotRecorder;
use super::traffic_file::TrafficFile;
use super::traffic_state::TrafficRecorder;
use crate::plan::ServerPlan;

/// Keeps what a restart goes on with.
pub enum StateRecorder<'a> {
    /// All of it, under `jitney torchserve`.
    Snapshots(SnapshotRecorder<'a>),
    /// How versions share requests, under `jitney serve`.
    Traffic(TrafficRecorder<'a>),
}

impl<'a> StateRecorder<'a> {
    /// Takes up what the last run left, and keeps what is now. With `replaces` the last run has not ended yet.
    pub fn start(plan: &'a ServerPlan, engine: &'a Arc<Engine>, replaces: bool) -> Option<Self> {
        let snapshots = plan.snapshots.as_ref().map(|all| SnapshotRecorder::start(all, engine));
        let more = plan.registrations.is_some();
        let file = plan.traffic_file.as_deref().map(|path| TrafficFile::new(path, replaces));
        let traffic = || Some(TrafficRecorder::start(file?, engine, more));
        snapshots.map(Self::Snapshots).or_else(|| traffic().map(Self::Traffic))
    }

    /// Writes every change, until it is cancelled.
    pub async fn write_changes(&mut self) {
        match self {
            Self::Snapshots(snapshots) => snapshots.write_changes().await,
            Self::Traffic(traffic) => traffic.write_changes().await,
        }
    }

    /// What is to be kept of the end; of shares every change is written already.
    pub fn write_last(self) {
        if let Self::Snapshots(snapshots) = self {
            snapshots.write_last();
        }
    }
}
