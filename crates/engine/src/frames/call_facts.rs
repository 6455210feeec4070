//! What a definition is told of a call beside its headers, so that the calls that it makes itself can go on
//! with it: what is left of its deadline, where it came from, and whether it can wait.
//!
//! The headers have spaces in their names, which no client can send. What is usual is not said: such a
//! request costs nothing here.

use jitney_batcher::{OriginKind, Priority};
use tokio::time::Instant;

use crate::call::Input;
use crate::pending::PendingRequest;

/// Milliseconds until the call's deadline.
const DEADLINE_HEADER: &str = "jitney deadline";
/// Where the call came from, unless that is HTTP.
const ORIGIN_HEADER: &str = "jitney origin";
/// The call's priority, unless somebody waits for it.
const PRIORITY_HEADER: &str = "jitney priority";

/// A request as it is written into a frame.
pub(crate) struct BatchItem<'a> {
    pub(super) input: &'a Input,
    pub(super) facts: CallFacts,
}

impl<'a> BatchItem<'a> {
    /// None for an input that was decoded. What is known of the call is written only where `tells`.
    pub(crate) fn of(request: &'a PendingRequest, tells: bool) -> Option<Self> {
        let facts = if tells { CallFacts::of(request) } else { CallFacts::default() };
        Some(Self { input: request.payload.raw()?, facts })
    }
}

/// What is worth saying of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallFacts {
    left_ms: Option<u64>,
    origin: Option<&'static str>,
    bulk: bool,
}

impl CallFacts {
    fn of(request: &PendingRequest) -> Self {
        let left = request.deadline.map(|deadline| deadline.duration_since(Instant::now()));
        let origin = match request.facts.origin.kind {
            OriginKind::Http => None,
            OriginKind::Grpc => Some("grpc"),
            OriginKind::Python => Some("python"),
        };
        let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        Self { left_ms, origin, bulk: request.facts.priority == Priority::Bulk }
    }

    pub(super) fn headers(self, header: &mut impl FnMut(&str, &[u8])) {
        if let Some(left) = self.left_ms {
            header(DEADLINE_HEADER, left.to_string().as_bytes());
        }
        if let Some(origin) = self.origin {
            header(ORIGIN_HEADER, origin.as_bytes());
        }
        if self.bulk {
            header(PRIORITY_HEADER, b"bulk");
        }
    }
}
