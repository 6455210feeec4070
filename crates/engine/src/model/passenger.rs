//! A request between the door and the queue: checked and weighed, without a seat yet.
//!
//! It becomes one arrival, or one for each of its parts, which differ in nothing but their items
//! and what they weigh. It never waits anywhere.

use tokio::time::Instant;

use super::{Arrival, Ticket};
use crate::admission::Permit;
use crate::call::{Origin, Payload, PendingRequest, Priority};
use crate::reply::Reply;
use crate::shares::Weight;

/// What is known of a request before it has a seat: the same for all of its parts.
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
    /// Its way to the model's task, or that of a part.
    pub(super) fn arrival(
        &self,
        payload: Payload,
        reply: Reply,
        permit: Option<Permit>,
    ) -> Arrival {
        let Self { items, weight, deadline, admitted, bucket, priority, origin } = *self;
        let request = PendingRequest { payload, items, admitted, reply, permit };
        Arrival { request, deadline, bucket, weight, priority, origin, ticket: Ticket::default() }
    }
}
