//! What each group would dispatch now, and why; or until when it waits.

use super::{DRAIN_MAX, View};
use crate::action::DispatchReason;
use crate::adaptive::returns::{OUT_MAX, Out};
use crate::adaptive::situation::{Candidate, Situation};
use crate::adaptive::wait::{Prospect, Wait};
use crate::config::Measure;
use crate::fifo::BULK_TURN;
use crate::queue::QueueGroup;
use crate::request::{NEVER, Nanos, Priority};

/// Bulk leads as well once its head has waited this many times what the interactive head is given.
const BULK_PATIENCE: Nanos = 10;
/// A group whose head has waited for this many full batches goes before fuller ones.
const STARVING: f64 = 8.0;
/// A protected tenant is kept in time only where the workers are this busy.
const PROTECT_LOAD: f64 = 0.8;

/// A batch that the planner dispatches now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedBatch {
    pub(crate) group: usize,
    pub(crate) priority: usize,
    pub(crate) candidate: Candidate,
    pub(crate) reason: DispatchReason,
    /// When the next worker is expected to be free.
    pub(crate) next_free: Nanos,
    /// Size that requests of the other priority may add.
    pub(crate) room: u64,
}

/// What one group would do now.
#[derive(Debug)]
pub(crate) enum GroupChoice {
    Dispatch(PlannedBatch),
    Wait(PlannedBatch, Wait),
    Nothing,
}

impl<'a> View<'a> {
    /// What a group that is not empty would do now; `free` is scratch.
    pub(crate) fn choice(&self, group: usize, free: &mut Vec<Nanos>) -> GroupChoice {
        let (it, rules) = (self.group(group), self.rules());
        let priority = leading(it, rules.now);
        let queue = &it.queues[priority];
        let cap = self.capped(group, priority);
        let situation = self.situation(group, priority, cap);
        let candidate = if situation.curve.service.compared() && !self.doubts() {
            situation.candidate(free)
        } else {
            situation.first()
        };
        let Some(candidate) = candidate else { return GroupChoice::Nothing };
        let all = candidate.skip + candidate.len == queue.len();
        let growable = all && candidate.size < cap && !rules.draining;
        if growable && let Some(wait) = self.waits(group, &situation, candidate) {
            let (reason, next_free) = (DispatchReason::Idle, rules.now + wait.next_free);
            let batch = PlannedBatch { group, priority, candidate, reason, next_free, room: 0 };
            return GroupChoice::Wait(batch, wait);
        }
        let reason = self.reason(&situation, candidate, growable);
        let next_free = match self.forecast.open {
            0 | 1 => situation.next_worker(candidate).max(0.0),
            _ => 0.0,
        };
        let candidate = situation.trim(candidate, next_free);
        let next_free = rules.now + situation.next_worker(candidate).max(0.0) as Nanos;
        let alone = it.queues[1 - priority].is_empty() && rules.config.measure != Measure::Padded;
        let room = if alone { 0 } else { situation.room(candidate) };
        GroupChoice::Dispatch(PlannedBatch { group, priority, candidate, reason, next_free, room })
    }

    /// The smallest goes first. Urgent groups by deadline; then starving ones by age; then the rest
    /// by what they serve per unit of time, in which padding does not count.
    pub(crate) fn rank(&self, batch: &PlannedBatch) -> (u8, f64) {
        let (now, Candidate { skip, len, size, .. }) = (self.rules().now, batch.candidate);
        let queue = &self.group(batch.group).queues[batch.priority];
        let head = queue.get(skip);
        let mean = self.mean(batch.group, size);
        let slack = head.deadline.saturating_sub(now) as f64;
        let age = now.saturating_sub(head.arrived) as f64;
        if head.deadline != NEVER && slack < 3.0 * mean {
            return (0, head.deadline as f64);
        }
        if age > STARVING * mean {
            return (1, head.arrived as f64);
        }
        let real = match self.rules().config.measure {
            Measure::Items | Measure::Packed => size as f64,
            Measure::Padded => (skip..skip + len).map(|at| queue.get(at).cost as f64).sum(),
        };
        (2, -real / mean)
    }

