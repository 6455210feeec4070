//! What became of the requests of a phase: counts and histograms.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::answer::{Ending, Exchange};

/// The longest latency that is told apart from longer ones: an hour, in nanoseconds.
pub(crate) const LATENCY_MAX: u64 = 3_600_000_000_000;
/// Reasons that are counted by name.
const REASONS_MAX: usize = 64;

/// What became of the requests of a phase.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Requests that were due or begun.
    pub(crate) offered: u64,
    /// Latencies of the answered ones, in nanoseconds.
    pub(crate) answers: Histogram<u64>,
    /// Latencies of the rejected ones.
    pub(crate) rejections: Histogram<u64>,
    /// Answered within the objective.
    pub(crate) good: u64,
    /// Rejected with a reason and the time to try again.
    pub(crate) explained: u64,
    pub(crate) endings: Vec<(Ending, u64)>,
    pub(crate) reasons: BTreeMap<Box<str>, u64>,
    /// When the last one that was not good was due, from the start of the phase.
    pub(crate) last_bad: Duration,
    /// Bytes of the answers' bodies.
    pub(crate) bytes: u64,
    /// Until the last one ended, from the start of the phase.
    pub(crate) elapsed: Duration,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            offered: 0,
            answers: exact(),
            rejections: exact(),
            good: 0,
            explained: 0,
            endings: Vec::new(),
            reasons: BTreeMap::new(),
            last_bad: Duration::ZERO,
            bytes: 0,
            elapsed: Duration::ZERO,
        }
    }

    /// A request ended; `due` is from the start of the phase.
    pub(crate) fn record(
        &mut self,
        due: Duration,
        took: Duration,
        exchange: &Exchange,
        objective: Option<Duration>,
    ) {
        let ending = exchange.ending;
        self.count(ending, 1);
        self.bytes += exchange.bytes;
        self.elapsed = self.elapsed.max(due + took);
        if ending.is_answer() {
            self.answers.saturating_record(nanos(took));
            if objective.is_none_or(|objective| took <= objective) {
                self.good += 1;
                return;
            }
        } else if ending.is_rejection() {
            self.rejections.saturating_record(nanos(took));
        }
        self.last_bad = self.last_bad.max(due);
        if let Some(reason) = exchange.reason() {
            self.explained += u64::from(ending.is_rejection() && exchange.retry_after);
            if self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&reason) {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
    }

    fn count(&mut self, ending: Ending, times: u64) {
        match self.endings.iter_mut().find(|(known, _)| *known == ending) {
            Some((_, count)) => *count += times,
            None => self.endings.push((ending, times)),
        }
    }

    /// How many ended in a way.
    pub(crate) fn ended(&self, way: impl Fn(Ending) -> bool) -> u64 {
        self.endings.iter().filter(|(ending, _)| way(*ending)).map(|(_, count)| count).sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.good += other.good;
        self.explained += other.explained;
        self.bytes += other.bytes;
        self.last_bad = self.last_bad.max(other.last_bad);
        self.elapsed = self.elapsed.max(other.elapsed);
        // The bounds are the same, so it cannot fail.
        let _ = self.answers.add(&other.answers);
        let _ = self.rejections.add(&other.rejections);
        other.endings.iter().for_each(|(ending, times)| self.count(*ending, *times));
        for (reason, times) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += times;
        }
    }
}

/// A histogram that is exact to a thousandth and to a tenth of a microsecond.
pub(crate) fn exact() -> Histogram<u64> {
    Histogram::new_with_bounds(64, LATENCY_MAX, 3).expect("the bounds are valid")
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::ExchangeFailure;

    const MS: Duration = Duration::from_millis(1);

    fn rejected(text: &str, retry_after: bool) -> Exchange {
        Exchange { ending: Ending::Http(503), error: Some(text.into()), retry_after, bytes: 0 }
    }

    #[test]
    fn a_tally_knows_good_late_rejected_and_lost_requests() {
        let mut tally = Tally::new();
        let objective = Some(100 * MS);
        let ok = Exchange::answered(Ending::Http(200), 5);
        tally.record(MS, 10 * MS, &ok, objective);
        tally.record(2 * MS, 200 * MS, &ok, objective);
        tally.record(3 * MS, MS, &rejected("[reason: overload]", true), objective);
        tally.record(4 * MS, MS, &rejected("[reason: overload]", false), objective);
        tally.record(5 * MS, MS, &rejected("no", true), objective);
        tally.record(6 * MS, MS, &Exchange::failed(ExchangeFailure::Reset), objective);
        tally.record(7 * MS, 100 * MS, &ok, objective);
        assert_eq!((tally.good, tally.explained, tally.bytes), (2, 1, 15));
        assert_eq!((tally.answers.len(), tally.rejections.len()), (3, 3));
        assert_eq!(tally.ended(Ending::is_failure), 1);
        assert_eq!(tally.reasons.get("overload"), Some(&2));
        assert_eq!(tally.last_bad, 6 * MS);
        let mut both = Tally::new();
        both.add(&tally);
        both.add(&tally);
        assert_eq!((both.good, both.ended(Ending::is_answer), both.answers.len()), (4, 6, 6));
    }
}
