//! Notifies that something about the models changed: one came, went, became the default, or got other
//! workers or batching. Whoever keeps a record waits for it; what changed is to be looked up, so that
//! a burst of changes may be one record. Who makes a change can wait until it is in the record. Nothing
//! here is on a request's way.

use std::sync::Arc;

use tokio::sync::watch;

/// The sending side, shared by the engine and its models.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Changes so far.
    made: watch::Sender<u64>,
    /// Those of them that are in the record; none where nobody keeps one.
    recorded: watch::Sender<Option<u64>>,
}

impl Changes {
    /// Notifies those who wait.
    pub(crate) fn note(&self) {
        self.0.made.send_modify(|count| *count += 1);
    }

    /// The number of changes so far, for whoever waits for the next.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.made.subscribe()
    }

    /// Waits until all changes so far are in the record, if somebody keeps one.
    pub async fn recorded(&self) {
        let made = *self.0.made.borrow();
        let mut recorded = self.0.recorded.subscribe();
        // The sender lives as long as this.
        let _ = recorded.wait_for(|known| known.is_none_or(|known| known >= made)).await;
    }

    /// For whoever keeps the record; one at a time.
    pub fn recorder(&self) -> ChangeRecorder {
        let recorder = ChangeRecorder { made: self.0.made.subscribe(), changes: self.clone() };
        let made = *recorder.made.borrow();
        recorder.done(made);
        recorder
    }
}

/// Keeps the record of changes. When it is dropped nobody waits for the record any more.
#[derive(Debug)]
pub struct ChangeRecorder {
    made: watch::Receiver<u64>,
    changes: Changes,
}

impl ChangeRecorder {
    /// Waits for a change that is not in the record; the number to call [`Self::done`] with. Cancel-safe.
    pub async fn next(&mut self) -> u64 {
        // The sender lives as long as this.
        let _ = self.made.changed().await;
        *self.made.borrow_and_update()
    }

    /// The record holds all changes up to this number.
    pub fn done(&self, number: u64) {
        self.changes.0.recorded.send_replace(Some(number));
    }
}

impl Drop for ChangeRecorder {
    fn drop(&mut self) {
        self.changes.0.recorded.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_makes_a_change_waits_until_it_is_recorded_or_nobody_records() {
        let changes = Changes::default();
        changes.note();
        changes.recorded().await;
        let mut recorder = changes.recorder();
        changes.recorded().await;
        changes.note();
        let mut waiting = Box::pin(changes.recorded());
        let early = tokio::select! { biased; () = &mut waiting => true, number = recorder.next() => {
            recorder.done(number);
            false
        }};
        assert!(!early, "it was not recorded yet");
        waiting.await;
        changes.note();
        drop(recorder);
        changes.recorded().await;
    }
}
