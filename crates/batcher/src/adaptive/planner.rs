//! The adaptive policy's decisions: which batch is dispatched next, which requests are rejected, and
//! when to look again.
//!
//! What it expects is in `view`, what was learned in `learned`. It takes requests out of the queue
//! and rejects them; the batcher dispatches what it has chosen.

use super::log::{Decision, DecisionKind, DecisionLog};
use super::view::{GroupChoice, PlannedBatch, View};
use super::wait::Wait;
use crate::action::{Actions, DispatchReason, Rejection};
use crate::config::Measure;
use crate::forecast::WorkerForecast;
use crate::records::RequestList;
use crate::request::{NEVER, Nanos, Priority, Request};
use crate::state::BatcherState;
use crate::workers::Ahead;

/// A queue that waits until its batch has the size with which the workers keep up. Only where there
/// is one group.
#[derive(Clone, Copy, Debug)]
struct Paced {
    group: usize,
    priority: usize,
    goal: u64,
    until: Nanos,
}

/// Plans batches of the groups in order of deadline.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    pub(crate) forecast: WorkerForecast,
    pub(crate) log: DecisionLog,
    /// How early a busy worker was handed a batch when the workers were last seen.
    pub(crate) ahead: Ahead,
    /// When the first waiting batch is dispatched unless something happens before.
    until: Option<Nanos>,
    /// Valid while the heads of the queue have not changed.
    paced: Option<(u64, Paced)>,
    /// Valid while neither the heads of the queue nor what was learned have changed.
    hope_ends: (u64, Nanos),
    /// Scratch: positions chosen by turns of the tenants, and when workers are free.
    picked: Vec<u32>,
    free: Vec<Nanos>,
}

impl Planner {
    // The workers

    /// Something other than an arrival happens.
    pub(crate) fn forget(&mut self) {
        self.forecast.invalidate();
        self.paced = None;
    }

    /// Looks at the workers, unless it is known which can take a batch and how soon another can.
    pub(crate) fn look(&mut self, state: &BatcherState) {
        if !self.forecast.stands(state.rules.now) {
            self.look_again(state);
        }
    }

    /// Looks at the workers, unless that was done at this very moment.
    pub(crate) fn look_again(&mut self, state: &BatcherState) {
        let now = state.rules.now;
        if !self.forecast.current(now) {
            self.ahead = state.learned.ahead();
            if state.learned.prepares() {
                self.ahead = self.preparing(state);
            }
            state.workers.survey(now, self.ahead, &mut self.forecast);
        }
    }

    /// How early a worker that prepares gets its next batch: by the group that takes longest. A full
    /// batch loses nothing by being there a little sooner, in case the last one ends early.
    fn preparing(&self, state: &BatcherState) -> Ahead {
        let Ahead { by, .. } = state.learned.ahead();
        let groups = state.queue.groups.iter().enumerate().filter(|(_, it)| it.planned());
        let most = self.view(state).most();
        let mut ahead = Ahead { by, prepare: 1 };
        for (group, it) in groups {
            let size: u64 = it.queues.iter().map(|queue| queue.size).sum();
            let prepare = state.learned.preparing(group, size.clamp(1, most));
            let spare = if size >= most { prepare / 2 } else { prepare / 16 };
            if prepare > ahead.prepare {
                ahead = Ahead { by: by + spare, prepare };
            }
        }
        ahead
    }

    /// Whether a worker can take a batch.
    pub(crate) fn has_worker(&self) -> bool {
        self.forecast.open > 0
    }

    pub(crate) fn several_workers(&self) -> bool {
        self.forecast.len() > 1.0
    }

    /// What is to be expected as the workers were last seen.
    pub(crate) fn view<'a>(&'a self, state: &'a BatcherState) -> View<'a> {
        View { state, forecast: &self.forecast }
    }

    // Dispatch

    /// Whether a wait for a larger batch goes on as it was decided.
    pub(crate) fn goes_on_waiting(&mut self, state: &BatcherState) -> bool {
        if self.has_worker()
            && let Some((changes, Paced { group, priority, goal, until })) = self.paced
            && changes == state.queue.head_changes
        {
            let queues = &state.queue.groups[group].queues;
            if state.rules.now < until
                && queues[priority].size < goal
                && queues[1 - priority].is_empty()
            {
                return true;
            }
        }
        self.until = None;
        false
    }

