//! What the planner expects: how long a batch takes, which request is hopeless, when the queue is
//! empty.
//!
//! A view of the state and of the workers at one moment; it changes nothing. `choose` builds the
//! batch that each group would dispatch on it.

mod choose;

use super::curves::Curve;
use super::situation::MARGIN;
use crate::action::Rejection;
use crate::config::Measure;
use crate::forecast::WorkerForecast;
use crate::policy::Rules;
use crate::queue::QueueGroup;
use crate::request::{NEVER, Nanos, Request};
use crate::state::BatcherState;

pub(crate) use choose::{GroupChoice, PlannedBatch};

/// Requests without a deadline are rejected when the queue takes longer than this.
const DRAIN_MAX: Nanos = 30_000_000_000;

/// The state and the workers at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) state: &'a BatcherState,
    pub(crate) forecast: &'a WorkerForecast,
}

impl<'a> View<'a> {
    fn rules(&self) -> &'a Rules {
        &self.state.rules
    }

    fn group(&self, group: usize) -> &'a QueueGroup {
        &self.state.queue.groups()[group]
    }

    /// The service curve of a group.
    fn curve(&self, group: usize) -> Curve<'a> {
        Curve::new(self.state.learned.service(group), self.rules().config.run_sizes())
    }

    /// Size units that arrive per nanosecond.
    pub(crate) fn rate(&self) -> f64 {
        self.state.learned.rate(self.state.queue.planned_groups())
    }

    /// The expected time of a batch of this size, without its padding.
    pub(crate) fn mean(&self, group: usize, size: u64) -> f64 {
        self.state.learned.service(group).mean(size)
    }

    /// Why a new request is rejected, if it is: it would be late, or wait far too long.
    pub(crate) fn rejection(
        &self,
        request: &Request,
        group: usize,
        size: u32,
    ) -> Option<Rejection> {
        if request.deadline == NEVER {
            let overloaded = self.drain_time().is_some_and(|time| time > DRAIN_MAX);
            return overloaded.then_some(Rejection::Overload);
        }
        let soonest = self.forecast.soonest(self.rules().now)?;
        if self.hopeless(group, request.deadline, size, soonest) {
            return Some(Rejection::Hopeless);
        }
        self.crowded(request, group, size, soonest).then_some(Rejection::Overload)
    }

    /// Whether a request could not be in time even with a fast batch that starts `after` this time.
    pub(crate) fn hopeless(&self, group: usize, deadline: Nanos, size: u32, after: Nanos) -> bool {
        let way = self.way();
        self.misses(group, deadline, after, |curve| {
            curve.with_luck().planned(size.into()) as Nanos + way
        })
    }

    /// Whether a request is planned to be late in a batch of this size that starts soonest.
    pub(crate) fn late(&self, group: usize, deadline: Nanos, size: u64) -> bool {
        let (margin, size) = (self.margin(), size.min(u32::MAX.into()));
        let after = self.forecast.soonest(self.rules().now).unwrap_or(0);
        self.misses(group, deadline, after, |curve| curve.planned(size) as Nanos + margin)
    }

    fn misses(
        &self,
        group: usize,
        deadline: Nanos,
        after: Nanos,
        needs: impl Fn(Curve<'_>) -> Nanos,
    ) -> bool {
        let curve = self.curve(group);
        if deadline == NEVER || !curve.service.known() || self.doubts() {
            return false;
        }
        deadline < (self.rules().now + after).saturating_add(needs(curve) + 1)
    }

    /// When the first head of all planned groups becomes hopeless.
    pub(crate) fn hope_ends(&self) -> Nanos {
        let way = self.way();
        let mut first = NEVER;
        for (group, it) in self.state.queue.groups().iter().enumerate() {
            if !it.planned() || it.is_empty() {
                continue;
            }
            let curve = self.curve(group);
            let heads = it.queues.iter().filter_map(|queue| queue.head());
            for head in heads.filter(|head| head.deadline != NEVER && curve.service.known()) {
                let needs = curve.with_luck().planned(head.size.into()) as Nanos + 1 + way;
                first = first.min(head.deadline.saturating_sub(needs));
            }
        }
        first
    }

    /// Whether a new request will be late behind those that wait, each batch being full. Only where
    /// a full batch leaves time for another one: elsewhere the oldest are passed over and the newest
    /// are served, so that it cannot be known yet.
    fn crowded(&self, request: &Request, group: usize, size: u32, soonest: Nanos) -> bool {
        let queue = &self.group(group).queues[request.priority as usize];
        let cap = self.cap(group);
        let last = queue.last().is_some_and(|last| last.deadline <= request.deadline);
        // What batches take that are larger than those tried is a guess.
        if queue.size < cap || !last || cap < self.most() || self.doubts() {
            return false;
        }
        let curve = self.curve(group);
        if !curve.service.known() {
            return false;
        }
        let workers = self.forecast.len();
        let given = request.deadline.saturating_sub(self.rules().now) as f64;
        if curve.planned(cap) * (1.0 + 1.0 / workers) > given {
            return false;
        }
        let before = ((queue.size / cap) as f64 / workers).floor() * curve.mean(cap);
        let own = curve.with_luck().planned((queue.size % cap + u64::from(size)).min(cap));
        soonest as f64 + before + own + self.way() as f64 > given
    }

    /// Whether workers are idle and what was learned is uncertain: no request is rejected then.
    pub(crate) fn doubts(&self) -> bool {
        let idle = self.forecast.busy.is_empty() && self.forecast.requests == 0;
        let BatcherState { learned, queue, rules, .. } = self.state;
        idle && learned.uncertain(rules.now, queue.planned().len)
    }

    /// How long until all requests that wait have been answered, by the best rate known.
    pub(crate) fn drain_time(&self) -> Option<Nanos> {
        let groups = self.state.queue.groups().iter().enumerate();
        let planned = groups.filter(|(_, group)| group.planned());
        let (group, _) = planned.max_by_key(|(_, group)| group.queues[0].size)?;
        let soonest = self.forecast.soonest(self.rules().now)?;
        let (curve, size) = (self.curve(group), self.state.queue.planned().size);
        let cap = self.cap(group).min(size.max(1));
        let batches = size.div_ceil(cap) as f64;
        let time = (batches / self.forecast.len()).ceil() * curve.mean(cap);
        curve.service.known().then(|| soonest.saturating_add(time as Nanos))
    }

    fn margin(&self) -> Nanos {
        MARGIN + self.way()
    }

    /// What passes beyond a batch's time on its worker.
    fn way(&self) -> Nanos {
        self.state.learned.overhead() + self.rules().adaptive().delivery
    }

    /// The largest size that fits and is worth trying.
    fn cap(&self, group: usize) -> u64 {
        self.state.learned.service(group).cap().min(self.most()).max(1)
    }

    fn most(&self) -> u64 {
        let config = &self.rules().config;
        match config.measure {
            Measure::Items => config.max_items.into(),
            Measure::Packed | Measure::Padded => config.max_cost.min(u32::MAX.into()),
        }
    }
}
