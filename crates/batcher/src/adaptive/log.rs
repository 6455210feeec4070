//! The last decisions with the figures behind them, so that the policy can be explained.
//!
//! A ring of plain data; it never influences a decision.

use crate::action::{DispatchReason, Rejection};
use crate::request::Nanos;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecisionKind {
    /// A batch was dispatched.
    Dispatch(DispatchReason),
    /// A batch waits for more requests, until then at the latest.
    Wait(Nanos),
    /// A request was rejected.
    Reject(Rejection),
}

/// One decision and what it was based on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Nanos,
    /// What.
    pub kind: DecisionKind,
    /// Size of the batch.
    pub size: u64,
    /// Requests that waited in its group and priority, the batch included.
    pub waiting: u32,
    /// Requests at the head that were passed over because the batch would have been small.
    pub skipped: u32,
    /// How long the batch was expected to take.
    pub predicted: Nanos,
    /// How long until the next worker would have been free.
    pub next_free: Nanos,
    /// Size units that arrive in a second.
    pub rate: f64,
    /// Time left to the earliest deadline of the batch; none without a deadline.
    pub slack: Option<Nanos>,
}

/// Decisions that are kept. Bound: it never influences a decision.
const KEPT: usize = 64;

/// The last decisions.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    ring: Vec<Decision>,
    next: usize,
}

impl DecisionLog {
    /// Adds a decision in place of the oldest one. A wait that goes on is one decision.
    pub(crate) fn write(&mut self, decision: Decision) {
        if matches!(decision.kind, DecisionKind::Wait(_))
            && let Some(last) = self.last()
            && matches!(last.kind, DecisionKind::Wait(_))
        {
            *last = decision;
            return;
        }
        if self.ring.len() < KEPT {
            self.ring.reserve_exact(KEPT - self.ring.len());
            self.ring.push(decision);
            return;
        }
        self.ring[self.next] = decision;
        self.next = (self.next + 1) % KEPT;
    }

    fn last(&mut self) -> Option<&mut Decision> {
        let at = self.next.checked_sub(1).or(self.ring.len().checked_sub(1))?;
        self.ring.get_mut(at)
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.ring.split_at(self.next);
        older.iter().chain(newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(at: Nanos, kind: DecisionKind) -> Decision {
        let (size, waiting, skipped, predicted, next_free) = (1, 1, 0, 0, 0);
        let (rate, slack) = (0.0, None);
        Decision { at, kind, size, waiting, skipped, predicted, next_free, rate, slack }
    }

    #[test]
    fn the_last_decisions_are_kept_and_a_wait_that_goes_on_is_one() {
        let mut log = DecisionLog::default();
        for at in 0..100 {
            log.write(decision(at, DecisionKind::Dispatch(DispatchReason::Idle)));
        }
        for at in 100..110 {
            log.write(decision(at, DecisionKind::Wait(at + 5)));
        }
        let times: Vec<_> = log.iter().map(|it| it.at).collect();
        assert_eq!((times.len(), times[0], times[62], times[63]), (KEPT, 37, 99, 109));
    }
}
