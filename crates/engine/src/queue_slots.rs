//! How many calls of handles, and of models that wire others, each model is given at a time: as many as its queue
//! holds.
//!
//! Further calls wait here, in their order, instead of being rejected. All connections of a server
//! share the slots. HTTP and gRPC requests do not wait, so a full queue rejects them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::Rejection;
use crate::error::CallError;
use crate::model::Model;

/// Slots of one model at most.
const SLOTS_MAX: usize = 8192;

/// The slots of all models that handles have called.
#[derive(Default)]
pub struct QueueSlots(Mutex<Vec<ModelSlots>>);

struct ModelSlots {
    model: Weak<Model>,
    queue_max: u32,
    slots: Arc<Semaphore>,
}

impl QueueSlots {
    /// Waits for a slot in the model's queue, until the deadline at most.
    ///
    /// # Errors
    /// The deadline came first.
    pub async fn acquire(
        &self,
        model: &Arc<Model>,
        deadline: Option<Instant>,
    ) -> Result<Option<OwnedSemaphorePermit>, CallError> {
        let slots = self.of(model);
        match (Arc::clone(&slots).try_acquire_owned(), deadline) {
            (Ok(slot), _) => Ok(Some(slot)),
            (Err(_), None) => Ok(slots.acquire_owned().await.ok()),
            (Err(_), Some(deadline)) => {
                let slot = tokio::time::timeout_at(deadline, slots.acquire_owned()).await;
                let late =
                    |_| CallError::Rejected { reason: Rejection::Expired, retry_after: None };
                Ok(slot.map_err(late)?.ok())
            }
        }
    }

    /// The slots of a model. A model whose queue size has changed gets new ones.
    fn of(&self, model: &Arc<Model>) -> Arc<Semaphore> {
        let queue_max = model.settings().queue_max;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &&ModelSlots| std::ptr::eq(known.model.as_ptr(), Arc::as_ptr(model));
        if let Some(known) = all.iter().find(same).filter(|known| known.queue_max == queue_max) {
            return Arc::clone(&known.slots);
        }
        // A weak reference keeps the address taken, so a new model is never mistaken for an old one.
        all.retain(|known| known.model.strong_count() > 0 && !same(&known));
        let slots = Arc::new(Semaphore::new((queue_max as usize).clamp(1, SLOTS_MAX)));
        let model = Arc::downgrade(model);
        all.push(ModelSlots { model, queue_max, slots: Arc::clone(&slots) });
        slots
    }
}
