//! The admitted requests of a model version, waiting or with a worker: their owner.
//!
//! The batcher decides with ids only; the table holds the requests that those ids stand for. A request
//! leaves its entry while its batch is with a worker and comes back if the batch must be tried again.
//! An entry is freed only when its request has ended, so an id never means two requests.

use jitney_batcher::RequestId;
use slab::Slab;

use crate::error::CallError;
use crate::pending::PendingRequest;
use crate::pool::WorkerBatch;

/// Which turn of which sequence a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnRef {
    pub(super) sequence: usize,
    pub(super) number: u64,
}

/// A request, and what is known of it until it has ended.
#[derive(Debug, Default)]
pub(super) struct TableEntry {
    generation: u32,
    /// `None` while the request is in a batch that is with a worker.
    pub(super) request: Option<PendingRequest>,
    /// What its last try came to, told to the caller if there is no other.
    pub(super) failure: Option<CallError>,
    /// For models that keep sequences.
    pub(super) turn: Option<TurnRef>,
}

/// All requests of one model version that have not ended.
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    entries: Slab<TableEntry>,
    generation: u32,
}

impl RequestTable {
    /// Takes a request in and gives it its id.
    pub(super) fn insert(
        &mut self,
        mut request: PendingRequest,
        turn: Option<TurnRef>,
    ) -> RequestId {
        self.generation = self.generation.wrapping_add(1);
        let (entry, generation) = (self.entries.vacant_entry(), self.generation);
        let id = RequestId::new(entry.key() as u32, generation);
        request.facts.id = id;
        request.id.set(id);
        entry.insert(TableEntry { generation, request: Some(request), failure: None, turn });
        id
    }

    /// Takes a request out for its batch.
    pub(super) fn take(&mut self, id: RequestId) -> Option<PendingRequest> {
        self.entry(id)?.request.take()
    }

    /// Puts the requests of a batch back, with what went wrong.
    pub(super) fn put_back(&mut self, batch: WorkerBatch, failure: Option<&CallError>) {
        for request in batch.requests {
            if let Some(entry) = self.entry(request.facts.id) {
                entry.request = Some(request);
                entry.failure = failure.cloned().or(entry.failure.take());
            }
        }
    }

    /// Whether a request has not ended.
    pub(super) fn holds(&mut self, id: RequestId) -> bool {
        self.entry(id).is_some()
    }

    /// Takes the entry of a request that has ended; an empty one if it had ended before.
    pub(super) fn end(&mut self, id: RequestId) -> TableEntry {
        if self.holds(id) { self.entries.remove(id.index()) } else { TableEntry::default() }
    }

    /// The requests that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &PendingRequest> {
        self.entries.iter().filter_map(|(_, entry)| entry.request.as_ref())
    }

    fn entry(&mut self, id: RequestId) -> Option<&mut TableEntry> {
        let entry = self.entries.get_mut(id.index())?;
        (RequestId::new(id.index() as u32, entry.generation) == id).then_some(entry)
    }
}
