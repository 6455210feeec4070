//! What the planner expects: how long a batch takes, who has no hope, when the queue is empty.
//!
//! Questions only; nothing here changes what was learned.

use super::{Planner, adaptive, allowed};
use crate::adaptive::curves::Curve;
use crate::adaptive::form::MARGIN;
use crate::adaptive::queue::Heads;
use crate::adaptive::service::Service;
use crate::config::{Config, Measure};
use crate::policy::Rules;
use crate::request::{NEVER, Nanos};

/// What was learned is doubted when no batch was answered for this long.
const STALE: Nanos = 250_000_000;
/// So many batches must be answered before one who is alone is refused by what they took.
const PROVEN: u32 = 20;
/// Those without a deadline are refused when the queue takes longer than this.
pub(super) const DRAIN_MAX: Nanos = 30_000_000_000;

impl Planner {
    /// The expected time of a batch of this size in this group, if anything was learned.
    pub(crate) fn predict(&mut self, group: u16, size: u64, config: &Config) -> Option<Nanos> {
        let place = self.curves.place(group, adaptive(config).objective);
        let service = self.curves.get(place);
        let curve = Curve::new(service, allowed(config));
        service.known().then(|| curve.mean(size) as Nanos)
    }

    /// What a batch of `items` is padded to.
    pub(crate) fn padded(config: &Config, items: u32) -> u32 {
        let above = allowed(config).iter().copied().find(|&size| size >= items);
        above.unwrap_or(items)
    }

    /// Whether a request could not even be answered in time by a fast batch if it started `after`
    /// so long.
    pub(crate) fn hopeless(
        &self,
        lane: usize,
        entry: (Nanos, u32),
        after: Nanos,
        rules: &Rules,
    ) -> bool {
        let way = self.way(&rules.config);
        self.misses(lane, entry, after, rules, |curve, size| {
            curve.with_luck().planned(size) as Nanos + way
        })
    }

    /// Whether a request that starts `after` so long is planned to be late.
    pub(crate) fn late(
        &self,
        lane: usize,
        entry: (Nanos, u32),
        after: Nanos,
        rules: &Rules,
    ) -> bool {
        let margin = self.margin(&rules.config);
        self.misses(lane, entry, after, rules, |curve, size| curve.planned(size) as Nanos + margin)
    }

    fn misses(
        &self,
        lane: usize,
        (deadline, size): (Nanos, u32),
        after: Nanos,
        rules: &Rules,
        needs: impl Fn(Curve<'_>, u64) -> Nanos,
    ) -> bool {
        let service = self.curves.get(self.queue.lanes[lane].curve);
        if deadline == NEVER || !service.known() || self.doubts(rules.now) {
            return false;
        }
        let curve = Curve::new(service, allowed(&rules.config));
        deadline < (rules.now + after).saturating_add(needs(curve, size.into()) + 1)
    }

    /// When the most hurried heads of all lines lose hope and expire. Reckoned anew only after
    /// somebody has come to a head or left it, or something was learned.
    pub(crate) fn heads(&mut self, rules: &Rules) -> Heads {
        if let Some(heads) = self.queue.heads {
            return heads;
        }
        let allowed = allowed(&rules.config);
        let mut heads = Heads { hope_ends: NEVER, expire: NEVER };
        for lane in self.queue.lanes.iter() {
            let service = self.curves.get(lane.curve);
            for head in lane.lines.iter().filter_map(|line| line.head()) {
                if head.deadline == NEVER {
                    continue;
                }
                heads.expire = heads.expire.min(head.deadline);
                if service.known() {
                    let planned =
                        Curve::new(service, allowed).with_luck().planned(head.size.into());
                    let needs = planned as Nanos + 1 + self.way(&rules.config);
                    heads.hope_ends = heads.hope_ends.min(head.deadline.saturating_sub(needs));
                }
            }
        }
        self.queue.heads = Some(heads);
        heads
    }

    /// Whether those who stand before a newcomer make it late, each batch being full. Asked only
    /// where a full batch leaves time for another one: elsewhere the oldest are passed over and
    /// the newest are served, so that nobody knows yet.
    pub(crate) fn crowded(
        &self,
        (lane, line): (usize, usize),
        (deadline, size): (Nanos, u32),
        soonest: Nanos,
        rules: &Rules,
    ) -> bool {
        let queued = &self.queue.lanes[lane].lines[line];
        let service = self.curves.get(self.queue.lanes[lane].curve);
        let cap = self.cap(&rules.config, service);
        let last = queued.last().is_some_and(|last| last.deadline <= deadline);
        if queued.size < cap || !last || !service.known() || self.doubts(rules.now) {
            return false;
        }
        let curve = Curve::new(service, allowed(&rules.config));
        let workers = self.fleet.len();
        if cap < self.most(&rules.config) {
            // What larger batches take is a guess, and nobody is refused by one.
            return false;
        }
        let given = deadline.saturating_sub(rules.now) as f64;
        if curve.planned(cap) * (1.0 + 1.0 / workers) > given {
            return false;
        }
        let before = ((queued.size / cap) as f64 / workers).floor() * curve.mean(cap);
        let own = curve.with_luck().planned((queued.size % cap + u64::from(size)).min(cap));
        soonest as f64 + before + own + self.way(&rules.config) as f64 > given
    }

    /// Whether what was learned may be out of date, or too little to go by: nobody is refused by it
    /// while workers idle.
    pub(crate) fn doubts(&self, now: Nanos) -> bool {
        let stale = now.saturating_sub(self.last_done) > STALE;
        let unproven = self.answered < PROVEN && self.queue.len <= 1;
        let idle = self.fleet.busy.is_empty() && self.fleet.riders == 0;
        idle && (stale || unproven)
    }

    /// How long until all who wait have been answered, by the best rate known.
    pub(crate) fn drain_time(&self, now: Nanos, config: &Config) -> Option<Nanos> {
        let lane = self.queue.lanes.iter().max_by_key(|lane| lane.lines[0].size)?;
        let service = self.curves.get(lane.curve);
        let soonest = self.fleet.soonest(now)?;
        let curve = Curve::new(service, allowed(config));
        let cap = self.cap(config, service).min(self.queue.size.max(1));
        let batches = self.queue.size.div_ceil(cap) as f64;
        let time = (batches / self.fleet.len()).ceil() * curve.mean(cap);
        service.known().then(|| soonest.saturating_add(time as Nanos))
    }

    /// Whether one without a deadline would wait far too long.
    pub(crate) fn overloaded(&self, now: Nanos, config: &Config) -> bool {
        self.drain_time(now, config).is_some_and(|time| time > DRAIN_MAX)
    }

    pub(super) fn margin(&self, config: &Config) -> Nanos {
        MARGIN + self.way(config)
    }

    /// What passes beyond a batch's time on its worker.
    fn way(&self, config: &Config) -> Nanos {
        self.overhead.get() as Nanos + adaptive(config).delivery
    }

    /// The largest size that fits and is worth trying.
    pub(super) fn cap(&self, config: &Config, service: &Service) -> u64 {
        service.cap().min(self.most(config)).max(1)
    }

    fn most(&self, config: &Config) -> u64 {
        match config.measure {
            Measure::Items => config.max_items.into(),
            Measure::Packed | Measure::Padded => config.max_cost.min(u32::MAX.into()),
        }
    }
}
