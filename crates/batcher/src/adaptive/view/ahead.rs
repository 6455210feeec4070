//! Whether a busy worker is handed its next batch before the last one has ended.
//!
//! It saves the hand-over, and where workers prepare batches while they run others, the preparation.
//! It costs those who come a moment too late for the batch a whole further one.

use super::View;
use crate::adaptive::rhythm::{Rhythm, Round};
use crate::adaptive::situation::{Candidate, Situation};
use crate::adaptive::wait::Wait;
use crate::forecast::WorkerForecast;
use crate::learned::curves::{BatchPreparation, Curve};
use crate::learned::return_times::EDGES;
use crate::learned::returns::{OUT_MAX, Out};
use crate::request::{NEVER, Nanos};
use crate::state::BatcherState;

/// Being sent ahead must promise this many times what it costs those who miss the batch. Chosen:
/// twice, as the promise is a guess.
const SURE: f64 = 2.0;
/// Clients count as coming back where at most this share of what arrives is not a return. Chosen:
/// most of them do then.
const OPEN_MAX: f64 = 0.5;

impl<'a> View<'a> {
    /// The curve at the sizes of the model, and on workers that prepare batches, for one whose model is
    /// free after this time.
    #[cold]
    pub(super) fn special(&self, group: usize, curve: Curve<'a>, after: Nanos) -> Curve<'a> {
        let BatcherState { learned, rules, workers, .. } = self.state;
        let item = rules.config.item(self.group(group).key.class);
        let curve = curve.at_sizes(rules.config.run_sizes(), item);
        let (head_start, overlaps) = (after as f64, workers.slots().2 > 1);
        let preparation = learned.preparation(group);
        curve.prepared(preparation.map(|it| BatchPreparation { head_start, overlaps, ..it }))
    }

    /// The size of the requests of all clients together; none where they do not come back, or where
    /// there is nothing to choose for them.
    #[cold]
    pub(super) fn clients(&self, group: usize) -> Option<u64> {
        let BatcherState { learned, rules, queue, workers, .. } = self.state;
        let choice = learned.prepares() || !rules.config.run_sizes().is_empty();
        if !choice || queue.planned_groups.0 > 1 {
            return None;
        }
        let flow = learned.flow(group);
        let open = flow.open().after_silence(rules.now, learned.unit);
        let closed = open <= OPEN_MAX * flow.all.get();
        if !closed || !learned.service(group).compared() || self.doubts() {
            return None;
        }
        let clients = queue.planned().requests + workers.held() + learned.returns.away(rules.now);
        Some(((f64::from(clients) * learned.unit + 0.5) as u64).max(1))
    }

    /// In which batches clients that come back are best served by one worker.
    #[cold]
    pub(super) fn rhythm(&self, group: usize, cap: u64, clients: u64) -> Option<Rhythm> {
        let BatcherState { learned, workers, .. } = self.state;
        if self.forecast.len() > 1.0 || workers.full_only() || !learned.returns.awaited() {
            return None;
        }
        let turn = learned.returns.turn() as f64;
        let at_a_time = if learned.prepares() { workers.slots().2.into() } else { 1 };
        Round { curve: self.curve(group, 0), clients, turn, cap }.best(at_a_time)
    }

    /// Whether a batch that would be handed to a worker ahead of time had better stay until that one's
    /// last batch ends: those who come meanwhile would wait for another batch, which costs more than
    /// it saves. The end of that batch brings the next decision.
    pub(super) fn too_soon(
        &self,
        group: usize,
        situation: &Situation<'_>,
        candidate: Candidate,
        growable: bool,
    ) -> bool {
        if self.forecast.idles() {
            return false;
        }
        let BatcherState { learned, rules, workers, .. } = self.state;
        let late = candidate.hurried || rules.now >= situation.latest(candidate, learned.unit);
        if !growable || late {
            return false;
        }
        if workers.full_only() {
            return true;
        }
        if learned.prepares() {
            return self.misses_more(group, situation, candidate);
        }
        let flow = learned.flow(group);
        let all_back = learned.returns.all_back(rules.now);
        let rate = if all_back { flow.open().get() } else { flow.all.get() };
        let missed = rate * self.forecast.head_start as f64;
        let saved = candidate.size as f64 * learned.handoff();
        SURE * missed * situation.curve.mean(candidate.size) > saved
    }

    /// The same where it saves preparing the batch while its worker is idle. Those who miss it are
    /// prepared during it.
    fn misses_more(&self, group: usize, situation: &Situation<'_>, candidate: Candidate) -> bool {
        let BatcherState { learned, rules, .. } = self.state;
        let (flow, left) = (learned.flow(group), self.forecast.head_start);
        let curve = &situation.curve;
        let prepare = curve.preparing(candidate.size);
        let (mut out, returns) = ([Out::default(); OUT_MAX], &learned.returns);
        let back = returns.expected(returns.out(rules.now, 0, &mut out), left);
        let open = flow.open().after_silence(rules.now, learned.unit);
        let rate = if returns.awaited() { open } else { flow.all.get() };
        let missed = rate * left as f64 + back * learned.unit;
        let saved = prepare.min(left as f64) + learned.handoff();
        let cost = curve.cycle(candidate.size) - prepare;
        missed * cost > candidate.size as f64 * saved
    }

    /// Until when a batch that could be prepared while its worker is busy waits for clients that were just
    /// answered, at most for its fair share of them: those who miss it wait for a whole further one, and
    /// waiting costs only what it delays the model.
    pub(super) fn gathers(
        &self,
        situation: &Situation<'_>,
        candidate: Candidate,
        clients: Option<u64>,
    ) -> Option<Wait> {
        let BatcherState { learned, rules, workers, .. } = self.state;
        let WorkerForecast { open, head_start, .. } = *self.forecast;
        let (count, _, used) = workers.slots();
        let fair = clients?.div_ceil((u64::from(count) * u64::from(used)).max(1));
        if open > 1 || workers.full_only() || candidate.hurried || candidate.size >= fair {
            return None;
        }
        let mut out = [Out::default(); OUT_MAX];
        let out = learned.returns.out(rules.now, 0, &mut out);
        let (curve, left) = (&situation.curve, head_start as f64);
        let cycle = curve.cycle(candidate.size);
        let soonest = curve.preparing(candidate.size).max(left);
        let (mut best, mut until) = (0.0, None);
        for &edge in EDGES.iter().take_while(|&&edge| !out.is_empty() && edge < head_start) {
            let back = learned.returns.expected(out, edge) * learned.unit;
            let prepare = curve.preparing(candidate.size + back as u64);
            let late = (edge as f64 + prepare).max(left) - soonest;
            let gain = back * cycle - candidate.size as f64 * late;
            if gain > best {
                (best, until) = (gain, Some(rules.now + edge));
            }
        }
        let head = &situation.queue.waiting[candidate.skip];
        let longest = rules.adaptive.max_wait.unwrap_or(NEVER);
        let until = until?.min(head.arrived.saturating_add(longest));
        let until = until.min(situation.latest(candidate, learned.unit));
        (until > rules.now).then_some(Wait { until, next_free: 0, goal: None, tested: false })
    }
}
