//! What the planner writes into its journal.

use super::{Planner, Trip};
use crate::action::Rejection;
use crate::adaptive::journal::{Decision, DecisionKind};
use crate::request::{NEVER, Nanos};

impl Planner {
    /// Writes a departure or a wait into the journal.
    pub(crate) fn note(&mut self, trip: &Trip, kind: DecisionKind, now: Nanos) {
        let lane = &self.queue.lanes[trip.lane];
        let line = &lane.lines[trip.line];
        let deadline = line.get(trip.formed.skip).deadline;
        self.journal.write(Decision {
            at: now,
            kind,
            size: trip.formed.size,
            waiting: line.len() as u32,
            skipped: trip.formed.skip as u32,
            predicted: self.curves.get(lane.curve).mean(trip.formed.size) as Nanos,
            next_free: trip.next_free.saturating_sub(now),
            rate: self.rate() * 1e9,
            slack: (deadline != NEVER).then(|| deadline.saturating_sub(now)),
        });
    }

    /// Writes a refusal into the journal.
    pub(crate) fn note_refusal(
        &mut self,
        reason: Rejection,
        deadline: Nanos,
        size: u32,
        now: Nanos,
    ) {
        self.journal.write(Decision {
            at: now,
            kind: DecisionKind::Reject(reason),
            size: size.into(),
            waiting: self.queue.len,
            skipped: 0,
            predicted: 0,
            next_free: self.fleet.soonest(now).unwrap_or(0),
            rate: self.rate() * 1e9,
            slack: (deadline != NEVER).then(|| deadline.saturating_sub(now)),
        });
    }
}
