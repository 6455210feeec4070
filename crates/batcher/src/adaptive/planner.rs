//! All that was learned, and the decision for each lane: leave now, or wait until when.
//!
//! Reads the rules and the workers, keeps the models and the lines. It proposes a trip; the batcher
//! carries it out.

use super::curves::{Curve, Curves};
use super::fair::Fair;
use super::fleet::Fleet;
use super::form::{Formed, Scene};
use super::journal::{Decision, Journal, Verdict};
use super::line::Line;
use super::queue::{Lane, Queue, size_of};
use super::rate::Rate;
use super::returns::Returns;
use super::tail::Tail;
use super::wait::Prospect;
use crate::action::{Departure, Refusal};
use crate::config::{Adaptive, Config, Measure, Policy};
use crate::policy::Rules;
use crate::request::{NEVER, Nanos, Origin, Priority, Request};

/// Time kept between a planned finish and a deadline.
const MARGIN: Nanos = 50_000;
/// Rates are taken over this many times a batch of one, within bounds.
const RATE_BATCHES: f64 = 64.0;
const RATE_MIN: f64 = 20e6;
const RATE_MAX: f64 = 2e9;
/// What was learned is doubted when no batch was answered for this long.
const STALE: Nanos = 250_000_000;
/// Those without a deadline are refused when the queue takes longer than this.
const DRAIN_MAX: Nanos = 30_000_000_000;
/// Bulk leads after so many interactive departures, or once its head has waited so long.
const BULK_TURN: u32 = 8;
const BULK_PATIENCE: Nanos = 10;
/// A lane whose head has waited for this many full batches goes before fuller ones.
const STARVING: f64 = 8.0;
/// A protected tenant is kept in time only where the workers are this busy.
const PROTECT_LOAD: f64 = 0.8;
/// Where nobody has a deadline a tenant's past is weighed over this time.
const GIVEN: f64 = 100e6;

/// A batch that leaves now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    pub(crate) lane: usize,
    pub(crate) line: usize,
    pub(crate) formed: Formed,
    pub(crate) reason: Departure,
    /// When the next worker is expected to be free.
    pub(crate) next_free: Nanos,
    /// Size that may be filled from the other line.
    pub(crate) room: u64,
}