    /// The batch to dispatch now, if any; otherwise `until` is when to look again.
    pub(crate) fn next(&mut self, state: &mut BatcherState) -> Option<PlannedBatch> {
        if !self.has_worker() || state.queue.planned().len == 0 {
            return None;
        }
        self.look_again(state);
        state.learned.returns.close(state.rules.now);
        let mut free = std::mem::take(&mut self.free);
        let several = state.queue.planned_groups.0 > 1;
        let mut best: Option<(PlannedBatch, (u8, f64))> = None;
        for group in 0..state.queue.groups.len() {
            let it = &state.queue.groups[group];
            if it.is_empty() || !it.planned() {
                continue;
            }
            let view = View { state, forecast: &self.forecast };
            match view.choice(group, &mut free) {
                GroupChoice::Dispatch(batch) => {
                    let rank = if several { view.rank(&batch) } else { (0, 0.0) };
                    if best.is_none_or(|(_, other)| rank < other) {
                        best = Some((batch, rank));
                    }
                }
                GroupChoice::Wait(batch, wait) => {
                    if wait.tested {
                        state.learned.wait_trials.waited();
                    }
                    self.waits(state, &batch, wait, several);
                }
                GroupChoice::Nothing => {}
            }
        }
        self.free = free;
        best.map(|(batch, _)| batch)
    }

    fn waits(&mut self, state: &BatcherState, batch: &PlannedBatch, wait: Wait, several: bool) {
        let &PlannedBatch { group, priority, candidate, .. } = batch;
        self.note(state, batch, DecisionKind::Wait(wait.until));
        let goal = wait.goal.filter(|_| !several && candidate.skip == 0);
        self.paced = goal.map(|(goal, end)| {
            let paced = Paced { group, priority, goal, until: wait.until.min(end) };
            (state.queue.head_changes, paced)
        });
        self.until = Some(self.until.map_or(wait.until, |other| other.min(wait.until)));
    }

    /// Takes the batch out of the queue: the candidate, or as many by turns of the tenants, and then
    /// whatever fills the room that is left.
    pub(crate) fn take(&mut self, state: &mut BatcherState, batch: &PlannedBatch) -> RequestList {
        self.note(state, batch, DecisionKind::Dispatch(batch.reason));
        let &PlannedBatch { group, priority, candidate, .. } = batch;
        let BatcherState { rules, queue, records, .. } = &mut *state;
        let mut members = RequestList::EMPTY;
        let rest =
            candidate.skip + candidate.len < queue.groups[group].queues[priority].waiting.len();
        if rest && queue.tenants.contested() {
            let (from, picked) = (&queue.groups[group].queues[priority], &mut self.picked);
            queue.tenants.pick(from, candidate.skip, candidate.size, &rules.config, picked);
            for (taken, &position) in self.picked.iter().enumerate() {
                let position = position as usize - taken;
                queue.dispatch(records, (group, priority, position), &mut members);
            }
        }
        if members.len == 0 {
            for _ in 0..candidate.len {
                queue.dispatch(records, (group, priority, candidate.skip), &mut members);
            }
        }
        self.fill(state, batch, &mut members);
        members
    }

    /// Adds requests of the other priority, and shorter ones where lengths are padded, while that
    /// makes none late.
    fn fill(&self, state: &mut BatcherState, batch: &PlannedBatch, members: &mut RequestList) {
        let &PlannedBatch { group, priority, mut room, .. } = batch;
        let BatcherState { rules, queue, records, .. } = &mut *state;
        let other = 1 - priority;
        let it = &mut queue.groups[group];
        let waits = !it.queues[other].is_empty();
        let interactive = priority == Priority::Interactive as usize;
        it.led = if waits && interactive { it.led + 1 } else { 0 };
        while let Some(head) = queue.groups[group].queues[other].head()
            && u64::from(head.size) <= room
            && head.deadline > rules.now
            && rules
                .config
                .holds(members.items + u64::from(head.items), members.cost + u128::from(head.cost))
        {
            room -= u64::from(head.size);
            queue.dispatch(records, (group, other, 0), members);
        }
        let padded = rules.config.measure == Measure::Padded;
        if padded && room > 0 && queue.groups[group].is_empty() {
            state.borrow((group, priority), members, |state, head, size, added| {
                let fits = added <= room && !self.view(state).late(group, head.deadline, size);
                room -= if fits { added } else { 0 };
                fits
            });
        }
    }

    // Rejection

