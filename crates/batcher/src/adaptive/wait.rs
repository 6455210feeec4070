//! Whether the batch that could leave now had better wait, and until when at the latest.
//!
//! Waiting pays in five cases only: many would come before the next worker is free (W1), clients
//! who were just answered are on their way back (W2), several workers are better fed evenly (W3),
//! requests come in groups (W4), all workers would be busy for too long for newcomers (W5).
//! Otherwise, and always at low load, it does not. It never keeps anybody past the moment at which
//! one more could still be taken along without making the head late.

use super::form::{Formed, Scene};
use super::histogram::EDGES;
use super::returns::{Out, Returns};
use crate::request::{NEVER, Nanos};

/// One worker alone batches by itself while it is busy; waiting must promise twice as much.
const ALONE: f64 = 2.0;
/// What those who still come weigh against those who wait.
const TAIL: f64 = 2.0;
/// Requests come in groups where one follows this much more often than chance would have it.
const GROUPED: f64 = 0.4;
/// What a lost request weighs against the waiting of others, in times it was given.
const LOST: f64 = 4.0;
/// Pacing aims at this share of the workers' time, and waits this many times the fill time.
const BUSY_MAX: f64 = 0.95;
const PATIENCE: f64 = 1.5;
/// Pacing waits only for at least this many expected arrivals.
const PROSPECT: f64 = 0.7;

/// What is known about those who do not wait yet.
#[derive(Debug)]
pub(crate) struct Prospect<'a> {
    pub(crate) returns: &'a Returns,
    pub(crate) out: &'a [Out],
    /// Size of a request on average.
    pub(crate) unit: f64,
    /// The lane's part of all that arrives.
    pub(crate) share: f64,
    /// Arrivals in this lane per nanosecond: all, and those that are nobody's return.
    pub(crate) rate: f64,
    pub(crate) open_rate: f64,
    /// The last arrival that was nobody's return.
    pub(crate) last_open: Nanos,
    /// How much likelier than by chance another one comes within a moment of it.
    pub(crate) company: f64,
    pub(crate) moment: f64,
    pub(crate) now: Nanos,
}

impl Prospect<'_> {
    /// What arrives within this time.
    fn expected(&self, within: Nanos) -> f64 {
        self.open_rate * within as f64 + self.returning(within)
    }

    /// What arrives within this time of those who are known to be on their way.
    fn returning(&self, within: Nanos) -> f64 {
        let back = self.returns.expected(self.out, within);
        (back + self.returns.announced(self.now, within)) * self.unit * self.share
    }
}

/// Until when a batch waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) until: Nanos,
    /// How long until a newcomer would find a worker if it did not.
    pub(crate) next_free: Nanos,
    /// The size it waits for, and until when no other wait and no deadline can matter.
    pub(crate) goal: Option<(u64, Nanos)>,
}

