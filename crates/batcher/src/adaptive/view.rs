//! What the planner expects: how long a batch takes, which request is infeasible, when the queue is
//! empty.
//!
//! A view of the state and of the workers at one moment; it changes nothing. On it rests what each
//! group would dispatch now, and why; or until when it waits.

mod ahead;

use super::rhythm::Rhythm;
use super::situation::{Candidate, MARGIN, Situation};
use super::wait::{Prospect, Wait};
use crate::action::{DispatchReason, Rejection};
use crate::config::{Adaptive, Measure};
use crate::fifo::BULK_TURN;
use crate::forecast::WorkerForecast;
use crate::learned::curves::Curve;
use crate::learned::returns::{OUT_MAX, Out};
use crate::policy::Rules;
use crate::queue::QueueGroup;
use crate::request::{NEVER, Nanos, Priority, Request};
use crate::state::BatcherState;

/// Requests without a deadline are rejected when the queue takes longer than this, in nanoseconds.
/// Chosen: clients have given up by then.
const DRAIN_MAX: Nanos = 30_000_000_000;
/// Bulk leads as well once its head has waited this many times what the interactive head is given.
/// Chosen: bulk is patient, not for ever.
const BULK_PATIENCE: Nanos = 10;
/// A group whose head has waited for this many full batches goes before fuller ones. Chosen: so that
/// none starves.
const STARVING: f64 = 8.0;
/// A protected tenant is kept in time only where the workers are this busy. Chosen: below it all are
/// in time anyway.
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
    /// The size of the requests of all clients together, where they come back.
    pub(crate) clients: Option<u64>,
}

