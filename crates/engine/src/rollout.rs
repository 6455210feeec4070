//! Whether a new version of a model is worse than the old one: a sequential test on failures and on late answers.
//! Pure: what both versions did comes as an argument, and it has no clock.
//!
//! The old version says which share of bad requests is usual. Upon that and what the rule allows, each further bad
//! request is evidence: the likelihood of what was seen if a larger share were true, averaged over several larger
//! shares, against that of the allowed share. That average is a martingale where the new version is as good as
//! allowed, so it ever exceeds `1 / ALARM` with a probability of at most `ALARM`, however often one looks (Ville).
//! Counts begin anew after some requests of the new version, so that a long good time hides no change.

use crate::histogram::FineCounts;
use crate::traffic_split::ReturnRule;

/// How probable a false alarm of one test in one window is at most. Derived: four tests (failures, late answers at three
/// quantiles) in at most 80 short and 5 long windows make it 1 % in 10,000 requests of the new version.
const ALARM: f64 = 0.000_029_4;

/// After so many requests of the new version another window begins; the last two are looked at. Chosen: short ones show
/// a sudden change in seconds, as a good time before it is soon forgotten, and long ones a version that is a little worse.
const WINDOWS: [u64; 2] = [125, 2000];

/// How many standard deviations the usual share may be above what was seen of the old version. Derived: a normal number
/// is beyond with a probability of [`ALARM`].
const DEVIATIONS: f64 = 4.02;

/// The parts of the way from the allowed share to 1 at which larger shares are tried. Chosen: from one that is hard to
/// tell to a version that fails always.
const WORSE: [f64; 7] = [0.005, 0.01, 0.03, 0.1, 0.2, 0.5, 0.9];

/// The shares of answers whose times are compared: a version of which all answers are late is found at the median long
/// before it is at the p99. Chosen.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// The smallest share of differing answers that can be told from none. Chosen.
const DIFFERENT_MIN: f64 = 1e-6;

/// What a version has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) failed: u64,
    /// Of answered requests, those whose answers differ from those of the other version; a shadow's only.
    pub(crate) different: u64,
    /// Times of answered requests.
    pub(crate) times: FineCounts,
}

/// Requests, and those of them that are bad.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    all: u64,
    bad: u64,
}

/// The old and the new version.
type Both = [Outcomes; 2];

/// What both had done when the last window but one began, and when the last began.
type Began = [Both; 2];

/// A comparison of two versions.
pub(crate) struct Comparison {
    /// The windows of each length.
    began: [Began; WINDOWS.len()],
    /// What the new one had done in the beginning.
    first: u64,
}

impl Outcomes {
    /// What a shadow has done: its times say nothing.
    pub(crate) fn of_shadow(same: u64, different: u64, failed: u64) -> Self {
        let times = FineCounts { zero: same + different, ..FineCounts::default() };
        Self { failed, different, times }
    }

    fn answered(&self) -> u64 {
        self.times.zero + self.times.buckets.iter().map(|(_, count)| count).sum::<u64>()
    }

    fn all(&self) -> u64 {
        self.answered() + self.failed
    }

    /// What has come since then.
    fn since(&self, before: &Self) -> Self {
        let past = |bucket: i32| {
            let found = before.times.buckets.binary_search_by_key(&bucket, |(it, _)| *it);
            found.map_or(0, |at| before.times.buckets[at].1)
        };
        let buckets = self.times.buckets.iter();
        let buckets = buckets.map(|(bucket, count)| (*bucket, count.saturating_sub(past(*bucket))));
        let times = FineCounts {
            schema: self.times.schema,
            zero: self.times.zero.saturating_sub(before.times.zero),
            buckets: buckets.collect(),
        };
        let failed = self.failed.saturating_sub(before.failed);
        Self { failed, different: self.different.saturating_sub(before.different), times }
    }

    fn failures(&self) -> Seen {
        Seen { all: self.all(), bad: self.failed }
    }

    /// Answers in later buckets than this one.
    fn later(&self, limit: i32) -> Seen {
        let late = self.times.buckets.iter().filter(|(bucket, _)| *bucket > limit);
        Seen { all: self.answered(), bad: late.map(|(_, count)| count).sum() }
    }

    /// The bucket that this share of answers is not later than.
    fn quantile(&self, share: f64) -> i32 {
        let mut later = self.answered();
        let allowed = (later as f64 * (1.0 - share)) as u64;
        let mut ends = self.times.buckets.iter().map(|(bucket, count)| {
            later -= count;
            (*bucket, later)
        });
        ends.find(|(_, later)| *later <= allowed).map_or(i32::MAX, |(bucket, _)| bucket)
    }
}

impl Seen {
    fn share(self) -> f64 {
        self.bad as f64 / self.all.max(1) as f64
    }

    /// The largest share that is likely after what was seen (Wilson).
    fn usual(self) -> f64 {
        let (all, share, z) = (self.all as f64, self.share(), DEVIATIONS);
        if self.all == 0 {
            return 1.0;
        }
        let spread = z * (share * (1.0 - share) / all + z * z / (4.0 * all * all)).sqrt();
        (share + z * z / (2.0 * all) + spread) / (1.0 + z * z / all)
    }

