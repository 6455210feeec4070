//! How many calls of handles each model is given at a time: as many as its queue takes.
//!
//! The others wait in front of it, in their order, instead of being refused. All connections of a
//! server share the rooms; HTTP and gRPC do not come here, so they can still meet a full queue.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use jitney_engine::Model;
use tokio::sync::Semaphore;

use super::connection::CALLS_MAX;

/// The rooms of all models that handles have called.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<Vec<Room>>);

struct Room {
    model: Weak<Model>,
    queue_max: u32,
    places: Arc<Semaphore>,
}

impl Rooms {
    /// The room of a model. One whose queue has changed gets a new one.
    pub(super) fn of(&self, model: &Arc<Model>) -> Arc<Semaphore> {
        let queue_max = model.settings().queue_max;
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |room: &&Room| std::ptr::eq(room.model.as_ptr(), Arc::as_ptr(model));
        if let Some(room) = rooms.iter().find(same).filter(|room| room.queue_max == queue_max) {
            return Arc::clone(&room.places);
        }
        // A weak reference keeps the address taken, so a new model is never mistaken for an old one.
        rooms.retain(|room| room.model.strong_count() > 0 && !same(&room));
        let places = Arc::new(Semaphore::new((queue_max as usize).clamp(1, CALLS_MAX)));
        let room = Room { model: Arc::downgrade(model), queue_max, places: Arc::clone(&places) };
        rooms.push(room);
        places
    }
}
