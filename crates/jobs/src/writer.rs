//! One thread that writes what changes. Whatever waits while a group is made durable is the next group, so that many
//! jobs share one call of fsync, and a single one waits for nobody.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::error::JobError;
use crate::store::{JobChange, JobStore};

/// The most changes of a group; the same number may wait.
const GROUP_MAX: usize = 512;

/// A change, and who waits until it is durable.
struct WaitingChange {
    change: JobChange,
    done: oneshot::Sender<Result<(), JobError>>,
}

/// Hands changes to the thread.
pub(crate) struct JobWriter(mpsc::Sender<WaitingChange>);

impl JobWriter {
    /// Starts the thread, which ends when the writer is dropped.
    pub(crate) fn start(store: Arc<JobStore>) -> io::Result<Self> {
        let (sender, changes) = mpsc::channel(GROUP_MAX);
        thread::Builder::new().name("jobs".to_owned()).spawn(move || write_all(&store, changes))?;
        Ok(Self(sender))
    }

    /// Makes a change durable.
    pub(crate) async fn write(&self, change: JobChange) -> Result<(), JobError> {
        let (done, written) = oneshot::channel();
        let sent = self.0.send(WaitingChange { change, done }).await;
        sent.map_err(|_| JobError::Ended)?;
        written.await.unwrap_or(Err(JobError::Ended))
    }
}

fn write_all(store: &JobStore, mut changes: mpsc::Receiver<WaitingChange>) {
    while let Some(first) = changes.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(next) = changes.try_recv()
        {
            group.push(next);
        }
        let written = store.apply(group.iter().map(|waiting| &waiting.change));
        for waiting in group {
            let _ = waiting.done.send(written.clone());
        }
    }
}
