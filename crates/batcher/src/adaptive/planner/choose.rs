//! Which lane's batch leaves now, with whom and why; or until when all of them wait.
//!
//! Each lane says what it would do; of those that would go the most hurried goes first.

use super::predict::DRAIN_MAX;
use super::{Planner, Trip, adaptive, allowed};
use crate::action::DispatchReason;
use crate::adaptive::curves::Curve;
use crate::adaptive::form::{Formed, Scene};
use crate::adaptive::journal::DecisionKind;
use crate::adaptive::line::Line;
use crate::adaptive::queue::{Lane, Paced};
use crate::adaptive::returns::{OUT_MAX, Out};
use crate::adaptive::wait::{Prospect, Wait};
use crate::config::{Config, Measure};
use crate::policy::Rules;
use crate::request::{NEVER, Nanos, Priority};

/// Bulk leads after so many interactive departures, or once its head has waited so long.
const BULK_TURN: u32 = 8;
const BULK_PATIENCE: Nanos = 10;
/// A lane whose head has waited for this many full batches goes before fuller ones.
const STARVING: f64 = 8.0;
/// A protected tenant is kept in time only where the workers are this busy.
const PROTECT_LOAD: f64 = 0.8;

/// What one lane would do now.
#[derive(Debug)]
enum Wish {
    Go(Trip),
    Wait(Trip, Wait),
    Nothing,
}

impl Planner {
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
                    let rank = self.rank(&trip, rules);
                    if best.is_none_or(|(_, other)| rank < other) {
                        best = Some((trip, rank));
                    }
                }
                Wish::Wait(trip, Wait { until, goal, .. }) => {
                    self.note(&trip, DecisionKind::Wait(until), rules.now);
                    let only = self.queue.lanes.len() == 1 && trip.formed.skip == 0;
                    let paced =
                        |(goal, end)| Paced { line: trip.line, goal, until: until.min(end) };
                    self.queue.paced = goal.filter(|_| only).map(paced);
                    self.until = Some(self.until.map_or(until, |other| other.min(until)));
                }
                Wish::Nothing => {}
            }
        }
        self.free = free;
        best.map(|(trip, _)| trip)
    }

    /// Whether a wait for a batch that the workers can sustain goes on as it was decided.
    pub(crate) fn still_paced(&self, now: Nanos) -> bool {
        self.queue.paced.is_some_and(|Paced { line, goal, until }| {
            let lines = &self.queue.lanes[0].lines;
            now < until && lines[line].size < goal && lines[1 - line].is_empty()
        })
    }

    /// Hurried lanes first, by deadline; then starving ones, by age; then the best rate, in which
    /// padding does not count.
    fn rank(&self, trip: &Trip, rules: &Rules) -> (u8, f64) {
        let now = rules.now;
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
            (2, -self.real(trip, &rules.config) / mean)
        }
    }

    /// What a batch is worth: without its padding where there is any.
    fn real(&self, trip: &Trip, config: &Config) -> f64 {
        let Formed { skip, len, size, .. } = trip.formed;
        if config.measure != Measure::Padded {
            return size as f64;
        }
        let line = &self.queue.lanes[trip.lane].lines[trip.line];
        (skip..skip + len).map(|at| line.get(at).cost as f64).sum()
    }

    fn wish(&self, lane: usize, rules: &Rules, free: &mut Vec<Nanos>) -> Wish {
        let line = leading(&self.queue.lanes[lane], rules.now);
        let cap = self.capped(lane, line, rules);
        let it = &self.queue.lanes[lane];
        let scene = self.scene(it, &it.lines[line], cap, rules);
        let formed = if scene.curve.service.compared() && !self.doubts(rules.now) {
            scene.form(free)
        } else {
            scene.first()
        };
        let Some(formed) = formed else { return Wish::Nothing };
        let all = formed.skip + formed.len == it.lines[line].len();
        let growable = all && formed.size < cap && !rules.draining;
        if growable && let Some(wait) = self.waits(it, &scene, formed, rules) {
            let (reason, next_free) = (DispatchReason::Idle, rules.now + wait.next_free);
            return Wish::Wait(Trip { lane, line, formed, reason, next_free, room: 0 }, wait);
        }
        let reason = self.reason(&scene, formed, growable, rules);
        let next_free = match self.fleet.open {
            0 | 1 => scene.next_worker(formed).max(0.0),
            _ => 0.0,
        };
        let formed = scene.trim(formed, next_free);
        let next_free = rules.now + scene.next_worker(formed).max(0.0) as Nanos;
        let alone = it.lines[1 - line].is_empty() && rules.config.measure != Measure::Padded;
        let room = if alone { 0 } else { scene.room(formed) };
        Wish::Go(Trip { lane, line, formed, reason, next_free, room })
    }

    /// Until when this batch had better wait, if at all.
    fn waits(&self, lane: &Lane, scene: &Scene<'_>, formed: Formed, rules: &Rules) -> Option<Wait> {
        let mut out = [Out::default(); OUT_MAX];
        let out = self.returns.out(rules.now, self.fleet.riders, &mut out);
        let wait = scene.wait(formed, &self.prospect(lane, rules.now, out))?;
        let head = scene.line.get(formed.skip);
        let longest = adaptive(&rules.config).max_wait.unwrap_or(NEVER);
        let until = wait.until.min(head.arrived.saturating_add(longest));
        (until > rules.now).then_some(Wait { until, ..wait })
    }

    fn reason(
        &self,
        scene: &Scene<'_>,
        formed: Formed,
        growable: bool,
        rules: &Rules,
    ) -> DispatchReason {
        if rules.draining {
            DispatchReason::Drain
        } else if formed.hurried || rules.now >= scene.latest(formed, self.unit) {
            DispatchReason::Deadline
        } else if !growable {
            DispatchReason::Full
        } else if formed.len > 1 && self.returns.all_back(rules.now) {
            DispatchReason::Everyone
        } else {
            DispatchReason::Idle
        }
    }

    fn scene<'a>(&'a self, lane: &Lane, line: &'a Line, cap: u64, rules: &'a Rules) -> Scene<'a> {
        Scene {
            line,
            curve: Curve::new(self.curves.get(lane.curve), allowed(&rules.config)),
            config: &rules.config,
            fleet: &self.fleet,
            start: rules.now + self.fleet.head_start.min(DRAIN_MAX),
            margin: self.margin(&rules.config),
            cap,
            rate: self.rate(),
        }
    }

    fn prospect<'a>(&'a self, lane: &Lane, now: Nanos, out: &'a [Out]) -> Prospect<'a> {
        let rate = lane.flow.all.get();
        let total = self.rate();
        Prospect {
            returns: &self.returns,
            out,
            unit: self.unit,
            share: if total > 0.0 { (rate / total).min(1.0) } else { 1.0 },
            rate,
            open_rate: lane.flow.open().after_silence(now, self.unit),
            last_open: lane.flow.open().last(),
            company: lane.flow.company(self.unit),
            moment: lane.flow.moment,
            now,
        }
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
