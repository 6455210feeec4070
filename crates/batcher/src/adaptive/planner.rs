//! The adaptive policy's memory: the models, the lines and the workers as last seen.
//!
//! Here it is told what happens; `predict` answers what to expect, `choose` which batch leaves. It
//! proposes a trip and the batcher carries it out; it never writes an action.

mod choose;
mod notes;
mod predict;

use super::curves::Curves;
use super::fair::Fair;
use super::fleet::Fleet;
use super::form::Formed;
use super::journal::Journal;
use super::queue::{Queue, size_of};
use super::rate::Rate;
use super::returns::Returns;
use super::tail::Tail;
use crate::action::DispatchReason;
use crate::config::{Adaptive, Config, Measure, Policy};
use crate::policy::Rules;
use crate::request::{NEVER, Nanos, Origin, Request};

/// Rates are taken over this many times a batch of one, or over up to twice as long if fewer than
/// so many would come in that time; within bounds. A burst is to be noticed soon, chance is not.
const RATE_BATCHES: f64 = 32.0;
const RATE_ARRIVALS: f64 = 96.0;
const RATE_MIN: f64 = 20e6;
const RATE_MAX: f64 = 2e9;
/// Requests belong together if they come within this share of the time of a batch of one.
const MOMENT: f64 = 1.0 / 32.0;
/// Deadlines are planned with this quantile of a batch's time. Only those at its head have no more
/// to spare, so that a low one loses few and lets batches be larger; one worker alone has fewer who
/// are so near to each other.
const SAFE: f64 = 0.9;
const SAFE_ALONE: f64 = 0.8;
/// Where nobody has a deadline a tenant's past is weighed over this time.
const GIVEN: f64 = 100e6;

/// A batch that leaves now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    pub(crate) lane: usize,
    pub(crate) line: usize,
    pub(crate) formed: Formed,
    pub(crate) reason: DispatchReason,
    /// When the next worker is expected to be free.
    pub(crate) next_free: Nanos,
    /// Size that may be filled from the other line.
    pub(crate) room: u64,
}

/// The adaptive policy's memory.
#[derive(Debug)]
pub(crate) struct Planner {
    pub(crate) queue: Queue,
    pub(crate) fair: Fair,
    pub(crate) fleet: Fleet,
    pub(crate) journal: Journal,
    curves: Curves,
    returns: Returns,
    /// All arrivals, in size, if there are several lanes; and the size of one of them.
    all: Rate,
    unit: f64,
    /// Size of the portions of a request whose last one has not come yet.
    pub(crate) brought: f64,
    /// From when a batch should leave until its worker can take it, and the rest of the way.
    handoff: Tail,
    overhead: Tail,
    /// How long before its planned end a batch is over.
    early: Tail,
    last_done: Nanos,
    /// Batches answered, up to where that stops mattering.
    answered: u32,
    /// Positions chosen by turns, and the lookahead of `form`; scratch.
    pub(crate) picked: Vec<u32>,
    free: Vec<Nanos>,
    /// When the first waiting batch leaves unless something happens before.
    pub(crate) until: Option<Nanos>,
}

impl Default for Planner {
    fn default() -> Self {
        Self {
            queue: Queue::default(),
            fair: Fair::default(),
            fleet: Fleet::default(),
            journal: Journal::default(),
            curves: Curves::default(),
            returns: Returns::default(),
            all: Rate::default(),
            unit: 1.0,
            brought: 0.0,
            handoff: Tail::new(0.0, 0.9, 50_000.0, 5_000.0),
            overhead: Tail::new(0.0, 0.9, 50_000.0, 5_000.0),
            early: Tail::new(0.0, 0.9, 50_000.0, 5_000.0),
            last_done: 0,
            answered: 0,
            picked: Vec::new(),
            free: Vec::new(),
            until: None,
        }
    }
}

impl Planner {
    // Learning

