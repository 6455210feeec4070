//! What the batcher has learned: how long batches take, how fast requests come, which clients come back.
//!
//! `curves` and `service` know how long a batch takes, `rate`, `returns`, `return_times` and `evidence`
//! which requests will come, `trials` and `wait_trials` what was tried where the curves leave it open. All are told what
//! happens under every policy, so that the adaptive one can start at any time. They never decide
//! anything.

pub(crate) mod curves;
mod curves_by_workers;
mod evidence;
mod rate;
pub(crate) mod return_times;
pub(crate) mod returns;
pub(crate) mod service;
pub(crate) mod trials;
pub(crate) mod wait_trials;

pub use self::curves::CurvePoint;
use self::curves::{BatchPreparation, Curves, Stretch};
use self::curves_by_workers::CurvesByWorkers;
use self::rate::{Flow, Rate};
use self::returns::Returns;
use self::service::{Service, Tail};
use self::trials::Trials;
pub use self::wait_trials::WaitScore;
use self::wait_trials::WaitTrials;
use crate::policy::Rules;
use crate::request::{Nanos, Origin, Request};
use crate::workers::{Ahead, ExpectedTimes, StageTimes};

/// Rates are taken over this many times a batch of one. Measured: half of what it was notices bursts
/// sooner (four workers: 0.886 to 0.901 of the limit).
const RATE_BATCHES: f64 = 32.0;
/// Where fewer than so many requests would come in that time, it is up to twice as long. Measured:
/// with `RATE_BATCHES`; slow models stayed as they were.
const RATE_ARRIVALS: f64 = 96.0;
/// Rates are taken over no shorter time, in nanoseconds. Chosen: the clock and the scheduler disturb
/// shorter ones.
const RATE_MIN: f64 = 20e6;
/// Rates are taken over no longer time, in nanoseconds. Chosen: two seconds old is old.
const RATE_MAX: f64 = 2e9;
/// Requests belong together if they come within this share of the time of a batch of one. Chosen: so
/// short that waiting for it costs next to nothing.
const MOMENT: f64 = 1.0 / 32.0;
/// Deadlines are planned with this quantile of a batch's time. Only the requests at its head have no
/// more to spare, so that a low one loses few and allows larger batches. Measured: table `g99`; 0.8
/// serves as many, but decisions under overload take 4 % more instructions.
const SAFE: f64 = 0.9;
/// The same with one worker alone: fewer requests are so near to each other. Measured: table `g99`.
const SAFE_ALONE: f64 = 0.8;
/// What was learned is doubted when no batch was answered for this long, in nanoseconds. Chosen: a
/// machine may have changed in a quarter of a second.
const STALE: Nanos = 250_000_000;
/// No batch reaches its worker sooner than this, in nanoseconds. Chosen: ten microseconds; sockets
/// are not faster.
const HANDOFF_MIN: f64 = 1e4;
/// How fast it is learned by how much the stages of a worker slow each other down. Chosen: a few
/// batches.
const STRETCH_STEP: f64 = 0.3;
/// So many batches must be answered before a single request is rejected by what they took. Chosen:
/// fewer say little about a quantile.
const PROVEN: u64 = 20;

/// What a stage would have taken alone that shared this part of its time with the other one; learns
/// how much longer it takes then, where it is known what it takes alone.
fn alone(stretch: &mut f64, took: Nanos, shared: f64, known: Option<f64>) -> Nanos {
    if let Some(mean) = known.filter(|_| shared > 0.0) {
        let longer = took as f64 / mean - 1.0;
        let missing = (longer - shared * *stretch).clamp(-1.0, 1.0);
        *stretch = (*stretch + STRETCH_STEP * shared * missing).max(0.0);
    }
    (took as f64 / (1.0 + shared * *stretch)) as Nanos
}

/// What was learned about one group of the queue.
#[derive(Debug, Default)]
struct GroupModel {
    /// Which service curve it has.
    curve: usize,
    flow: Flow,
}

