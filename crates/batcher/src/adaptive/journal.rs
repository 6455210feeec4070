//! The last decisions with the figures behind them, so that the policy can explain itself.
//!
//! A ring of plain data; whoever shows it finds the words. It never influences a decision.

use crate::action::{Departure, Refusal};
use crate::request::Nanos;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// A batch left.
    Depart(Departure),
    /// A batch waits for company until then at the latest.
    Wait(Nanos),
    /// A request was refused.
    Refuse(Refusal),
}

/// One decision and what it was based on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Nanos,
    /// What.
    pub verdict: Verdict,
    /// Size of the batch.
    pub size: u64,
    /// Requests that waited in its lane, the batch included.
    pub waiting: u32,
    /// Requests at the head that were passed over because they would have made the batch small.
    pub skipped: u32,
    /// How long the batch was expected to take.
    pub predicted: Nanos,
    /// How long until the next worker would have been free.
    pub next_free: Nanos,
    /// Size units that arrive in a second.
    pub rate: f64,
    /// How long the most hurried member could still have waited; none without a deadline.
    pub slack: Option<Nanos>,
}

const KEPT: usize = 64;

/// The last decisions.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    ring: Vec<Decision>,
    next: usize,
}

impl Journal {
    /// Writes a decision down, over the oldest one. A wait that goes on is one decision.
    pub(crate) fn write(&mut self, decision: Decision) {
        if self.ring.len() < KEPT {
            self.ring.reserve_exact(KEPT - self.ring.len());
            self.ring.push(decision);
            return;
        }
        self.ring[self.next] = decision;
        self.next = (self.next + 1) % KEPT;
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.ring.split_at(self.next);
        older.iter().chain(newer)
    }
}