    /// Why a new request is rejected at once, if it is.
    pub(crate) fn rejection(
        &mut self,
        state: &BatcherState,
        request: &Request,
        group: usize,
    ) -> Option<Rejection> {
        self.look(state);
        let size = state.rules.config.size_of(request.items, request.cost);
        let reason = self.view(state).rejection(request, group, size)?;
        self.note_rejection(state, reason, request.deadline, size);
        Some(reason)
    }

    /// Rejects the requests at the heads that cannot be answered in time any more.
    pub(crate) fn reject_infeasible(&mut self, state: &mut BatcherState, out: &mut Actions) {
        if self.hope_ends(state) >= state.rules.now {
            return;
        }
        for group in 0..state.queue.groups.len() {
            for priority in 0..2 {
                self.reject_heads(state, (group, priority), 0, Rejection::Infeasible, out);
            }
        }
    }

    /// Rejects the requests that the batch has passed over and that will be late at the next worker.
    pub(crate) fn reject_passed_over(
        &mut self,
        state: &mut BatcherState,
        batch: &PlannedBatch,
        out: &mut Actions,
    ) {
        if batch.candidate.skip > 0 && batch.reason == DispatchReason::Deadline {
            self.look_again(state);
            let after = self.forecast.soonest(state.rules.now).unwrap_or(0);
            let queue = (batch.group, batch.priority);
            self.reject_heads(state, queue, after, Rejection::Overload, out);
        }
    }

    fn reject_heads(
        &mut self,
        state: &mut BatcherState,
        (group, priority): (usize, usize),
        after: Nanos,
        reason: Rejection,
        out: &mut Actions,
    ) {
        while state.queue.groups[group].planned()
            && let Some(&head) = state.queue.groups[group].queues[priority].head()
            && self.view(state).infeasible(group, head.deadline, head.size, after)
        {
            let retry_after = self.view(state).drain_time();
            self.note_rejection(state, reason, head.deadline, head.size);
            state.withdraw(head.at);
            state.reject(head.at, reason, retry_after, out);
        }
    }

    // Time

    /// When to decide again if nothing happens.
    pub(crate) fn next_look(&mut self, state: &BatcherState) -> Nanos {
        if state.queue.planned().len == 0 {
            return NEVER;
        }
        self.look(state);
        let hope_ends = match self.hope_ends(state) {
            NEVER => NEVER,
            _ if self.view(state).doubts() => NEVER,
            time => time.max(state.rules.now) + 1,
        };
        let ahead = self.forecast.ahead.filter(|_| self.forecast.open == 0).unwrap_or(NEVER);
        self.until.unwrap_or(NEVER).min(ahead).min(hope_ends)
    }

    /// When the first head becomes infeasible; computed anew only after a change.
    #[inline]
    fn hope_ends(&mut self, state: &BatcherState) -> Nanos {
        let changes = state.queue.head_changes + state.learned.changes();
        if self.hope_ends.0 != changes {
            self.hope_ends = (changes, self.view(state).hope_ends());
        }
        self.hope_ends.1
    }

    // The log

    fn note(&mut self, state: &BatcherState, batch: &PlannedBatch, kind: DecisionKind) {
        let (now, candidate) = (state.rules.now, batch.candidate);
        let queue = &state.queue.groups[batch.group].queues[batch.priority];
        let deadline = queue.waiting[candidate.skip].deadline;
        let view = self.view(state);
        let (predicted, rate) = (view.mean(batch.group, candidate.size), view.rate());
        self.log.write(Decision {
            at: now,
            kind,
            size: candidate.size,
            waiting: queue.waiting.len() as u32,
            skipped: candidate.skip as u32,
            predicted: predicted as Nanos,
            next_free: batch.next_free.saturating_sub(now),
            rate: rate * 1e9,
            slack: (deadline != NEVER).then(|| deadline.saturating_sub(now)),
        });
    }

    fn note_rejection(
        &mut self,
        state: &BatcherState,
        reason: Rejection,
        deadline: Nanos,
        size: u32,
    ) {
        let now = state.rules.now;
        self.log.write(Decision {
            at: now,
            kind: DecisionKind::Reject(reason),
            size: size.into(),
            waiting: state.queue.planned().len,
            skipped: 0,
            predicted: 0,
            next_free: self.forecast.soonest(now).unwrap_or(0),
            rate: self.view(state).rate() * 1e9,
            slack: (deadline != NEVER).then(|| deadline.saturating_sub(now)),
        });
    }
}
