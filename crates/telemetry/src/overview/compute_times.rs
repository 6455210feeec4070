//! How long a version's batches took, by their size: a moment ago, in the minutes before, and a day before.
//!
//! More traffic makes the queue longer and batches larger; only a slower model, part, device or machine makes
//! a batch of the same size take longer. So sizes are compared with themselves. While batches take longer than
//! before, what came before is kept, so that an incident does not become its own measure.

use std::collections::{BTreeMap, VecDeque};

use super::model_entry::SizeCount;

/// Looks that are no older are now.
const NOW_MS: u64 = 20_000;
/// So many looks with batches of a size tell how long they take now, and so many of those before.
const NOW_LOOKS: (usize, usize) = (3, 5);
const BEFORE_LOOKS_MIN: usize = 4;
/// Five minutes of looks.
const BEFORE_LOOKS_MAX: usize = 150;
/// A slower model is the usual one after this time.
const USUAL_MS: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;
/// What is kept for a day is put together for ten minutes each.
const SLOT_MS: u64 = 600_000;
const SLOTS_MAX: usize = 150;
/// Batches that take so many times as long, and so much longer, are slower.
const SLOWER: f64 = 1.5;
const SLOWER_MS: f64 = 1.0;

/// Means in milliseconds by size.
pub(super) type Means = BTreeMap<u32, f64>;

/// The times of one version.
#[derive(Debug, Default)]
pub(super) struct ComputeTimes {
    totals: BTreeMap<u32, SizeTime>,
    now: VecDeque<Look>,
    before: VecDeque<Look>,
    day: VecDeque<Look>,
    slow_since: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SizeTime {
    batches: u64,
    seconds: f64,
}

/// Batches between two looks.
#[derive(Debug)]
struct Look {
    time: u64,
    took: BTreeMap<u32, SizeTime>,
}

/// Batches take longer than they did.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slowdown {
    pub(super) size: u32,
    pub(super) now_ms: f64,
    /// Another size where this one was not there then.
    pub(super) then_size: u32,
    pub(super) then_ms: f64,
    pub(super) then: Then,
}

/// What is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// So many milliseconds ago.
    Ago(u64),
    DayAgo,
    Version(String),
}

impl ComputeTimes {
    /// Takes the totals of all sizes.
    pub(super) fn look(&mut self, time: u64, sizes: &[SizeCount]) {
        let mut totals: BTreeMap<u32, SizeTime> = BTreeMap::new();
        for size in sizes {
            totals.entry(class(size.size)).or_default().add(size.answered, size.compute_seconds);
        }
        let took = grown(&totals, &self.totals);
        self.totals = totals;
        while let Some(old) = self.now.pop_front_if(|look| look.time + NOW_MS < time) {
            if self.slow_since.is_none() {
                push(&mut self.before, old, BEFORE_LOOKS_MAX);
            }
        }
        if !took.is_empty() {
            self.add_to_day(time, &took);
            self.now.push_back(Look { time, took });
        }
        self.judge(time);
    }

    fn judge(&mut self, time: u64) {
        let slower = self.than_minutes_ago(time).is_some();
        let since = *self.slow_since.get_or_insert(time);
        if slower && since + USUAL_MS < time {
            self.before.clear();
        }
        self.slow_since = (slower && !self.before.is_empty()).then_some(since);
    }

    fn add_to_day(&mut self, time: u64, took: &BTreeMap<u32, SizeTime>) {
        if self.day.back().is_none_or(|slot| slot.time + SLOT_MS <= time) {
            push(&mut self.day, Look { time, took: BTreeMap::new() }, SLOTS_MAX);
        }
        let Some(slot) = self.day.back_mut() else { return };
        for (size, more) in took {
            slot.took.entry(*size).or_default().add(more.batches, more.seconds);
        }
    }