    /// Whether so many are bad that more than the `allowed` share must be.
    fn exceeds(self, allowed: f64) -> bool {
        if allowed >= 1.0 {
            return false;
        }
        let (bad, good) = (self.bad as f64, (self.all - self.bad) as f64);
        let likelihood = |part: &f64| {
            let share = allowed + (1.0 - allowed) * part;
            bad * (share / allowed).ln() + good * (1.0 - part).ln()
        };
        let logarithms = WORSE.each_ref().map(likelihood);
        let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logarithms.iter().map(|it| (it - largest).exp()).sum();
        largest + (sum / WORSE.len() as f64).ln() > -ALARM.ln()
    }
}

impl Comparison {
    pub(crate) fn new(old: Outcomes, new: Outcomes) -> Self {
        let first = new.all();
        let began = [[old.clone(), new.clone()], [old, new]];
        Self { began: [began.clone(), began], first }
    }

    /// Requests of the new version since the beginning.
    pub(crate) fn seen(&self, new: &Outcomes) -> u64 {
        new.all() - self.first
    }

    /// Why the new version is worse than the rule allows, if it is. Both say what they have done so far.
    pub(crate) fn look(
        &mut self,
        rule: &ReturnRule,
        old: &Outcomes,
        new: &Outcomes,
    ) -> Option<String> {
        let mut found = None;
        for (length, [before_last, last]) in WINDOWS.into_iter().zip(&mut self.began) {
            let judged = judge(rule, &old.since(&before_last[0]), &new.since(&before_last[1]));
            found = found.or(judged);
            if new.all() - last[1].all() >= length {
                *before_last = std::mem::replace(last, [old.clone(), new.clone()]);
            }
        }
        found.filter(|_| self.seen(new) >= rule.after)
    }
}

fn judge(rule: &ReturnRule, old: &Outcomes, new: &Outcomes) -> Option<String> {
    if let Some(more) = rule.errors {
        let (usual, seen) = (old.failures(), new.failures());
        if seen.exceeds(usual.usual() + more) {
            return Some(sentence(seen, "requests failed", usual));
        }
    }
    if let Some(allowed) = rule.different {
        let seen = Seen { all: new.answered(), bad: new.different };
        // Of a share of 0 nothing could be likely.
        if seen.exceeds(allowed.max(DIFFERENT_MIN)) {
            let (Seen { all, bad }, percent) = (seen, seen.share() * 100.0);
            let allowed = allowed * 100.0;
            return Some(format!(
                "{bad} of {all} answers differed ({percent:.1} %), {allowed} % are allowed"
            ));
        }
    }
    QUANTILES.iter().find_map(|share| late(rule.p99?, *share, old, new))
}

/// Whether more answers than the rest of this share take longer than its time in the old version, times the factor.
fn late(factor: f64, share: f64, old: &Outcomes, new: &Outcomes) -> Option<String> {
    let (quantile, doubling) = (old.quantile(share), f64::from(1 << old.times.schema));
    let limit = quantile.saturating_add((factor.log2() * doubling).ceil() as i32);
    let (usual, seen) = (old.later(limit), new.later(limit));
    let (percent, millis) = (share * 100.0, (f64::from(quantile) / doubling).exp2() * 1e3);
    let what =
        format!("answers took longer than {factor} times the p{percent:.0} of {millis:.1} ms");
    // Later than its time is the rest of the share in the old version, as far as that can be known.
    seen.exceeds(old.later(quantile).usual()).then(|| sentence(seen, &what, usual))
}