/// What one lane would do now.
#[derive(Debug)]
enum Wish {
    Go(Trip),
    Wait(Trip, Nanos),
    Nothing,
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
    /// All arrivals, in size, and the size of one of them.
    all: Rate,
    unit: f64,
    /// From handing a batch to an idle worker until it computes, and the rest of the way.
    handoff: Tail,
    overhead: Tail,
    last_done: Nanos,
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
            handoff: Tail::new(0.0, 0.9, 50_000.0, 5_000.0),
            overhead: Tail::new(0.0, 0.9, 50_000.0, 5_000.0),
            last_done: 0,
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
        let returned = self.returns.arrived(rules.now, request.origin);
        let amount = f64::from(size);
        self.unit += (amount - self.unit) / 64.0;
        let lane_mut = &mut self.queue.lanes[lane];
        let first = self.curves.get(lane_mut.curve).mean(1);
        let tau = (RATE_BATCHES * first).clamp(RATE_MIN, RATE_MAX);
        lane_mut.all.learn(rules.now, amount, tau);
        self.all.learn(rules.now, amount, tau);
        if !returned {
            lane_mut.open.learn(rules.now, amount, tau);
        }
        (lane, size)
    }

    /// The lane of a request, with its curve.
    pub(crate) fn lane(&mut self, request: &Request, config: &Config) -> usize {
        let (lane, new) = self.queue.lane(request, config);
        if new {
            let objective = adaptive(config).objective;
            self.queue.lanes[lane].curve = self.curves.place(request.bucket, objective);
        }
        lane
    }

    pub(crate) fn announce(&mut self, now: Nanos, origin: Origin) {
        self.returns.announce(now, origin);
    }

    pub(crate) fn retract(&mut self, origin: Origin) {
        self.returns.retract(origin);
    }

    /// A worker that was idle began to compute so long after it was handed its batch.
    pub(crate) fn started(&mut self, after: Nanos) {
        self.handoff.learn(after as f64);
        self.handoff.within(0.0, 1e9);
    }

    /// A batch was answered. `late`: what passed beyond its time on the worker.
    pub(crate) fn done(&mut self, now: Nanos, batch: (u16, u64), took: Nanos, late: Option<Nanos>) {
        self.last_done = now;
        self.curves.learn(batch.0, batch.1, took);
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

    /// How long before its last batch ends a worker may be handed the next one.
    pub(crate) fn ahead(&self) -> Nanos {
        self.handoff.get() as Nanos
    }

    pub(crate) fn curve_points(&self) -> impl Iterator<Item = super::CurvePoint> + '_ {
        self.curves.points()
    }

    // Predicting

    /// The expected time of a batch of this size in this bucket, if anything was learned.
    pub(crate) fn predict(&mut self, bucket: u16, size: u64, config: &Config) -> Option<Nanos> {
        let place = self.curves.place(bucket, adaptive(config).objective);
        let service = self.curves.get(place);
        let curve = Curve { service, allowed: allowed(config) };
        service.known().then(|| curve.mean(size) as Nanos)
    }

    /// What a batch of `items` is padded to.
    pub(crate) fn padded(config: &Config, items: u32) -> u32 {
        let above = allowed(config).iter().copied().find(|&size| size >= items);
        above.unwrap_or(items)
    }

    /// Whether a request could no longer be answered in time if it started after `delay`.
    pub(crate) fn hopeless(
        &self,
        lane: usize,
        entry: (Nanos, u32),
        after: Nanos,
        rules: &Rules,
    ) -> bool {
        let (deadline, size) = entry;
        let service = self.curves.get(self.queue.lanes[lane].curve);
        if deadline == NEVER || !service.known() || self.doubts(rules.now) {
            return false;
        }
        let curve = Curve { service, allowed: allowed(&rules.config) };
        let needs = curve.planned(size.into()) as Nanos + 1 + self.margin();
        deadline < (rules.now + after).saturating_add(needs)
    }

    /// When the head of a line becomes hopeless.
    pub(crate) fn next_hopeless(&self, rules: &Rules) -> Option<Nanos> {
        if self.doubts(rules.now) {
            return None;
        }
        let allowed = allowed(&rules.config);
        let first = self.queue.next_hopeless(|lane, head| {
            let service = self.curves.get(lane.curve);
            let needs = Curve { service, allowed }.planned(head.size.into()) as Nanos + 1;
            if service.known() { needs + self.margin() } else { 0 }
        });
        first.map(|time| time.max(rules.now) + 1)
    }

    /// Whether what was learned may be out of date: nobody is refused by it while workers idle.
    fn doubts(&self, now: Nanos) -> bool {
        self.fleet.busy.is_empty() && now.saturating_sub(self.last_done) > STALE
    }

    /// How long until all who wait have been answered, by the best rate known.
    pub(crate) fn drain_time(&self, config: &Config) -> Option<Nanos> {
        let lane = self.queue.lanes.iter().max_by_key(|lane| lane.lines[0].size)?;
        let service = self.curves.get(lane.curve);
        let soonest = self.fleet.soonest()?;
        let curve = Curve { service, allowed: allowed(config) };
        let cap = self.cap(config, service).min(self.queue.size.max(1));
        let batches = self.queue.size.div_ceil(cap) as f64;
        let time = (batches / self.fleet.len()).ceil() * curve.mean(cap);
        service.known().then(|| soonest.saturating_add(time as Nanos))
    }

    /// Whether one without a deadline would wait far too long.
    pub(crate) fn overloaded(&self, config: &Config) -> bool {
        self.drain_time(config).is_some_and(|time| time > DRAIN_MAX)
    }

    fn margin(&self) -> Nanos {
        MARGIN + self.overhead.get() as Nanos
    }

    // Deciding

    /// The trip that leaves now, if any; otherwise `until` says when to look again.
    pub(crate) fn next_trip(&mut self, rules: &Rules) -> Option<Trip> {
        let mut best: Option<(Trip, (u8, f64))> = None;
        let mut free = std::mem::take(&mut self.free);
        self.returns.close(rules.now);
        for lane in 0..self.queue.lanes.len() {
            if self.queue.lanes[lane].is_empty() {
                continue;
            }
            match self.wish(lane, rules, &mut free) {
                Wish::Go(trip) if self.queue.lanes.len() == 1 => best = Some((trip, (0, 0.0))),
                Wish::Go(trip) => {
                    let rank = self.rank(&trip, rules.now);
                    if best.is_none_or(|(_, other)| rank < other) {
                        best = Some((trip, rank));
                    }
                }
                Wish::Wait(trip, until) => {
                    self.note(&trip, Verdict::Wait(until), rules.now);
                    self.until = Some(self.until.map_or(until, |other| other.min(until)));
                }
                Wish::Nothing => {}
            }
        }
        self.free = free;
        best.map(|(trip, _)| trip)
    }

    /// Hurried lanes first, by deadline; then starving ones, by age; then the best rate.
    fn rank(&self, trip: &Trip, now: Nanos) -> (u8, f64) {
        let lane = &self.queue.lanes[trip.lane];
        let service = self.curves.get(lane.curve);
        let head = lane.lines[trip.line].get(trip.formed.skip);
        let mean = service.mean(trip.formed.size);
        let slack = head.deadline.saturating_sub(now) as f64;
        let age = now.saturating_sub(head.arrived) as f64;
        if head.deadline != NEVER && slack < 3.0 * mean {
            (0, head.deadline as f64)
        } else if age > STARVING * mean {
            (1, head.arrived as f64)
        } else {
            (2, -(trip.formed.size as f64) / mean)
        }
    }

    fn wish(&self, lane: usize, rules: &Rules, free: &mut Vec<Nanos>) -> Wish {
        let line = leading(&self.queue.lanes[lane], rules.now);
        let cap = self.capped(lane, line, rules);
        let it = &self.queue.lanes[lane];
        let scene = self.scene(it, &it.lines[line], cap, rules);
        let formed = if scene.curve.service.known() && !self.doubts(rules.now) {
            scene.form(free)
        } else {
            scene.first()
        };
        let Some(formed) = formed else { return Wish::Nothing };
        let all = formed.skip + formed.len == it.lines[line].len();
        let most = cap.min(rules.config.max_items.into());
        let growable = all && formed.size < most && !rules.draining;
        let trip = |formed: Formed, reason| {
            let room = if all { most.saturating_sub(formed.size) } else { 0 };
            let next_free = rules.now + scene.next_worker(formed).max(0.0) as Nanos;
            Trip { lane, line, formed, reason, next_free, room }
        };
        let (out, out_len) = self.returns.out(rules.now);
        let prospect = self.prospect(it, rules.now, &out[..out_len]);
        if growable && let Some(wait) = scene.wait(formed, &prospect) {
            let head = it.lines[line].get(formed.skip);
            let longest = adaptive(&rules.config).max_wait.unwrap_or(NEVER);
            let until = wait.until.min(head.arrived.saturating_add(longest));
            if until > rules.now {
                return Wish::Wait(trip(formed, Departure::Idle), until);
            }
        }
        let reason = self.reason(&scene, formed, growable, rules);
        let next_free = match self.fleet.open {
            0 | 1 => scene.next_worker(formed).max(0.0),
            _ => 0.0,
        };
        Wish::Go(trip(scene.trim(formed, next_free), reason))
    }

    fn reason(
        &self,
        scene: &Scene<'_>,
        formed: Formed,
        growable: bool,
        rules: &Rules,
    ) -> Departure {
        if rules.draining {
            Departure::Drain
        } else if formed.hurried || rules.now >= scene.latest(formed, self.unit) {
            Departure::Deadline
        } else if !growable {
            Departure::Full
        } else if formed.len > 1 && self.returns.all_back(rules.now) {
            Departure::Everyone
        } else {
            Departure::Idle
        }
    }

    fn scene<'a>(&'a self, lane: &Lane, line: &'a Line, cap: u64, rules: &'a Rules) -> Scene<'a> {
        Scene {
            line,
            curve: Curve { service: self.curves.get(lane.curve), allowed: allowed(&rules.config) },
            config: &rules.config,
            fleet: &self.fleet,
            start: rules.now + self.fleet.head_start.min(DRAIN_MAX),
            margin: self.margin(),
            cap,
            rate: self.all.get(),
        }
    }

    fn prospect<'a>(
        &'a self,
        lane: &Lane,
        now: Nanos,
        out: &'a [super::returns::Out],
    ) -> Prospect<'a> {
        let rate = lane.all.get();
        let total = self.all.get();
        Prospect {
            returns: &self.returns,
            out,
            unit: self.unit,
            share: if total > 0.0 { (rate / total).min(1.0) } else { 1.0 },
            rate,
            open_rate: lane.open.after_silence(now, self.unit),
            last_open: lane.open.last(),
            now,
        }
    }

    fn cap(&self, config: &Config, service: &super::service::Service) -> u64 {
        let most = match config.measure {
            Measure::Items => config.max_items.into(),
            Measure::Packed | Measure::Padded => config.max_cost.min(u32::MAX.into()),
        };
        service.cap().min(most).max(1)
    }

    /// The largest size to form: by what was tried, and for the sake of protected tenants.
    fn capped(&self, lane: usize, line: usize, rules: &Rules) -> u64 {
        let lane = &self.queue.lanes[lane];
        let service = self.curves.get(lane.curve);
        let cap = self.cap(&rules.config, service);
        let Some(head) = lane.lines[line].head() else { return cap };
        let given = match head.deadline {
            NEVER => return cap,
            deadline => (deadline - head.arrived) as f64,
        };
        if !self.fair.protects(rules.now, given) {
            return cap;
        }
        let scene = self.scene(lane, &lane.lines[line], cap, rules);
        let workers = self.fleet.len();
        let time = given * workers / (workers + 1.0);
        let short = scene.curve.largest_within(cap, time).max(1);
        if scene.load(short) > PROTECT_LOAD { short } else { cap }
    }

    /// Writes a departure or a wait into the journal.
    pub(crate) fn note(&mut self, trip: &Trip, verdict: Verdict, now: Nanos) {
        let lane = &self.queue.lanes[trip.lane];
        let line = &lane.lines[trip.line];
        let deadline = line.get(trip.formed.skip).deadline;
        self.journal.write(Decision {
            at: now,
            verdict,
            size: trip.formed.size,
            waiting: line.len() as u32,
            skipped: trip.formed.skip as u32,
            predicted: self.curves.get(lane.curve).mean(trip.formed.size) as Nanos,
            next_free: trip.next_free.saturating_sub(now),
            rate: self.all.get() * 1e9,
            slack: (deadline != NEVER).then(|| deadline.saturating_sub(now)),
        });
    }

    /// Writes a refusal into the journal.
    pub(crate) fn note_refusal(&mut self, reason: Refusal, deadline: Nanos, size: u32, now: Nanos) {
        self.journal.write(Decision {
            at: now,
            verdict: Verdict::Refuse(reason),
            size: size.into(),
            waiting: self.queue.len,
            skipped: 0,
            predicted: 0,
            next_free: self.fleet.soonest().unwrap_or(0),
            rate: self.all.get() * 1e9,
            slack: (deadline != NEVER).then(|| deadline.saturating_sub(now)),
        });
    }

    /// What was given to the head of a tenant's lane, to weigh the past by.
    pub(crate) fn given(deadline: Nanos, arrived: Nanos) -> f64 {
        if deadline == NEVER { GIVEN } else { deadline.saturating_sub(arrived) as f64 }
    }
}

/// The line that leads: interactive, unless it is the turn of bulk.
fn leading(lane: &Lane, now: Nanos) -> usize {
    let [interactive, bulk] = &lane.lines;
    let (Some(head), Some(patient)) = (interactive.head(), bulk.head()) else {
        return usize::from(interactive.is_empty());
    };
    let given = head.deadline.saturating_sub(head.arrived);
    let tired = head.deadline != NEVER
        && now.saturating_sub(patient.arrived) > given.saturating_mul(BULK_PATIENCE);
    let turn = if lane.led >= BULK_TURN || tired { Priority::Bulk } else { Priority::Interactive };
    turn as usize
}

fn adaptive(config: &Config) -> Adaptive {
    match config.policy {
        Policy::Adaptive(adaptive) => adaptive,
        Policy::Window { .. } | Policy::Opportunistic => Adaptive::default(),
    }
}

/// Sizes a batch is padded to; only where size means items.
fn allowed(config: &Config) -> &[u32] {
    if config.measure == Measure::Items { &config.allowed_sizes } else { &[] }
}