    /// Whether batches take longer than minutes ago, or than a day ago.
    pub(super) fn slower(&self, time: u64) -> Option<Slowdown> {
        self.than_minutes_ago(time).or_else(|| {
            let then = |slot: &&Look| (slot.time + DAY_MS).abs_diff(time) <= 3 * SLOT_MS;
            slower(&self.now(), &medians(self.day.iter().filter(then), 1), Then::DayAgo)
        })
    }

    fn than_minutes_ago(&self, time: u64) -> Option<Slowdown> {
        let ago = time.saturating_sub(self.before.back()?.time);
        slower(&self.now(), &medians(self.before.iter(), BEFORE_LOOKS_MIN), Then::Ago(ago))
    }

    /// Whether batches of a version without a past take longer than those of another one.
    pub(super) fn slower_than(&self, other: &Self, version: &str) -> Option<Slowdown> {
        if !self.before.is_empty() {
            return None;
        }
        let theirs = medians(other.before.iter().chain(&other.now), BEFORE_LOOKS_MIN);
        slower(&self.now(), &theirs, Then::Version(version.to_owned()))
    }

    fn now(&self) -> Means {
        let (least, most) = NOW_LOOKS;
        medians(self.now.iter().rev().take(most), least)
    }
}

impl SizeTime {
    fn add(&mut self, batches: u64, seconds: f64) {
        self.batches += batches;
        self.seconds += seconds;
    }
}

fn push(looks: &mut VecDeque<Look>, look: Look, most: usize) {
    if looks.len() >= most {
        looks.pop_front();
    }
    looks.push_back(look);
}

/// Sizes that are counted together, by the largest: 1, 2, 3, 4, 6, 8, 12, 16 and so on.
fn class(size: u32) -> u32 {
    let power = size.next_power_of_two();
    let between = power / 4 * 3;
    if size <= between { between } else { power }
}

fn grown(
    now: &BTreeMap<u32, SizeTime>,
    before: &BTreeMap<u32, SizeTime>,
) -> BTreeMap<u32, SizeTime> {
    let more = now.iter().filter_map(|(size, now)| {
        let before = before.get(size).copied().unwrap_or_default();
        let batches = now.batches.checked_sub(before.batches).filter(|batches| *batches > 0)?;
        Some((*size, SizeTime { batches, seconds: (now.seconds - before.seconds).max(0.0) }))
    });
    more.collect()
}

/// The median of the looks' means for every size that enough of them have: one long batch changes nothing.
fn medians<'a>(looks: impl Iterator<Item = &'a Look>, least: usize) -> Means {
    let mut means: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (size, took) in looks.flat_map(|look| &look.took) {
        means.entry(*size).or_default().push(1e3 * took.seconds / took.batches as f64);
    }
    means.retain(|_, means| means.len() >= least);
    let median = |(size, mut means): (u32, Vec<f64>)| {
        means.sort_unstable_by(f64::total_cmp);
        (size, means[means.len() / 2])
    };
    means.into_iter().map(median).collect()
}

/// The size whose batches have become slowest.
fn slower(now: &Means, then: &Means, when: Then) -> Option<Slowdown> {
    let compared = now.iter().filter_map(|(&size, &now_ms)| {
        let (then_size, then_ms, at_most) = expected(then, size)?;
        let slower = now_ms >= SLOWER * at_most && now_ms >= at_most + SLOWER_MS;
        let found = Slowdown { size, now_ms, then_size, then_ms, then: when.clone() };
        slower.then_some((now_ms / at_most, found))
    });
    let worst = compared.max_by(|(one, _), (other, _)| one.total_cmp(other));
    worst.map(|(_, slowdown)| slowdown)
}

