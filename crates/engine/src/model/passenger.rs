//! A request between the door and the queue: checked and weighed, without a seat yet.
//!
//! It becomes one arrival, or one for each of its portions, which differ in nothing but their items
//! and what they weigh. It never waits anywhere.

use tokio::time::Instant;

use super::{Arrival, Ticket};
use crate::admission::Permit;
use crate::call::{Origin, Payload, Priority, Rider};
use crate::reply::Reply;
use crate::shares::Weight;

/// What is known of a request before it has a seat: the same for all of its portions.
pub(super) struct Passenger {
    pub(super) items: u32,
    pub(super) weight: Weight,
    pub(super) deadline: Option<Instant>,
    pub(super) admitted: Instant,
    pub(super) bucket: u16,
    pub(super) priority: Priority,
    pub(super) origin: Origin,
}

impl Passenger {
    /// Its way to the model's task, or that of a portion.
    pub(super) fn arrival(
        &self,
        payload: Payload,
        reply: Reply,
        permit: Option<Permit>,
    ) -> Arrival {
        let Self { items, weight, deadline, admitted, bucket, priority, origin } = *self;
        let rider = Rider { payload, items, admitted, reply, permit };
        Arrival { rider, deadline, bucket, weight, priority, origin, ticket: Ticket::default() }
    }
}
