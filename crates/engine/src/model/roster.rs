//! Who is inside a model version, waiting or riding: the owner of every admitted request.
//!
//! The batcher decides with ids only; the roster holds the riders those ids stand for. A rider
//! leaves its place while its batch is with a worker and comes back if the batch must be tried
//! again. A place is freed only when its request has ended, so an id never means two requests.

use jitney_batcher::RequestId;
use slab::Slab;
use tokio::time::Instant;

use super::Ticket;
use crate::call::{Origin, Priority, Rider};
use crate::error::CallError;
use crate::shares::Weight;

/// What a sequence must know about the one of it that is on its way, beside its rider.
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
    /// `None` while the rider is in a batch that is with a worker.
    rider: Option<Rider>,
    /// What its last try came to, told to the caller if there is no other.
    failure: Option<CallError>,
    /// What its sequence must know if it does not leave; none without sequences.
    passage: Option<Box<Passage>>,
}

/// What is left of a request that has ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// `None` if its rider is with a worker, or was.
    pub(super) rider: Option<Rider>,
    pub(super) failure: Option<CallError>,
    pub(super) passage: Option<Box<Passage>>,
}

/// All places of one model version.
#[derive(Debug, Default)]
pub(super) struct Roster {
    places: Slab<Place>,
    generation: u32,
}

impl Roster {
    /// Takes a rider in and names it.
    pub(super) fn board(&mut self, rider: Rider, passage: Option<Box<Passage>>) -> RequestId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let place = Place { generation, rider: Some(rider), failure: None, passage };
        RequestId::new(self.places.insert(place) as u32, generation)
    }

    /// Lets a rider get into a batch.
    pub(super) fn depart(&mut self, id: RequestId) -> Option<Rider> {
        self.place(id)?.rider.take()
    }

    /// Takes a rider back from a batch that must be tried again, with what went wrong.
    pub(super) fn come_back(&mut self, id: RequestId, rider: Rider, failure: Option<CallError>) {
        if let Some(place) = self.place(id) {
            place.rider = Some(rider);
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
        let Place { rider, failure, passage, .. } = self.places.remove(id.index());
        Ended { rider, failure, passage }
    }

    /// The ids of everybody who waits.
    pub(super) fn waiting(&self) -> Vec<RequestId> {
        let waits = |(index, place): (usize, &Place)| {
            place.rider.as_ref().map(|_| RequestId::new(index as u32, place.generation))
        };
        self.places.iter().filter_map(waits).collect()
    }

    fn place(&mut self, id: RequestId) -> Option<&mut Place> {
        let place = self.places.get_mut(id.index())?;
        (RequestId::new(id.index() as u32, place.generation) == id).then_some(place)
    }
}