/// What one group would do now.
#[derive(Debug)]
pub(crate) enum GroupChoice {
    Dispatch(PlannedBatch),
    Wait(PlannedBatch, Wait),
    Nothing,
}

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
        &self.state.queue.groups[group]
    }

    /// The service curve of a group, for a batch whose worker is free after this time.
    #[inline]
    fn curve(&self, group: usize, after: Nanos) -> Curve<'a> {
        let curve = Curve::new(self.state.learned.service(group), &[]);
        if self.plain() { curve } else { self.special(group, curve, after) }
    }

    /// Whether the model runs at any size, on workers that do not prepare batches.
    #[inline]
    fn plain(&self) -> bool {
        self.rules().config.sizes.is_empty() && !self.state.learned.prepares()
    }

    /// Size units that arrive per nanosecond.
    pub(crate) fn rate(&self) -> f64 {
        self.state.learned.rate(self.state.queue.planned_groups)
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
        if self.infeasible(group, request.deadline, size, soonest) {
            return Some(Rejection::Infeasible);
        }
        self.crowded(request, group, size, soonest).then_some(Rejection::Overload)
    }

    /// Whether a request could not be in time even with a fast batch that starts `after` this time.
    pub(crate) fn infeasible(
        &self,
        group: usize,
        deadline: Nanos,
        size: u32,
        after: Nanos,
    ) -> bool {
        let way = self.way();
        self.misses(group, deadline, after, |curve| curve.lucky(size.into()) as Nanos + way)
    }

    /// Whether a request is planned to be late in a batch of this size that starts soonest.
    pub(crate) fn late(&self, group: usize, deadline: Nanos, size: u64) -> bool {
        let (margin, size) = (self.margin(), size.min(u32::MAX.into()));
        let after = self.forecast.soonest(self.rules().now).unwrap_or(0);
        self.misses(group, deadline, after, |curve| curve.planned(size) as Nanos + margin)
    }

    #[inline]
    fn misses(
        &self,
        group: usize,
        deadline: Nanos,
        after: Nanos,
        needs: impl Fn(&Curve<'_>) -> Nanos,
    ) -> bool {
        let curve = self.curve(group, after);
        if deadline == NEVER || !curve.service.known() || self.doubts() {
            return false;
        }
        deadline < (self.rules().now + after).saturating_add(needs(&curve) + 1)
    }

    /// When the first head of all planned groups becomes infeasible.
    pub(crate) fn hope_ends(&self) -> Nanos {
        let way = self.way();
        let mut first = NEVER;
        for (group, it) in self.state.queue.groups.iter().enumerate() {
            if !it.planned() || it.is_empty() {
                continue;
            }
            let curve = self.curve(group, 0);
            let heads = it.queues.iter().filter_map(|queue| queue.head());
            for head in heads.filter(|head| head.deadline != NEVER && curve.service.known()) {
                let needs = curve.lucky(head.size.into()) as Nanos + 1 + way;
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
        let last = queue.waiting.back().is_some_and(|last| last.deadline <= request.deadline);
        // What batches take that are larger than those tried is a guess.
        if queue.size < cap || !last || cap < self.most() || self.doubts() {
            return false;
        }
        let curve = self.curve(group, soonest).following();
        if !curve.service.known() {
            return false;
        }
        let workers = self.forecast.len();
        let given = request.deadline.saturating_sub(self.rules().now) as f64;
        if curve.planned(cap) * (1.0 + 1.0 / workers) > given {
            return false;
        }
        let before = ((queue.size / cap) as f64 / workers).floor() * curve.cycle(cap);
        let own = curve.lucky((queue.size % cap + u64::from(size)).min(cap));
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
        let groups = self.state.queue.groups.iter().enumerate();
        let planned = groups.filter(|(_, group)| group.planned());
        let (group, _) = planned.max_by_key(|(_, group)| group.queues[0].size)?;
        let soonest = self.forecast.soonest(self.rules().now)?;
        let (curve, size) = (self.curve(group, soonest), self.state.queue.planned().size);
        let cap = self.cap(group).min(size.max(1));
        let batches = size.div_ceil(cap) as f64;
        let time = (batches / self.forecast.len()).ceil() * curve.cycle(cap);
        let time = time + curve.mean(cap) - curve.following().mean(cap);
        curve.service.known().then(|| soonest.saturating_add(time as Nanos))
    }

    fn margin(&self) -> Nanos {
        MARGIN + self.way()
    }

    /// What passes beyond a batch's time on its worker.
    fn way(&self) -> Nanos {
        self.state.learned.overhead() + self.rules().adaptive.delivery
    }

    /// The largest size that fits and is worth trying.
    fn cap(&self, group: usize) -> u64 {
        let worth_trying = match self.rules().adaptive.window {
            Some(_) => self.most(),
            None => self.state.learned.service(group).cap(),
        };
        worth_trying.min(self.most()).max(1)
    }

    pub(crate) fn most(&self) -> u64 {
        let config = &self.rules().config;
        match config.measure {
            Measure::Items => config.max_items.into(),
            Measure::Packed | Measure::Padded => config.max_cost.min(u32::MAX.into()),
        }
    }

    // What a group would do

    /// What a group that is not empty would do now; `free` is scratch.
    pub(crate) fn choice(&self, group: usize, free: &mut Vec<Nanos>) -> GroupChoice {
        let (it, rules) = (self.group(group), self.rules());
        let priority = leading(it, rules.now);
        let queue = &it.queues[priority];
        let cap = self.capped(group, priority);
        let clients = if self.plain() { None } else { self.clients(group) };
        let rhythm = clients.and_then(|clients| self.rhythm(group, cap, clients));
        let situation = self.situation(group, priority, cap, rhythm);
        let never_late = queue.head().is_some_and(|head| head.deadline == NEVER);
        let as_it_comes = self.state.workers.full_only() && never_late;
        let candidate = if situation.curve.service.compared() && !self.doubts() && !as_it_comes {
            situation.candidate(free)
        } else {
            situation.first()
        };
        let Some(candidate) = candidate else { return GroupChoice::Nothing };
        let all = candidate.skip + candidate.len == queue.waiting.len();
        let growable = all && candidate.size < cap.min(situation.goal()) && !rules.draining;
        if growable && let Some(wait) = self.waits(group, &situation, candidate, clients) {
            let (reason, next_free) = (DispatchReason::Idle, rules.now + wait.next_free);
            let room = 0;
            let batch =
                PlannedBatch { group, priority, candidate, reason, next_free, room, clients };
            return GroupChoice::Wait(batch, wait);
        }
        if self.too_soon(group, &situation, candidate, growable) {
            return GroupChoice::Nothing;
        }
        let reason = self.reason(group, &situation, candidate, growable);
        let next_free = match self.forecast.open {
            0 | 1 => situation.next_worker(candidate).max(0.0),
            _ => 0.0,
        };
        let candidate = match as_it_comes {
            true => candidate,
            false => situation.trim(candidate, next_free),
        };
        let next_free = rules.now + situation.next_worker(candidate).max(0.0) as Nanos;
        let alone = it.queues[1 - priority].is_empty() && rules.config.measure != Measure::Padded;
        let room = if alone { 0 } else { situation.room(candidate) };
        let batch = PlannedBatch { group, priority, candidate, reason, next_free, room, clients };
        GroupChoice::Dispatch(batch)
    }

    /// The smallest goes first. Urgent groups by deadline; then starving ones by age; then the rest
    /// by what they serve per unit of time, in which padding does not count.
    pub(crate) fn rank(&self, batch: &PlannedBatch) -> (u8, f64) {
        let (now, Candidate { skip, len, size, .. }) = (self.rules().now, batch.candidate);
        let queue = &self.group(batch.group).queues[batch.priority];
        let head = &queue.waiting[skip];
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
            Measure::Padded => (skip..skip + len).map(|at| queue.waiting[at].cost as f64).sum(),
        };
        (2, -real / mean)
    }

    /// Until when this batch waits, if it does.
    fn waits(
        &self,
        group: usize,
        situation: &Situation<'_>,
        candidate: Candidate,
        clients: Option<u64>,
    ) -> Option<Wait> {
        if let Some(end) = self.window_end(group) {
            return self.window(situation, candidate, end);
        }
        let BatcherState { learned, workers, .. } = self.state;
        if learned.prepares() && (workers.full_only() || !self.forecast.idles()) {
            return self.gathers(situation, candidate, clients);
        }
        let head = &situation.queue.waiting[candidate.skip];
        // With a deadline the question is who is late, and not how long requests take. How workers that prepare are best
        // filled is tried out elsewhere, and two tests at a time would disturb each other.
        let tested = head.deadline == NEVER && !learned.prepares();
        if tested && !learned.wait_trials.allows() {
            return None;
        }
        let (now, mut out) = (self.rules().now, [Out::default(); OUT_MAX]);
        let out = self.state.learned.returns.out(now, self.forecast.requests, &mut out);
        let wait = self.prospect(group, out).wait(situation, candidate)?;
        let longest = self.rules().adaptive.max_wait.unwrap_or(NEVER);
        let until = wait.until.min(head.arrived.saturating_add(longest));
        (until > now).then_some(Wait { until, tested, ..wait })
    }

    /// When the window of the oldest request ends, where there is a window.
    fn window_end(&self, group: usize) -> Option<Nanos> {
        let Adaptive { window, max_wait, .. } = self.rules().adaptive;
        let window = window?.min(max_wait.unwrap_or(NEVER));
        let waiting = self.group(group).queues.iter().flat_map(|queue| &queue.waiting);
        Some(waiting.map(|request| request.arrived).min()?.saturating_add(window))
    }

    /// A window is not worth a deadline: no request spends more than half of its time in one.
    fn window(&self, situation: &Situation<'_>, candidate: Candidate, end: Nanos) -> Option<Wait> {
        let head = &situation.queue.waiting[candidate.skip];
        let latest = situation.latest(candidate, self.state.learned.unit);
        let until = end.min(head.half_time()).min(latest);
        let next_free = situation.next_worker(candidate).max(0.0) as Nanos;
        (until > self.rules().now).then_some(Wait { until, next_free, goal: None, tested: false })
    }

    fn reason(
        &self,
        group: usize,
        situation: &Situation<'_>,
        candidate: Candidate,
        growable: bool,
    ) -> DispatchReason {
        let (learned, rules) = (&self.state.learned, self.rules());
        if rules.draining {
            DispatchReason::Drain
        } else if candidate.hurried || rules.now >= situation.latest(candidate, learned.unit) {
            DispatchReason::Deadline
        } else if !growable {
            DispatchReason::Full
        } else if let Some(end) = self.window_end(group) {
            if end <= rules.now { DispatchReason::Window } else { DispatchReason::Deadline }
        } else if candidate.len > 1 && learned.returns.all_back(rules.now) {
            DispatchReason::Everyone
        } else {
            DispatchReason::Idle
        }
    }

    fn situation(
        &self,
        group: usize,
        priority: usize,
        cap: u64,
        rhythm: Option<Rhythm>,
    ) -> Situation<'a> {
        let rules = self.rules();
        let curve = self.curve(group, self.forecast.head_start);
        let single = rhythm.is_some_and(|it| it.at_a_time == 1);
        Situation {
            queue: &self.group(group).queues[priority],
            curve: if single { curve.one_by_one() } else { curve },
            config: &rules.config,
            forecast: self.forecast,
            start: rules.now + self.forecast.head_start.min(DRAIN_MAX),
            margin: self.margin(),
            cap,
            rate: self.rate(),
            rhythm,
        }
    }

    fn prospect<'b>(&self, group: usize, out: &'b [Out]) -> Prospect<'b>
    where
        'a: 'b,
    {
        let (learned, now) = (&self.state.learned, self.rules().now);
        let (flow, unit) = (learned.flow(group), learned.unit);
        let (rate, total) = (flow.all.get(), self.rate());
        Prospect {
            returns: &learned.returns,
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
        if head.deadline == NEVER || !self.state.queue.tenants.protects(self.rules().now, given) {
            return cap;
        }
        let situation = self.situation(group, priority, cap, None);
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
