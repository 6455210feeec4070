//! Latencies over time, in as many slots as a picture can show. When there are too many, neighbours
//! are merged and the slots are twice as wide.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::answer::Ending;
use crate::tally::{LATENCY_MAX, millis, nanos};

const SLOTS_MAX: usize = 128;
const FIRST_WIDTH: Duration = Duration::from_millis(50);

/// What happened when.
#[derive(Debug)]
pub(crate) struct Timeline {
    width: Duration,
    slots: Vec<TimeSlot>,
}

#[derive(Debug, Default)]
struct TimeSlot {
    answers: Option<Histogram<u32>>,
    rejected: u64,
    failed: u64,
}

/// The requests that were due within a slot of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeSlotReport {
    /// Where it starts, in seconds from the first that counts.
    pub at_s: f64,
    /// How many were answered.
    pub answered: u64,
    /// How many the server took not.
    pub rejected: u64,
    /// How many failed otherwise.
    pub failed: u64,
    /// Median latency of the answered ones.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// None took longer.
    pub max_ms: f64,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { width: FIRST_WIDTH, slots: Vec::new() }
    }

    pub(crate) fn record(&mut self, at: Duration, took: Duration, ending: Ending) {
        let mut number = self.number(at);
        while number >= SLOTS_MAX {
            self.widen();
            number = self.number(at);
        }
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, TimeSlot::default);
        }
        let slot = &mut self.slots[number];
        if ending.is_answer() {
            let answers = slot.answers.get_or_insert_with(coarse);
            answers.saturating_record(nanos(took));
        } else if ending.is_rejection() {
            slot.rejected += 1;
        } else {
            slot.failed += 1;
        }
    }

    fn number(&self, at: Duration) -> usize {
        (at.as_nanos() / self.width.as_nanos()) as usize
    }

    fn widen(&mut self) {
        self.width *= 2;
        let mut wider: Vec<TimeSlot> = Vec::with_capacity(self.slots.len().div_ceil(2));
        for (number, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            match wider.last_mut().filter(|_| number % 2 == 1) {
                Some(neighbour) => neighbour.add(slot),
                None => wider.push(slot),
            }
        }
        self.slots = wider;
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        while self.width < other.width {
            self.widen();
        }
        while other.width < self.width {
            other.widen();
        }
        if self.slots.len() < other.slots.len() {
            self.slots.resize_with(other.slots.len(), TimeSlot::default);
        }
        self.slots.iter_mut().zip(other.slots).for_each(|(mine, other)| mine.add(other));
    }

    pub(crate) fn report(&self) -> Vec<TimeSlotReport> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(number, slot)| slot.report(self.width.as_secs_f64() * number as f64)).collect()
    }
}

impl TimeSlot {
    fn add(&mut self, other: Self) {
        self.rejected += other.rejected;
        self.failed += other.failed;
        match (&mut self.answers, other.answers) {
            (Some(mine), Some(other)) => mine.add(other).unwrap_or(()),
            (mine @ None, other) => *mine = other,
            (Some(_), None) => {}
        }
    }

    fn report(&self, at_s: f64) -> TimeSlotReport {
        let latency = |share: f64| {
            self.answers.as_ref().map_or(0.0, |answers| millis(answers.value_at_quantile(share)))
        };
        TimeSlotReport {
            at_s,
            answered: self.answers.as_ref().map_or(0, Histogram::len),
            rejected: self.rejected,
            failed: self.failed,
            p50_ms: latency(0.5),
            p99_ms: latency(0.99),
            max_ms: latency(1.0),
        }
    }
}

/// A histogram for one slot: exact to one percent.
pub(crate) fn coarse() -> Histogram<u32> {
    Histogram::new_with_bounds(1000, LATENCY_MAX, 2).expect("the bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_long_run_is_shown_in_wider_slots_and_nothing_is_lost() {
        let mut timeline = Timeline::new();
        for second in 0..1000 {
            timeline.record(Duration::from_secs(second), 3 * MS, Ending::Http(200));
            timeline.record(Duration::from_secs(second), MS, Ending::Http(503));
        }
        let slots = timeline.report();
        assert!((32..=SLOTS_MAX).contains(&slots.len()), "{}", slots.len());
        assert_eq!(slots.iter().map(|slot| slot.answered).sum::<u64>(), 1000);
        assert_eq!(slots.iter().map(|slot| slot.rejected).sum::<u64>(), 1000);
        assert!((slots[3].p50_ms - 3.0).abs() < 0.05, "{:?}", slots[3]);
    }

    #[test]
    fn timelines_of_different_width_are_added() {
        let (mut short, mut long) = (Timeline::new(), Timeline::new());
        short.record(60 * MS, MS, Ending::Http(200));
        long.record(Duration::from_secs(30), MS, Ending::Http(500));
        short.add(long);
        let slots = short.report();
        assert_eq!((slots[0].answered, slots.last().map(|slot| slot.failed)), (1, Some(1)));
    }
}