    /// A request arrives; says which lane it belongs to and its size there.
    pub(crate) fn arrived(&mut self, request: &Request, rules: &Rules) -> (usize, u32) {
        let size = size_of(request, rules.config.measure);
        let lane = self.lane(request, &rules.config);
        let amount = self.brought + f64::from(size);
        if request.more {
            self.brought = amount;
            return (lane, size);
        }
        let returned = self.returns.arrived(rules.now, request.origin);
        self.unit += (amount - self.unit) / 64.0;
        let lane_mut = &mut self.queue.lanes[lane];
        let one = self.curves.get(lane_mut.curve).mean(1);
        let short = RATE_BATCHES * one;
        lane_mut.flow.moment = MOMENT * one;
        let many = RATE_ARRIVALS * self.unit / lane_mut.flow.all.get().max(1e-12);
        let tau = many.clamp(short, 2.0 * short).clamp(RATE_MIN, RATE_MAX);
        lane_mut.flow.learn(rules.now, amount, tau, returned);
        if self.queue.lanes.len() > 1 {
            self.all.learn(rules.now, amount, tau);
        }
        (lane, size)
    }

    /// Size units that arrive per nanosecond.
    pub(crate) fn rate(&self) -> f64 {
        match &self.queue.lanes[..] {
            [only] => only.flow.all.get(),
            _ => self.all.get(),
        }
    }

    /// The lane of a request, with its curve.
    pub(crate) fn lane(&mut self, request: &Request, config: &Config) -> usize {
        let (lane, new) = self.queue.lane(request, config);
        if new {
            if self.queue.lanes.len() == 2 {
                self.all = self.queue.lanes[0].flow.all.clone();
            }
            let objective = adaptive(config).objective;
            self.queue.lanes[lane].curve = self.curves.place(request.group, objective);
        }
        lane
    }

    pub(crate) fn announce(&mut self, now: Nanos, origin: Origin) {
        self.returns.announce(now, origin);
    }

    pub(crate) fn retract(&mut self, origin: Origin) {
        self.returns.retract(origin);
    }

    /// A batch was within its worker's reach so long after it should have left.
    pub(crate) fn handed(&mut self, took: Nanos) {
        self.handoff.learn(took as f64);
        self.handoff.within(0.0, 1e9);
    }

    /// A batch was answered. `late`: what passed beyond its time on the worker.
    pub(crate) fn done(&mut self, now: Nanos, batch: (u16, u64), took: Nanos, late: Option<Nanos>) {
        self.last_done = now;
        self.answered = self.answered.saturating_add(1);
        self.queue.heads = None;
        let safe = if self.fleet.len() > 1.0 { SAFE } else { SAFE_ALONE };
        self.curves.learn((batch.0, batch.1), took, safe);
        if let Some(late) = late {
            self.overhead.learn(late as f64);
            self.overhead.within(0.0, 1e8);
        }
    }

    /// The members of an answered batch are clients who may come back.
    pub(crate) fn answered(&mut self, now: Nanos, origins: impl Iterator<Item = Origin>) {
        self.returns.batch(now);
        origins.for_each(|origin| self.returns.answered(now, origin));
    }

    /// A batch was over so long before it was expected to be.
    pub(crate) fn ended_early(&mut self, by: Nanos) {
        self.early.learn(by as f64);
        self.early.within(0.0, 1e9);
    }

    /// How long before its last batch is expected to end a worker may be handed the next one: long
    /// enough to reach it, also where it ends a little sooner.
    pub(crate) fn ahead(&self) -> Nanos {
        (self.handoff.get() + self.early.get()) as Nanos
    }

    pub(crate) fn curve_points(&self) -> impl Iterator<Item = super::CurvePoint> + '_ {
        self.curves.points()
    }

    /// What was given to the head of a tenant's lane, to weigh the past by.
    pub(crate) fn given(deadline: Nanos, arrived: Nanos) -> f64 {
        if deadline == NEVER { GIVEN } else { deadline.saturating_sub(arrived) as f64 }
    }
}

fn adaptive(config: &Config) -> Adaptive {
    match config.policy {
        Policy::Adaptive(adaptive) => adaptive,
        Policy::Window { .. } | Policy::Opportunistic => Adaptive::default(),
    }
}

/// Sizes a batch is padded to; only where size means items.
fn allowed(config: &Config) -> &[u32] {
    if config.measure == Measure::Items { &config.sizes } else { &[] }
}