impl Scene<'_> {
    /// When the head of this batch must leave so that one more could still be taken along.
    pub(crate) fn latest(&self, formed: Formed, unit: f64) -> Nanos {
        let deadline = self.line.get(formed.skip).deadline;
        if deadline == NEVER {
            return NEVER;
        }
        let more = formed.size + (unit as u64).max(1);
        deadline.saturating_sub(self.margin + self.curve.planned(more) as Nanos)
    }

    /// How long until a newcomer would find a worker if this batch left now.
    pub(crate) fn next_worker(&self, formed: Formed) -> f64 {
        let own = self.curve.mean(formed.size);
        let next = self.fleet.soonest_busy().map_or(own, |busy| own.min(busy as f64));
        let spare = f64::from(self.fleet.open.saturating_sub(1));
        if spare == 0.0 { next } else { next - spare / self.rate.max(1e-12) }
    }

    /// Whether the batch waits, and until when.
    pub(crate) fn wait(&self, formed: Formed, prospect: &Prospect<'_>) -> Option<Wait> {
        let now = prospect.now;
        let latest = self.latest(formed, prospect.unit);
        if now >= latest {
            return None;
        }
        let size = formed.size as f64;
        let more = self.curve.mean(formed.size + 1) - self.curve.mean(formed.size);
        let next_free = self.next_worker(formed);
        let worth = next_free - size * more;
        let company = self.open_loop(size, worth, prospect);
        let company = company.max(self.returning(size, worth, prospect));
        let company = company.max(self.grouped(formed, size * more, prospect));
        let company = company.max(self.covering(formed, next_free, prospect));
        let paced = self.pacing(formed, prospect);
        let until = company.max(paced.map(|it| it.1))?.min(latest);
        let alone = prospect.out.is_empty();
        let goal = paced.filter(|it| alone && Some(it.1) >= company);
        let goal =
            goal.map(|it| (it.0, it.1.min(self.latest(Formed { size: it.0, ..formed }, 1.0))));
        let next_free = next_free.max(0.0) as Nanos;
        (until > now).then_some(Wait { until, next_free, goal })
    }

    /// W1: so many come before the next worker is free that one more now is worth the wait.
    fn open_loop(&self, size: f64, worth: f64, prospect: &Prospect<'_>) -> Option<Nanos> {
        let ask = if self.fleet.len() == 1.0 { ALONE * size } else { size };
        let pays = worth * prospect.open_rate > ask;
        pays.then(|| prospect.last_open + (worth * prospect.unit / ask) as Nanos)
    }

    /// W2: clients who were just answered, or who have begun to send, are about to be here. While
    /// another worker is idle they lose nothing, since that one takes them; whether it had better
    /// be kept for others is the question of W3. All on one worker would stay together for ever.
    fn returning(&self, size: f64, worth: f64, prospect: &Prospect<'_>) -> Option<Nanos> {
        let nobody = prospect.out.is_empty() && prospect.returns.announced(prospect.now, 1) == 0.0;
        if nobody || worth <= 0.0 || self.fleet.open > 1 {
            return None;
        }
        let (mut best, mut until) = (0.0, None);
        // Nobody gains by a longer wait once not even everybody would be worth it.
        let everybody = prospect.expected(worth as Nanos);
        let gain = |many: f64, time: f64| TAIL * many * (worth - time / 2.0) - size * time;
        for &edge in EDGES.iter().take_while(|&&edge| (edge as f64) < worth) {
            let time = edge as f64;
            if gain(everybody, time) <= best {
                break;
            }
            let gain = gain(prospect.expected(edge), time);
            if gain > best {
                (best, until) = (gain, Some(prospect.now + edge));
            }
        }
        until
    }

    /// W3: batches of the size that the workers can sustain, instead of one for each trickle.
    fn pacing(&self, formed: Formed, prospect: &Prospect<'_>) -> Option<(u64, Nanos)> {
        if self.fleet.len() <= 1.0 || prospect.rate <= 0.0 {
            return None;
        }
        let head = self.line.get(formed.skip);
        let goal = self.sustained(formed.size, self.time_left(head.deadline));
        if goal <= formed.size {
            return None;
        }
        let until = head.arrived + (PATIENCE * goal as f64 / prospect.rate) as Nanos;
        let left = until.saturating_sub(prospect.now);
        let missing = (goal - formed.size) as f64;
        let comes = left > 0 && prospect.expected(left) >= PROSPECT.max(missing / 2.0);
        comes.then_some((goal, until))
    }

    /// W4: requests come in groups, and the rest of this one is about to be here. To leave it to
    /// the next worker costs it a batch of its own, while the wait is but a moment.
    fn grouped(&self, formed: Formed, more: f64, prospect: &Prospect<'_>) -> Option<Nanos> {
        let saved = prospect.company * (self.curve.mean(formed.size) - more);
        let pays = prospect.company > GROUPED && saved > formed.size as f64 * prospect.moment;
        pays.then(|| prospect.last_open + prospect.moment as Nanos)
    }

    /// W5: all workers would be busy for so long that newcomers could not be in time. The later this
    /// one leaves, the sooner another one is free after it. Under overload an idle worker would only
    /// serve fewer.
    fn covering(&self, formed: Formed, next_free: f64, prospect: &Prospect<'_>) -> Option<Nanos> {
        let given = self.line.get(formed.skip).given();
        let busy = self.fleet.soonest_busy()? as f64;
        if given == f64::INFINITY || busy >= self.curve.mean(formed.size) {
            return None;
        }
        let blind = next_free + self.curve.planned(formed.size) + self.margin as f64 - given;
        let pays = prospect.rate * LOST * given > formed.size as f64;
        (blind > 0.0 && pays && self.bearable()).then(|| prospect.now + blind as Nanos)
    }

    /// The smallest size from this one on that keeps up with the arrivals, or that just meets the
    /// deadline.
    fn sustained(&self, from: u64, time: f64) -> u64 {
        let each = BUSY_MAX * self.fleet.len() / self.rate;
        self.keeping_up(from, each, time / self.curve.factor())
    }

    /// The smallest size from this one on that takes no longer than `each` per unit of size; or the
    /// largest that takes no longer than `most` altogether.
    pub(crate) fn keeping_up(&self, from: u64, each: f64, most: f64) -> u64 {
        let (mut size, mut mean) = (from, self.curve.mean(from));
        while size < self.cap && mean > each * size as f64 {
            let next = size + (size / 32).max(1);
            mean = self.curve.mean(next);
            if mean > most {
                break;
            }
            size = next;
        }
        size.min(self.cap)
    }
}
