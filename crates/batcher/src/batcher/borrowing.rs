//! Filling a padded batch with those who are a little shorter, under the adaptive policy.
//!
//! Apart from `planning`, which puts the batch itself together: only one that leaves nobody behind
//! in its lane and has room gets here. Nobody is borrowed who would be late in it or make it so, and
//! nobody of the shorter lane is passed over. `padding` says how much of a batch may be padding.

use super::Batcher;
use crate::adaptive::Trip;
use crate::padding::Mix;
use crate::records::List;

impl Batcher {
    /// Takes the heads of the shorter neighbours within this room.
    pub(super) fn borrow(&mut self, batch: &mut List, trip: Trip, mut room: u64) {
        let Some(lender) = self.planner.queue.shorter(trip.lane).filter(|_| room > 0) else {
            return;
        };
        let mut mix = Mix::of(self.records.walk(batch).map(|record| &record.request));
        for line in [trip.line, 1 - trip.line] {
            while let Some(head) = self.planner.queue.lanes[lender].lines[line].head()
                && let Some((grown, size)) = self.grown(mix, head.at, trip.lane)
                && size.saturating_sub(mix.size()) <= room
            {
                room -= size - mix.size();
                mix = grown;
                self.embark(batch, lender, line, 0);
            }
        }
    }

    /// The batch with this one too, unless that wastes or weighs too much or makes it late.
    fn grown(&self, mix: Mix, at: u32, lane: usize) -> Option<(Mix, u64)> {
        let request = &self.records[at].request;
        let (grown, config) = (mix.with(request), &self.rules.config);
        let size = grown.size();
        let held = config.holds(grown.items(), size.into());
        let late = || {
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            let start = self.planner.fleet.soonest(self.rules.now).unwrap_or(0);
            self.planner.late(lane, (request.deadline, size), start, &self.rules)
        };
        (mix.borrows(request) && held && !late()).then_some((grown, size))
    }
}
