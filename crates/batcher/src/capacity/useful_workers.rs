//! Up to how many workers one more brings anything: they share processors and GPUs, and beyond some number a further one
//! only makes all of them slower.
//!
//! Nobody needs to say how many processors a worker uses. Shortly after the number of workers has changed, the curve
//! that was learned with it and the one before tell what the difference has brought. Only then: later the requests may
//! be others.

use super::facts::CapacityFacts;
use crate::learned::CurvePoint;
use crate::request::Nanos;

/// A worker more has to bring this share of what it would bring if it took nothing from the others. Chosen: less is not
/// worth its memory, and is hard to tell from none.
const LEAST_SHARE: f64 = 0.25;
/// What was found is taken back where it brings this share now. Chosen: far above what is too little, so that chance
/// does not start and end workers by turns.
const TAKEN_BACK_SHARE: f64 = 0.75;
/// So long a change counts as one of a moment ago. Chosen: the work is still the same.
const FRESH: Nanos = 120_000_000_000;
/// Sizes of which so many batches are known with either number are compared. Chosen: with those the batcher trusts
/// their mean.
const SURE: u32 = 8;
/// Chance must be so many standard deviations away from hiding what a worker that disturbs nobody brings. Chosen: once
/// in a thousand.
const SIGMAS: f64 = 3.0;
/// The planned time of a batch is so many standard deviations above its mean: the 90th percentile. With one worker it is
/// the 80th, which tells of less chance; what is compared with that has several, and the larger of both counts.
const PLANNED_SIGMAS: f64 = 1.28;
/// For so long no more are started than were useful; then it is tried again, and where that brought nothing, after
/// twice the time. Chosen: a start costs the others more than a minute of waiting does.
const TRY_AGAIN: Nanos = 600_000_000_000;
/// Bound: three doublings.
const DOUBLINGS_MAX: u32 = 3;

/// Up to which number workers were found to be useful.
#[derive(Clone, Debug, Default)]
pub(super) struct UsefulWorkers {
    /// The number of them, and since when it is that.
    serving: (u32, Nanos),
    /// More than so many bring nothing, as far as is known until then.
    most: Option<(u32, Nanos)>,
    /// The same while it is tried again.
    tried: Option<u32>,
    /// How often that was found in a row.
    found: u32,
}

impl UsefulWorkers {
    /// More than so many are not worth a start.
    pub(super) fn look(&mut self, now: Nanos, facts: &CapacityFacts<'_>) -> Option<u32> {
        if facts.serving != self.serving.0 {
            self.serving = (facts.serving, now);
        }
        if let Some((most, _)) = self.most.take_if(|(_, until)| now >= *until) {
            self.tried = Some(most);
        }
        let fresh = now.saturating_sub(self.serving.1) < FRESH;
        if let Some((fewer, brings)) = brings(facts).filter(|_| fresh) {
            self.tried = None;
            self.judge(now, fewer, brings);
        } else if let Some(most) = self.tried.take_if(|most| !fresh && facts.serving > *most) {
            // It was not seen to bring anything this time either.
            self.set_most(now, most);
        }
        self.most.map(|(most, _)| most)
    }

    /// More than this many bring so much: a share of what they would bring if they took nothing from the others.
    fn judge(&mut self, now: Nanos, fewer: u32, brings: f64) {
        let known = self.most.is_some_and(|(most, _)| most <= fewer);
        if known {
            // It was the work that had become slower.
            if brings >= TAKEN_BACK_SHARE {
                (self.most, self.found) = (None, 0);
            }
        } else if brings < LEAST_SHARE {
            self.set_most(now, fewer);
        }
    }

    /// More than so many are not wanted for a while.
    fn set_most(&mut self, now: Nanos, most: u32) {
        self.most = Some((most, now + (TRY_AGAIN << self.found.min(DOUBLINGS_MAX))));
        self.found += 1;
    }
}

/// The smaller of the two numbers of workers that there are and were, and what the others beyond it bring, where that is
/// known.
fn brings(facts: &CapacityFacts<'_>) -> Option<(u32, f64)> {
    let (before, curve) = facts.before?;
    let (now, then) = (facts.serving, before);
    let (few, many) = (now.min(then), now.max(then));
    if few == 0 || few == many {
        return None;
    }
    let (mut time_now, mut time_then, mut batches, mut scatter) = (0.0, 0.0, 0.0, 0.0);
    for point in facts.curve.iter().filter(|it| it.samples >= SURE) {
        let Ok(at) = curve.binary_search_by_key(&point.size, |it| it.size) else { continue };
        let other = &curve[at];
        if other.samples >= SURE {
            let weight = f64::from(point.samples.min(other.samples));
            time_now += weight * point.mean as f64;
            time_then += weight * other.mean as f64;
            scatter += weight * (deviation(point).max(deviation(other))).powi(2);
            batches += weight;
        }
    }
    let slower = if now > then { time_now / time_then } else { time_then / time_now };
    let alone = f64::from(many) / f64::from(few);
    let chance = (2.0 * scatter).sqrt() / batches;
    let told = batches > 0.0 && SIGMAS * chance * alone <= (1.0 - LEAST_SHARE) * (alone - 1.0);
    told.then(|| (few, (alone / slower - 1.0) / (alone - 1.0)))
}