/// All that was learned.
#[derive(Debug)]
pub(crate) struct Learned {
    /// By the number of the group in the queue; meaningless for groups that are not planned.
    groups: Vec<GroupModel>,
    /// What is known with as many workers as there are.
    pub(crate) curves: Curves,
    /// The same with other numbers of them.
    others: CurvesByWorkers,
    pub(crate) returns: Returns,
    /// All arrivals, in size, if there are several groups.
    all: Rate,
    /// Size of a request on average.
    pub(crate) unit: f64,
    /// Size of the parts of a request whose last part has not arrived yet.
    parts: f64,
    /// From when a batch should be dispatched until its worker can take it, and what else passes
    /// beyond its time on the worker.
    handoff: Tail,
    overhead: Tail,
    /// How long before its planned end a batch is over.
    early: Tail,
    /// How much longer preparing and running take while they overlap.
    stretch: Stretch,
    /// What so many batches at a time have brought.
    pub(crate) trials: Trials,
    /// What waiting has brought.
    pub(crate) wait_trials: WaitTrials,
    last_done: Nanos,
    /// Batches answered.
    answered: u64,
}

impl Default for Learned {
    fn default() -> Self {
        let tail = |most| Tail::new(0.0, 0.9, (50_000.0, 5_000.0), (0.0, most));
        Self {
            groups: Vec::new(),
            curves: Curves::default(),
            others: CurvesByWorkers::default(),
            returns: Returns::default(),
            all: Rate::default(),
            unit: 1.0,
            parts: 0.0,
            handoff: tail(1e9),
            overhead: tail(1e8),
            early: tail(1e9),
            stretch: Stretch::default(),
            trials: Trials::default(),
            wait_trials: WaitTrials::default(),
            last_done: 0,
            answered: 0,
        }
    }
}

impl Learned {
    // What happens

    /// The queue has a new planned group of these requests. `planned`: how many there are, and the
    /// first of them.
    pub(crate) fn new_group(
        &mut self,
        group: usize,
        requests: u16,
        planned: (usize, usize),
        objective: Option<Nanos>,
    ) {
        if planned.0 == 2 {
            self.all = self.groups[planned.1].flow.all.clone();
        }
        let curve = self.curves.index(requests, objective);
        self.groups.resize_with(self.groups.len().max(group + 1), GroupModel::default);
        self.groups[group] = GroupModel { curve, flow: Flow::default() };
    }

    /// So many workers share the machine from now on.
    pub(crate) fn workers(&mut self, count: u32) {
        self.others.change(count, &mut self.curves);
    }

    /// How many workers share the machine.
    pub(crate) fn worker_count(&self) -> u32 {
        self.others.workers()
    }

    /// How many did before that changed last, and what was known then.
    pub(crate) fn before(&self) -> Option<(u32, &Curves)> {
        self.others.before()
    }

