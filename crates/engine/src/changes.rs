//! Notifies that something about the models changed: one came, went, became the default, or got other
//! workers or batching. Whoever keeps a record waits for it; what changed is to be looked up, so that
//! a burst of changes may be one record. Nothing here is on a request's way.

use std::sync::Arc;

use tokio::sync::watch;

/// The sending side, shared by the engine and its models.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Arc<watch::Sender<u64>>);

impl Changes {
    /// Notifies those who wait.
    pub(crate) fn note(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// A way to wait for the next change; it counts them.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
