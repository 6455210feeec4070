//! Whether a batch that could be dispatched now waits for more requests, and until when at most.
//!
//! Waiting pays in five cases only: many requests come before the next worker is free (W1), clients
//! that were just answered come back (W2), several workers are better fed evenly (W3), requests come
//! in groups (W4), all workers would be busy for too long for new requests (W5). Otherwise, and
//! always at low load, it does not. No request waits past the moment at which one more could still
//! be added without making the head late.

use super::situation::{Candidate, Situation};
use crate::learned::return_times::EDGES;
use crate::learned::returns::{Out, Returns};
use crate::request::Nanos;

/// One worker alone batches by itself while it is busy; waiting must promise so many times as much.
/// Measured: example `traffic`.
const ALONE: f64 = 2.0;
/// What clients that come back weigh against requests that wait, where there are several workers:
/// they stay together for more than one batch. Measured: example `traffic`.
const TAIL: f64 = 2.0;
/// With one worker, what those weigh more that come back together. Measured: example `traffic`.
const STAYING: f64 = 2.0;
/// Requests come in groups where one follows another this much more often than by chance. Measured:
/// on settings drawn by chance (example `heldout`).
const GROUPED: f64 = 0.4;
/// What a lost request weighs against the waiting of others, in times it was given. Measured: on
/// settings drawn by chance (example `heldout`).
const LOST: f64 = 4.0;
/// Pacing aims at this share of the workers' time. Chosen: chance needs the rest.
const BUSY_MAX: f64 = 0.95;
/// Pacing waits this many times the fill time. Measured: example `traffic`.
const PATIENCE: f64 = 1.4;
/// Where a request was given more than so many times what its batch takes, pacing must not cost
/// latency. Measured: example `traffic`.
const ROOMY: f64 = 8.0;
/// There it waits only so many times the fill time. Measured: example `traffic`.
const FEW: f64 = 1.3;
/// There it does not wait at all where the items themselves take more than this share of the
/// workers' time. Batches would have to be large then, and the rate is not known so well that one
/// could say how large. Measured: example `traffic`.
const LINEAR_MAX: f64 = 0.57;
/// The same where clients come back. Measured: example `traffic`; at 0.8 sixteen clients lose a twentieth.
const LINEAR_CLIENTS: f64 = 0.9;
/// Pacing waits only for at least this many expected arrivals. Chosen: fewer are not worth a timer.
const PROSPECT: f64 = 0.7;

/// Until when a batch waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) until: Nanos,
    /// How long until a new request would find a worker if the batch did not wait.
    pub(crate) next_free: Nanos,
    /// The size it waits for, and until when no other wait and no deadline can matter.
    pub(crate) goal: Option<(u64, Nanos)>,
    /// Whether what it brings is put to the test.
    pub(crate) tested: bool,
}

/// What is known about the requests that are still to come.
#[derive(Debug)]
pub(crate) struct Prospect<'a> {
    pub(crate) returns: &'a Returns,
    pub(crate) out: &'a [Out],
    /// Size of a request on average.
    pub(crate) unit: f64,
    /// The group's part of all that arrives.
    pub(crate) share: f64,
    /// Arrivals in this group per nanosecond: all, and those that are not returns.
    pub(crate) rate: f64,
    pub(crate) open_rate: f64,
    /// The last arrival that was not a return.
    pub(crate) last_open: Nanos,
    /// How much likelier than by chance another one comes within a moment of it.
    pub(crate) company: f64,
    pub(crate) moment: f64,
    pub(crate) now: Nanos,
}