/// By how much equal batches differ, as a share of their mean.
fn deviation(point: &CurvePoint) -> f64 {
    (point.planned as f64 / point.mean.max(1) as f64 - 1.0).max(0.0) / PLANNED_SIGMAS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Sixty-four batches of four sizes that take so long.
    fn curve(took: Nanos) -> [CurvePoint; 4] {
        let point =
            |size| CurvePoint { group: 0, size, mean: took, planned: took / 20 * 21, samples: 16 };
        [1, 2, 3, 4].map(point)
    }

    fn facts<'a>(
        (serving, now): (u32, &'a [CurvePoint]),
        (before, then): (u32, &'a [CurvePoint]),
    ) -> CapacityFacts<'a> {
        CapacityFacts {
            arrived: 0,
            waiting: 0,
            curve: now,
            serving,
            before: Some((before, then)),
            unit: 1.0,
            beside: 1.0,
            objective: None,
            load: SECOND,
            failing: false,
            bounds: (1, 8),
            idle: SECOND,
        }
    }

    #[test]
    fn what_more_workers_bring_is_told_from_both_curves_in_either_direction() {
        let (fast, slow) = (curve(100_000_000), curve(200_000_000));
        let told =
            |now, then| brings(&facts(now, then)).map(|(few, it)| (few, (it * 100.0) as i64));
        assert_eq!(told((2, &slow), (1, &fast)), Some((1, 0)), "twice as many at half the pace");
        assert_eq!(told((1, &fast), (2, &slow)), Some((1, 0)));
        assert_eq!(told((2, &fast), (1, &fast)), Some((1, 100)));
        assert_eq!(told((4, &slow), (1, &fast)), Some((1, 33)));
        assert_eq!(told((9, &fast), (8, &fast)), Some((8, 100)));
        assert_eq!(told((65, &fast), (64, &fast)), None, "that could be chance");
        let guess = curve(200_000_000).map(|it| CurvePoint { samples: 1, ..it });
        assert_eq!(told((2, &guess), (1, &fast)), None, "not learned yet");
    }

    #[test]
    fn a_number_that_brought_nothing_is_tried_again_seldom_and_then_more_seldom() {
        let (fast, slow) = (curve(100_000_000), curve(200_000_000));
        let (one, two) = ((1, &fast[..]), (2, &slow[..]));
        let mut useful = UsefulWorkers::default();
        let mut now = SECOND;
        assert_eq!(useful.look(now, &facts(one, (1, &fast))), None);
        for seconds in [600, 1200, 2400, 4800, 4800] {
            assert_eq!(useful.look(now, &facts(two, one)), Some(1));
            assert_eq!(useful.look(now + SECOND, &facts(one, two)), Some(1), "and stays so");
            now += seconds * SECOND;
            assert_eq!(useful.look(now - 1, &facts(one, two)), Some(1));
            assert_eq!(useful.look(now, &facts(one, two)), None);
        }
    }

    #[test]
    fn where_the_work_has_become_slower_the_others_were_useful() {
        let (fast, slow) = (curve(100_000_000), curve(200_000_000));
        let mut useful = UsefulWorkers::default();
        assert_eq!(useful.look(SECOND, &facts((2, &slow), (1, &fast))), Some(1));
        assert_eq!(useful.look(2 * SECOND, &facts((1, &slow), (2, &slow))), None);
        assert_eq!(useful.look(3 * SECOND, &facts((2, &slow), (1, &slow))), None);
    }

    #[test]
    fn what_was_learned_long_ago_is_not_compared() {
        let (fast, slow) = (curve(100_000_000), curve(200_000_000));
        let mut useful = UsefulWorkers::default();
        let guess = curve(100_000_000).map(|it| CurvePoint { samples: 1, ..it });
        assert_eq!(useful.look(SECOND, &facts((2, &guess), (1, &fast))), None);
        assert_eq!(useful.look(SECOND + FRESH, &facts((2, &slow), (1, &fast))), None);
    }
}