fn sentence(seen: Seen, what: &str, usual: Seen) -> String {
    let Seen { all, bad } = seen;
    let (percent, before) = (seen.share() * 100.0, usual.share() * 100.0);
    format!("{bad} of {all} {what} ({percent:.1} %), {before:.1} % in the old version")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ReturnRule =
        ReturnRule { errors: Some(0.01), p99: Some(1.5), different: None, after: 50 };
    const SCHEMA: i32 = 3;

    /// Two versions and the requests that they get.
    struct Rollout {
        dice: fastrand::Rng,
        both: [Outcomes; 2],
        comparison: Comparison,
    }

    /// How a version is: its share of failures, and how many steps of 9 % its answers are slower.
    type Health = (f64, i32);

    impl Rollout {
        fn new(seed: u64) -> Self {
            let times = FineCounts { schema: SCHEMA, ..FineCounts::default() };
            let both = [0, 0].map(|failed| Outcomes { failed, different: 0, times: times.clone() });
            let comparison = Comparison::new(both[0].clone(), both[1].clone());
            Self { dice: fastrand::Rng::with_seed(seed), both, comparison }
        }

        /// One request, of which the new version gets 30 %.
        fn request(&mut self, health: [Health; 2]) {
            let version = usize::from(self.dice.f64() < 0.3);
            let ((errors, slower), outcomes) = (health[version], &mut self.both[version]);
            if self.dice.f64() < errors {
                outcomes.failed += 1;
                return;
            }
            // A bell of some steps around 20 ms, with a tail.
            let bell = self.dice.i32(0..=6) + self.dice.i32(0..=6);
            let tail = if self.dice.f64() < 0.02 { self.dice.i32(0..16) } else { 0 };
            let bucket = -51 + bell + tail + slower;
            let buckets = &mut outcomes.times.buckets;
            match buckets.binary_search_by_key(&bucket, |(it, _)| *it) {
                Ok(at) => buckets[at].1 += 1,
                Err(at) => buckets.insert(at, (bucket, 1)),
            }
        }

        /// So many requests, with a look after every 50; after how many it was worse.
        fn run(&mut self, requests: usize, health: [Health; 2]) -> Option<usize> {
            (1..=requests).find(|number| {
                self.request(health);
                let [old, new] = &self.both;
                number % 50 == 0 && self.comparison.look(&RULE, old, new).is_some()
            })
        }
    }

    #[test]
    fn at_most_one_healthy_rollout_in_a_hundred_is_returned() {
        let healthy = [[(0.0, 0); 2], [(0.002, 0); 2], [(0.03, 0); 2], [(0.2, 0); 2]];
        let returned = |seed: &u64| {
            let health = healthy[*seed as usize % healthy.len()];
            Rollout::new(*seed).run(10_000, health).is_some()
        };
        let false_alarms = (0..1_000).filter(returned).count();
        assert!(false_alarms <= 10, "{false_alarms} of 1000");
    }

    #[test]
    fn a_version_at_the_edge_of_what_is_allowed_stays() {
        let edge = [(0.01, 0), (0.02, 3)];
        let returned = (0..100).filter(|seed| Rollout::new(*seed).run(10_000, edge).is_some());
        assert!(returned.count() <= 1);
    }

    #[test]
    fn errors_or_late_answers_are_found_within_ten_seconds_of_a_hundred_requests() {
        for worse in [(0.2, 0), (0.0, 8), (1.0, 0)] {
            for seed in 0..50 {
                let mut rollout = Rollout::new(seed);
                // Healthy for a while, long enough for both windows to be full.
                assert_eq!(rollout.run(9_000, [(0.001, 0); 2]), None, "seed {seed}");
                let after = rollout.run(1_000, [(0.001, 0), worse]);
                assert!(after.is_some(), "{worse:?} with seed {seed} is not found in 10 s");
            }
        }
    }

    #[test]
    fn a_version_that_is_a_little_worse_is_found_in_the_end() {
        let found = |seed| Rollout::new(seed).run(30_000, [(0.001, 0), (0.04, 0)]).is_some();
        assert_eq!((0..20).filter(|seed| found(*seed)).count(), 20);
    }

    #[test]
    fn nothing_is_judged_too_early_or_without_the_old_version() {
        let mut rollout = Rollout::new(1);
        let all_fail = [(0.0, 0), (1.0, 0)];
        assert!(rollout.run(100, all_fail).is_none(), "30 requests are fewer than `after`");
        assert!(rollout.run(200, all_fail).is_some());
        let both_fail = [(1.0, 0); 2];
        assert_eq!(Rollout::new(2).run(5_000, both_fail), None, "something else is broken");
        let alone = Seen { all: 500, bad: 500 };
        assert!(!alone.exceeds(Seen { all: 0, bad: 0 }.usual() + 0.01));
    }

    /// A shadow that differs so often, with a look after every 50 of so many copies; after how many it was too much.
    fn shadow(seed: u64, differs: f64, allowed: f64, copies: u64) -> Option<u64> {
        let rule = ReturnRule { different: Some(allowed), ..RULE }.for_shadow();
        let (mut dice, mut different) = (fastrand::Rng::with_seed(seed), 0);
        let old = Outcomes::of_shadow(0, 0, 0);
        let mut comparison = Comparison::new(old.clone(), old.clone());
        (1..=copies).find(|number| {
            different += u64::from(dice.f64() < differs);
            let new = Outcomes::of_shadow(number - different, different, 0);
            number % 50 == 0 && comparison.look(&rule, &old, &new).is_some()
        })
    }

    #[test]
    fn a_shadow_that_differs_as_often_as_allowed_stays_and_another_is_found() {
        let ended = (0..1_000).filter(|seed| shadow(*seed, 0.05, 0.05, 10_000).is_some());
        assert!(ended.count() <= 10);
        for seed in 0..50 {
            assert!(shadow(seed, 0.2, 0.05, 500).is_some(), "seed {seed}");
            assert_eq!(shadow(seed, 0.0, 0.0, 5_000), None);
            assert!(shadow(seed, 0.02, 0.0, 500).is_some(), "none may differ, seed {seed}");
        }
    }

    #[test]
    fn the_reason_is_a_sentence() {
        let mut rollout = Rollout::new(3);
        let mut told = None;
        while told.is_none() {
            rollout.request([(0.0, 0), (0.5, 0)]);
            let [old, new] = &rollout.both;
            told = rollout.comparison.look(&RULE, old, new);
        }
        let told = told.unwrap();
        assert!(told.contains(" requests failed (") && told.ends_with("0.0 % in the old version"));
    }
}
