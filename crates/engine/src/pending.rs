//! A request inside the engine, from its admission to its end: packed once, then only moved.
//!
//! Ownership is the protocol: whoever holds a [`PendingRequest`] owes the answer, and dropping it
//! anywhere tells the caller that the request was lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jitney_batcher::{Request, RequestId};
use tokio::time::Instant;

use crate::admission::Permit;
use crate::call::{DecodedInput, Input, RequestMark, SequenceRef};
use crate::reply::Reply;

/// What a model's worker understands: made from an [`Input`] by the model's intake.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Passed on to a Python worker as it came.
    Raw(Box<Input>),
    /// Checked and decoded for a model that runs in this process, with the id of its request and the sequence that it
    /// names.
    Decoded(Arc<dyn DecodedInput>, Box<str>, Option<Box<SequenceRef>>),
}

impl Payload {
    /// The input as it came; none if it was decoded.
    pub(crate) fn raw(&self) -> Option<&Input> {
        match self {
            Self::Raw(input) => Some(input),
            Self::Decoded(..) => None,
        }
    }

    /// The id of its request and the sequence that it names.
    pub(crate) fn sequence(&mut self) -> (&str, &mut Option<Box<SequenceRef>>) {
        match self {
            Self::Raw(input) => (&input.id, &mut input.route.sequence),
            Self::Decoded(_, id, sequence) => (id, sequence),
        }
    }

    /// The id of its request.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Raw(input) => &input.id,
            Self::Decoded(_, id, _) => id,
        }
    }
}

/// A request, or a part of one, that was admitted and has not ended.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// What the batcher knows of it: items, cost, tenant, deadline, group, priority, origin. Its id
    /// is set by the table of requests.
    pub(crate) facts: Request,
    /// What the worker is given. Kept until the end, so that a retry needs no second copy.
    pub(crate) payload: Payload,
    /// Items that it brings beyond those that a batch holds; its worker runs them in several calls.
    pub(crate) beyond: u32,
    /// Where the requests of its endpoint are counted, for models with several.
    pub(crate) endpoint: Option<EndpointIndex>,
    /// When its answer comes too late, if ever.
    pub(crate) deadline: Option<Instant>,
    /// When it was admitted.
    pub(crate) admitted: Instant,
    /// The way back.
    pub(crate) reply: Reply,
    /// Its share of the server's limits; returned when the request ends. None for a part, whose reply
    /// keeps that of the whole request.
    pub(crate) permit: Option<Permit>,
    /// How its caller learns its id.
    pub(crate) id: SharedId,
    /// Who pays for it.
    pub(crate) tenant: Option<Arc<str>>,
    /// What its protocol wants to find again with its batches.
    pub(crate) mark: Option<RequestMark>,
    /// Whether it ran beside others in a worker that exited. It is tried once more, and then no more.
    pub(crate) tried: bool,
}

/// The number of an endpoint among those that are counted by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointIndex(pub(crate) u8);

impl PendingRequest {
    pub(crate) fn new(
        facts: Request,
        payload: Payload,
        admitted: Instant,
        reply: Reply,
        permit: Option<Permit>,
    ) -> Self {
        let (beyond, endpoint, deadline, id, mark) = (0, None, None, SharedId::default(), None);
        Self {
            facts,
            payload,
            beyond,
            endpoint,
            deadline,
            admitted,
            reply,
            permit,
            id,
            tenant: None,
            mark,
            tried: false,
        }
    }
}

/// Ids that one line of the log names.
const IDS_SHOWN: usize = 8;

/// The ids of requests as the log shows them: the first ones, and how many more there are.
pub(crate) struct ShownIds<'a>(pub(crate) &'a [PendingRequest]);

impl fmt::Display for ShownIds<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for request in self.0.iter().take(IDS_SHOWN) {
            write!(out, "{between}{}", request.payload.id())?;
            between = ",";
        }
        match self.0.len().saturating_sub(IDS_SHOWN) {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

/// The id of a request, held by its caller too: 0 until the model's task has taken the request in.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedId(Arc<AtomicU64>);

impl SharedId {
    /// The id of a request that has none yet; generations start at 1, so no other is like it.
    pub(crate) const UNSET: RequestId = RequestId(0);

    pub(crate) fn set(&self, id: RequestId) {
        self.0.store(id.0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<RequestId> {
        let id = RequestId(self.0.load(Ordering::Relaxed));
        (id != Self::UNSET).then_some(id)
    }
}