    /// Until when this batch waits, if it does.
    fn waits(&self, group: usize, situation: &Situation<'_>, candidate: Candidate) -> Option<Wait> {
        let (now, mut out) = (self.rules().now, [Out::default(); OUT_MAX]);
        let out = self.state.learned.returns().out(now, self.forecast.requests, &mut out);
        let wait = self.prospect(group, out).wait(situation, candidate)?;
        let head = situation.queue.get(candidate.skip);
        let longest = self.rules().adaptive().max_wait.unwrap_or(NEVER);
        let until = wait.until.min(head.arrived.saturating_add(longest));
        (until > now).then_some(Wait { until, ..wait })
    }

    fn reason(
        &self,
        situation: &Situation<'_>,
        candidate: Candidate,
        growable: bool,
    ) -> DispatchReason {
        let (learned, rules) = (&self.state.learned, self.rules());
        if rules.draining {
            DispatchReason::Drain
        } else if candidate.hurried || rules.now >= situation.latest(candidate, learned.unit()) {
            DispatchReason::Deadline
        } else if !growable {
            DispatchReason::Full
        } else if candidate.len > 1 && learned.returns().all_back(rules.now) {
            DispatchReason::Everyone
        } else {
            DispatchReason::Idle
        }
    }

    fn situation(&self, group: usize, priority: usize, cap: u64) -> Situation<'a> {
        let rules = self.rules();
        Situation {
            queue: &self.group(group).queues[priority],
            curve: self.curve(group),
            config: &rules.config,
            forecast: self.forecast,
            start: rules.now + self.forecast.head_start.min(DRAIN_MAX),
            margin: self.margin(),
            cap,
            rate: self.rate(),
        }
    }

    fn prospect<'b>(&self, group: usize, out: &'b [Out]) -> Prospect<'b>
    where
        'a: 'b,
    {
        let (learned, now) = (&self.state.learned, self.rules().now);
        let (flow, unit) = (learned.flow(group), learned.unit());
        let (rate, total) = (flow.all.get(), self.rate());
        Prospect {
            returns: learned.returns(),
            out,
            unit,
            share: if total > 0.0 { (rate / total).min(1.0) } else { 1.0 },
            rate,
            open_rate: flow.open().after_silence(now, unit),
            last_open: flow.open().last(),
            company: flow.company(unit),
            moment: flow.moment,
            now,
        }
    }

    /// The largest size to try: by what was seen, and for the sake of protected tenants.
    fn capped(&self, group: usize, priority: usize) -> u64 {
        let cap = self.cap(group);
        let Some(head) = self.group(group).queues[priority].head() else { return cap };
        let given = head.given();
        if head.deadline == NEVER || !self.state.queue.tenants().protects(self.rules().now, given) {
            return cap;
        }
        let situation = self.situation(group, priority, cap);
        let workers = self.forecast.len();
        let time = given * workers / (workers + 1.0);
        let short = situation.curve.largest_within(cap, time).max(1);
        if situation.load(short) > PROTECT_LOAD { short } else { cap }
    }
}

/// The priority that leads: interactive, unless it is the turn of bulk.
fn leading(group: &QueueGroup, now: Nanos) -> usize {
    let [interactive, bulk] = &group.queues;
    let (Some(head), Some(patient)) = (interactive.head(), bulk.head()) else {
        return usize::from(interactive.is_empty());
    };
    let given = head.deadline.saturating_sub(head.arrived);
    let tired = head.deadline != NEVER
        && now.saturating_sub(patient.arrived) > given.saturating_mul(BULK_PATIENCE);
    let turn = if group.led >= BULK_TURN || tired { Priority::Bulk } else { Priority::Interactive };
    turn as usize
}