    /// Another number whenever the time of a batch may be expected to be another.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.answered + self.others.changes
    }

    /// A request arrives in one of so many planned groups.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        request: &Request,
        size: u32,
        group: usize,
        planned_groups: usize,
        now: Nanos,
    ) {
        let amount = self.parts + f64::from(size);
        if request.more {
            self.parts = amount;
            return;
        }
        let returned = self.returns.arrived(now, request.origin);
        self.unit += (amount - self.unit) / 64.0;
        let GroupModel { curve, flow } = &mut self.groups[group];
        let one = self.curves.get(*curve).mean(1);
        let short = RATE_BATCHES * one;
        flow.moment = MOMENT * one;
        let many = RATE_ARRIVALS * self.unit / flow.all.get().max(1e-12);
        let tau = many.clamp(short, 2.0 * short).clamp(RATE_MIN, RATE_MAX);
        flow.learn(now, amount, tau, returned);
        if planned_groups > 1 {
            self.all.learn(now, amount, tau);
        }
    }

    /// No more parts of the last request will arrive.
    pub(crate) fn request_complete(&mut self) {
        self.parts = 0.0;
    }

    /// A batch reached its worker this long after it should have been dispatched.
    pub(crate) fn handed(&mut self, took: Nanos) {
        self.handoff.learn(took as f64);
    }

    /// A batch of this group and size was answered. `late`: what passed beyond its time on the
    /// worker. `several`: there are several workers.
    pub(crate) fn done(
        &mut self,
        now: Nanos,
        batch: (u16, u64),
        took: Nanos,
        late: Option<Nanos>,
        several: bool,
    ) {
        self.last_done = now;
        self.answered += 1;
        self.curves.learn(batch, took, if several { SAFE } else { SAFE_ALONE });
        if let Some(late) = late {
            self.overhead.learn(late as f64);
        }
    }

    /// The stages of a batch of this group and size took so long, while others were prepared or run.
    /// What the curves know is how long they take alone; returns that for the model.
    pub(crate) fn staged(
        &mut self,
        (group, size, runs_at): (u16, u64, u64),
        times: StageTimes,
        exec: Nanos,
    ) -> Nanos {
        let StageTimes { prepare, prepare_shared, exec_shared } = times;
        let index = self.curves.index(group, None);
        let known = Some(self.curves.get(index)).filter(|it| it.known());
        let model =
            alone(&mut self.stretch.model, exec, exec_shared, known.map(|it| it.mean(runs_at)));
        let known = self.curves.prepare(index).map(|it| it.mean(size));
        let prepare = alone(&mut self.stretch.prepare, prepare, prepare_shared, known);
        self.curves.learn_prepare((group, size), prepare.max(1));
        model
    }

    /// The clients of an answered batch may come back.
    pub(crate) fn answered(&mut self, now: Nanos, origins: impl Iterator<Item = Origin>) {
        self.returns.batch(now);
        origins.for_each(|origin| self.returns.answered(now, origin));
        self.returns.batch_over(now);
    }

    /// A batch was over this long before it was expected to be.
    pub(crate) fn ended_early(&mut self, by: Nanos) {
        self.early.learn(by as f64);
    }

    // What is known

    /// How long before its last batch is expected to end a worker may be handed the next one: long
    /// enough to reach it, also where that batch ends a little sooner.
    pub(crate) fn ahead(&self) -> Ahead {
        Ahead { by: (self.handoff.value + self.early.value) as Nanos, prepare: 0 }
    }

    /// Whether workers prepare batches while they run others.
    pub(crate) fn prepares(&self) -> bool {
        self.curves.prepares()
    }

    /// How long preparing a batch of a group of the queue takes beside a running one.
    pub(crate) fn preparing(&self, group: usize, size: u64) -> Nanos {
        let prepare = self.curves.prepare(self.groups[group].curve);
        prepare.map_or(0, |it| (it.mean(size) * (1.0 + self.stretch.prepare)) as Nanos)
    }

    /// How batches of a group of the queue are prepared, if they are.
    pub(crate) fn preparation(&self, group: usize) -> Option<BatchPreparation<'_>> {
        let service = self.curves.prepare(self.groups[group].curve)?;
        let stretch = self.stretch;
        Some(BatchPreparation { service, stretch, head_start: 0.0, overlaps: false })
    }

    /// What a batch is expected to take on its worker. `takes`: its model alone. `shared`: others
    /// will be prepared meanwhile.
    pub(crate) fn expected(
        &self,
        (group, size): (u16, u64),
        takes: Option<Nanos>,
        shared: bool,
    ) -> ExpectedTimes {
        let takes = takes.unwrap_or(0);
        let Some(prepare) = self.curves.prepare_of(group) else {
            return ExpectedTimes { takes, prepare: 0 };
        };
        let prepare = prepare.mean(size);
        let longer = if shared { self.stretch.model * prepare.min(takes as f64) } else { 0.0 };
        ExpectedTimes { takes: takes + longer as Nanos, prepare: prepare as Nanos }
    }

    /// From when a batch should be dispatched until its worker can take it.
    pub(crate) fn handoff(&self) -> f64 {
        self.handoff.value.max(HANDOFF_MIN)
    }

    /// What passes beyond a batch's time on its worker.
    pub(crate) fn overhead(&self) -> Nanos {
        self.overhead.value as Nanos
    }

    /// The expected time of a batch that runs at this size, if anything was learned.
    pub(crate) fn predict(&mut self, group: u16, size: u64, rules: &Rules) -> Option<Nanos> {
        let curve = self.curves.index(group, rules.adaptive.objective);
        let service = self.curves.get(curve);
        service.known().then(|| service.mean(size) as Nanos)
    }

    /// Size units that arrive per nanosecond in all planned groups. `planned`: how many there are,
    /// and the first of them.
    pub(crate) fn rate(&self, planned: (usize, usize)) -> f64 {
        match planned {
            (1, only) => self.groups[only].flow.all.get(),
            _ => self.all.get(),
        }
    }

    /// What was learned about the service time in a group of the queue.
    pub(crate) fn service(&self, group: usize) -> &Service {
        self.curves.get(self.groups[group].curve)
    }

    pub(crate) fn flow(&self, group: usize) -> &Flow {
        &self.groups[group].flow
    }

    /// Whether what was learned may be out of date, or too little for a queue of this length.
    pub(crate) fn uncertain(&self, now: Nanos, waiting: u32) -> bool {
        let stale = now.saturating_sub(self.last_done) > STALE;
        stale || self.answered < PROVEN && waiting <= 1
    }
}
