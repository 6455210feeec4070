//! Who is inside a model version, waiting or riding: the owner of every admitted request.
//!
//! The batcher decides with ids only; the table holds the requests those ids stand for. A request
//! leaves its place while its batch is with a worker and comes back if the batch must be tried
//! again. A place is freed only when its request has ended, so an id never means two requests.

use jitney_batcher::RequestId;
use slab::Slab;
use tokio::time::Instant;

use super::Ticket;
use crate::call::{Origin, PendingRequest, Priority};
use crate::error::CallError;
use crate::shares::Weight;

/// What a sequence must know about the one of it that is on its way, beside its request.
#[derive(Debug)]
pub(crate) struct Passage {
    pub(crate) sequence: usize,
    pub(crate) number: u64,
    pub(crate) worker: u32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) weight: Weight,
    pub(crate) priority: Priority,
    pub(crate) origin: Origin,
    pub(crate) ticket: Ticket,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    /// `None` while the request is in a batch that is with a worker.
    request: Option<PendingRequest>,
    /// What its last try came to, told to the caller if there is no other.
    failure: Option<CallError>,
    /// What its sequence must know if it does not leave; none without sequences.
    passage: Option<Box<Passage>>,
}

/// What is left of a request that has ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// `None` if its request is with a worker, or was.
    pub(super) request: Option<PendingRequest>,
    pub(super) failure: Option<CallError>,
    pub(super) passage: Option<Box<Passage>>,
}

/// All places of one model version.
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    places: Slab<Place>,
    generation: u32,
}

impl RequestTable {
    /// Takes a request in and names it.
    pub(super) fn board(
        &mut self,
        request: PendingRequest,
        passage: Option<Box<Passage>>,
    ) -> RequestId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let place = Place { generation, request: Some(request), failure: None, passage };
        RequestId::new(self.places.insert(place) as u32, generation)
    }

    /// Lets a request get into a batch.
    pub(super) fn depart(&mut self, id: RequestId) -> Option<PendingRequest> {
        self.place(id)?.request.take()
    }

    /// Takes a request back from a batch that must be tried again, with what went wrong.
    pub(super) fn come_back(
        &mut self,
        id: RequestId,
        request: PendingRequest,
        failure: Option<CallError>,
    ) {
        if let Some(place) = self.place(id) {
            place.request = Some(request);
            place.failure = failure.or(place.failure.take());
        }
    }

    /// Whether a request has not ended.
    pub(super) fn holds(&mut self, id: RequestId) -> bool {
        self.place(id).is_some()
    }

    /// Frees the place of a request that has ended.
    pub(super) fn end(&mut self, id: RequestId) -> Ended {
        if self.place(id).is_none() {
            return Ended::default();
        }
        let Place { request, failure, passage, .. } = self.places.remove(id.index());
        Ended { request, failure, passage }
    }

    /// The ids of everybody who waits.
    pub(super) fn waiting(&self) -> Vec<RequestId> {
        let waits = |(index, place): (usize, &Place)| {
            place.request.as_ref().map(|_| RequestId::new(index as u32, place.generation))
        };
        self.places.iter().filter_map(waits).collect()
    }

    fn place(&mut self, id: RequestId) -> Option<&mut Place> {
        let place = self.places.get_mut(id.index())?;
        (RequestId::new(id.index() as u32, place.generation) == id).then_some(place)
    }
}