impl Prospect<'_> {
    /// What arrives within this time.
    fn expected(&self, within: Nanos) -> f64 {
        let back = self.returns.expected(self.out, within);
        let known = back + self.returns.announced(self.now, within);
        self.open_rate * within as f64 + known * self.unit * self.share
    }

    /// Whether the batch waits, and until when.
    pub(crate) fn wait(&self, now: &Situation<'_>, candidate: Candidate) -> Option<Wait> {
        let latest = now.latest(candidate, self.unit);
        if self.now >= latest {
            return None;
        }
        let size = candidate.size as f64;
        let own = now.curve.mean(candidate.size);
        let more = now.one_more(candidate, own);
        let next_free = now.next_worker(candidate);
        let worth = next_free - size * more;
        let until = self.open_loop(now, size, worth);
        let until = until.max(self.returning(now, size, worth));
        let until = until.max(self.grouped(now, candidate, own, size * more));
        let until = until.max(self.covering(now, candidate, own, next_free));
        let paced = self.pacing(now, candidate, own);
        let alone = self.out.is_empty();
        let goal = paced.filter(|it| alone && Some(it.1) >= until);
        let until = until.max(paced.map(|it| it.1))?.min(latest);
        let goal = goal
            .map(|(size, end)| (size, end.min(now.latest(Candidate { size, ..candidate }, 1.0))));
        let next_free = next_free.max(0.0) as Nanos;
        (until > self.now).then_some(Wait { until, next_free, goal, tested: false })
    }

    /// W1: so many come before the next worker is free that one more now is worth the wait.
    fn open_loop(&self, now: &Situation<'_>, size: f64, worth: f64) -> Option<Nanos> {
        let ask = if now.forecast.len() == 1.0 { ALONE * size } else { size };
        let pays = worth * self.open_rate > ask;
        pays.then(|| self.last_open + (worth * self.unit / ask) as Nanos)
    }

    /// W2: clients that were just answered, or have begun to send, will be here soon. While another
    /// worker is idle they lose nothing, since that one takes them; whether it should be kept for
    /// others is the question of W3. All on one worker would stay together for ever.
    ///
    /// One worker alone: those who come while the batch waits gain what is left until it would be
    /// free again, those who already wait lose the time, and so do those who come only afterwards.
    /// Requests that come evenly gain nothing by this.
    fn returning(&self, now: &Situation<'_>, size: f64, worth: f64) -> Option<Nanos> {
        let none = self.out.is_empty() && self.returns.announced(self.now, 1) == 0.0;
        if none || worth <= 0.0 || now.forecast.open > 1 {
            return None;
        }
        let (mut best, mut until) = (0.0, None);
        // A longer wait gains nothing once not even all of them would be worth it.
        let all = self.expected(worth as Nanos);
        let alone = now.forecast.len() == 1.0;
        let gain = |many: f64, time: f64| match alone {
            true => {
                let together = 1.0 + STAYING * many / all.max(many);
                many * (worth - time) * together - (size + all - many) * time
            }
            false => TAIL * many * (worth - time / 2.0) - size * time,
        };
        for &edge in EDGES.iter().take_while(|&&edge| (edge as f64) < worth) {
            let time = edge as f64;
            if gain(all, time) <= best {
                break;
            }
            let gain = gain(self.expected(edge), time);
            if gain > best {
                (best, until) = (gain, Some(self.now + edge));
            }
        }
        until
    }

    /// W3: batches of the size with which the workers keep up, instead of many small ones.
    fn pacing(&self, now: &Situation<'_>, candidate: Candidate, own: f64) -> Option<(u64, Nanos)> {
        if now.forecast.len() <= 1.0 || self.rate <= 0.0 {
            return None;
        }
        let head = &now.queue.waiting[candidate.skip];
        let each = BUSY_MAX * now.forecast.len() / now.rate;
        let most = now.time_left(head.deadline) / now.curve.factor;
        let goal = now.keeping_up(candidate.size, each, most);
        if goal <= candidate.size {
            return None;
        }
        let missing = (goal - candidate.size) as f64;
        let unhurried = self.unhurried(now, candidate, own);
        let linear = now.rate * (now.curve.mean(goal) - own) / (missing * now.forecast.len());
        let most = if unhurried { LINEAR_MAX } else { LINEAR_CLIENTS };
        if head.given() > ROOMY * own && linear > most {
            return None;
        }
        let few = if unhurried { FEW * self.unit } else { 0.0 };
        let until = head.arrived + (PATIENCE * (goal as f64 - few) / self.rate) as Nanos;
        let left = until.saturating_sub(self.now);
        let comes = left > 0 && self.expected(left) >= PROSPECT.max(missing / 2.0);
        comes.then_some((goal, until))
    }

    /// Whether latency counts, and nothing asks for the highest rate: neither clients that come back
    /// nor a deadline that is near.
    fn unhurried(&self, now: &Situation<'_>, candidate: Candidate, own: f64) -> bool {
        let given = now.queue.waiting[candidate.skip].given();
        !self.returns.awaited() && given > ROOMY * own
    }

    /// W4: requests come in groups, and the rest of this group comes in a moment. Left to the next
    /// worker it would need a batch of its own.
    fn grouped(
        &self,
        now: &Situation<'_>,
        candidate: Candidate,
        own: f64,
        more: f64,
    ) -> Option<Nanos> {
        let saved = self.company * (own - more);
        let pays = self.company > GROUPED && saved > candidate.size as f64 * self.moment;
        // The rest of it goes to another worker where one is idle.
        let spare = || now.forecast.open > 1 && self.unhurried(now, candidate, own);
        (pays && !spare()).then(|| self.last_open + self.moment as Nanos)
    }

    /// W5: all workers would be busy for so long that new requests could not be in time. The later
    /// this batch goes, the sooner another worker is free after it. Under overload an idle worker
    /// would only serve fewer.
    fn covering(
        &self,
        now: &Situation<'_>,
        candidate: Candidate,
        own: f64,
        next_free: f64,
    ) -> Option<Nanos> {
        let given = now.queue.waiting[candidate.skip].given();
        let busy = now.forecast.soonest_busy()? as f64;
        if given == f64::INFINITY || busy >= own {
            return None;
        }
        let blind = next_free + now.curve.planned(candidate.size) + now.margin as f64 - given;
        let pays = self.rate * LOST * given > candidate.size as f64;
        (blind > 0.0 && pays && now.bearable()).then(|| self.now + blind as Nanos)
    }
}