/// What is known of a size, and what it takes at most: a larger batch takes no less, and twice the items take
/// no more than twice as long.
fn expected(then: &Means, size: u32) -> Option<(u32, f64, f64)> {
    let (&larger, &ms) = match then.range(size..).next() {
        Some(larger) => larger,
        None => {
            let (&smaller, &ms) = then.range(..size).next_back()?;
            return Some((smaller, ms, ms * f64::from(size) / f64::from(smaller)));
        }
    };
    Some((larger, ms, ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a model after batches of sizes that took so many milliseconds, for so many seconds each; a
    /// size of 0 is a pause.
    fn played(parts: &[(u64, u32, f64)]) -> (ComputeTimes, u64) {
        let (mut times, mut time) = (ComputeTimes::default(), 0);
        let mut sizes: BTreeMap<u32, SizeCount> = BTreeMap::new();
        for &(seconds, size, ms) in parts {
            if size == 0 {
                time += seconds * 1000;
                continue;
            }
            for _ in 0..seconds / 2 {
                time += 2000;
                let count = sizes.entry(size).or_default();
                count.size = size;
                count.answered += 10;
                count.compute_seconds += 10.0 * ms / 1e3;
                times.look(time, &sizes.values().cloned().collect::<Vec<_>>());
            }
        }
        (times, time)
    }

    fn slowdown(parts: &[(u64, u32, f64)]) -> Option<Slowdown> {
        let (times, time) = played(parts);
        times.slower(time)
    }

    #[test]
    fn the_same_size_is_compared_with_minutes_ago() {
        let found = slowdown(&[(120, 1, 10.0), (30, 1, 400.0)]).unwrap();
        let millis = (found.now_ms.round(), found.then_ms.round());
        assert_eq!((found.size, found.then_size, millis), (1, 1, (400.0, 10.0)));
        assert!(matches!(found.then, Then::Ago(30_000..=60_000)), "{found:?}");
        assert_eq!(slowdown(&[(120, 1, 10.0), (30, 1, 12.0)]), None);
    }

    #[test]
    fn larger_batches_are_no_slower_model() {
        assert_eq!(slowdown(&[(120, 1, 10.0), (30, 8, 70.0)]), None);
        let found = slowdown(&[(120, 1, 10.0), (30, 8, 400.0)]).unwrap();
        assert_eq!((found.size, found.then_size, found.then_ms.round()), (8, 1, 10.0));
    }

    #[test]
    fn one_long_batch_is_none_and_an_incident_is_told_until_it_is_an_hour_old() {
        assert_eq!(slowdown(&[(120, 1, 10.0), (2, 1, 900.0), (2, 1, 10.0)]), None);
        assert!(slowdown(&[(120, 1, 10.0), (3000, 1, 400.0)]).is_some());
        assert_eq!(slowdown(&[(120, 1, 10.0), (4000, 1, 400.0)]), None);
        assert_eq!(slowdown(&[(120, 1, 10.0), (600, 1, 400.0), (60, 1, 10.0)]), None);
    }

    #[test]
    fn a_day_ago_counts_too() {
        let hour = 3600;
        let pause = (22 * hour, 0, 0.0);
        let found = slowdown(&[(2 * hour, 1, 10.0), pause, (hour + 60, 1, 400.0)]).unwrap();
        assert_eq!((found.then_ms.round(), &found.then), (10.0, &Then::DayAgo));
        assert_eq!(slowdown(&[(2 * hour, 1, 10.0), pause, (hour + 60, 1, 10.0)]), None);
    }

    #[test]
    fn a_new_version_is_compared_with_the_other() {
        let ((old, _), (new, _)) = (played(&[(120, 1, 10.0)]), played(&[(16, 1, 400.0)]));
        let found = new.slower_than(&old, "1.0").unwrap();
        assert_eq!((found.then_ms.round(), found.then), (10.0, Then::Version("1.0".to_owned())));
        assert_eq!(old.slower_than(&new, "2.0"), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let slots: Vec<_> = (0..200).flat_map(|_| [(2, 1, 10.0), (600, 0, 0.0)]).collect();
        let (times, _) = played(&[&slots[..], &[(600, 1, 10.0)]].concat());
        let kept = (times.now.len(), times.before.len(), times.day.len());
        assert_eq!(kept, (11, BEFORE_LOOKS_MAX, SLOTS_MAX));
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 9, 13].map(class), [1, 2, 3, 4, 6, 6, 8, 12, 16]);
    }
}
