//! What is to be said of one model version's rejections and late answers. A pure function of the totals
//! and the time: it neither reads a clock nor logs.

use std::collections::VecDeque;
use std::time::Duration;

use jitney_engine::REJECTIONS;
use tokio::time::Instant;

/// A reason is told at most once in this time; an overload without rejections for as long is over.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Rejections at so many looks in a row are an overload and no hiccup.
const OVERLOAD_LOOKS: u32 = 3;
/// Answers are counted over so many looks.
const RATE_LOOKS: usize = 10;

/// Reasons that mean that more comes than can be served.
const OVERLOAD: [&str; 5] = ["queue_full", "expired", "hopeless", "overload", "crowded"];
/// Reasons that are told by other lines: the server drains.
const SILENT: [&str; 1] = ["draining"];

/// The totals of a model version at one look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// In the order of [`REJECTIONS`].
    pub(super) rejections: [u64; REJECTIONS.len()],
    pub(super) answered: u64,
    pub(super) late: u64,
}

/// Something to say.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Remark {
    Rejected { reason: &'static str, count: u64, time: Duration, answers_per_second: f64 },
    Late { count: u64, time: Duration },
    OverloadBegan { time: Duration, rejected: u64 },
    OverloadEnded { time: Duration, rejected: u64 },
}

#[derive(Debug, Default)]
pub(super) struct RejectionWatch {
    before: Totals,
    reasons: [Limited; REJECTIONS.len()],
    late: Limited,
    overload: OverloadWatch,
    /// When and how many were answered, at the last looks.
    answered: VecDeque<(Instant, u64)>,
}

impl RejectionWatch {
    /// What is to be said at this look.
    pub(super) fn look(&mut self, now: Instant, totals: &Totals) -> Vec<Remark> {
        let answers_per_second = self.rate(now, totals.answered);
        let (mut remarks, mut overload) = (Vec::new(), 0);
        for (index, reason) in REJECTIONS.into_iter().enumerate() {
            let more = totals.rejections[index].saturating_sub(self.before.rejections[index]);
            if OVERLOAD.contains(&reason) {
                overload += more;
            }
            if SILENT.contains(&reason) {
                continue;
            }
            if let Some((count, time)) = self.reasons[index].add(now, more) {
                remarks.push(Remark::Rejected { reason, count, time, answers_per_second });
            }
        }
        remarks.extend(self.overload.look(now, overload));
        let late = totals.late.saturating_sub(self.before.late);
        let late = self.late.add(now, late);
        remarks.extend(late.map(|(count, time)| Remark::Late { count, time }));
        self.before = *totals;
        remarks
    }

    /// Answers per second in the last seconds.
    fn rate(&mut self, now: Instant, answered: u64) -> f64 {
        if self.answered.len() > RATE_LOOKS {
            self.answered.pop_front();
        }
        self.answered.push_back((now, answered));
        let Some((since, before)) = self.answered.front() else { return 0.0 };
        let seconds = now.duration_since(*since).as_secs_f64();
        if seconds > 0.0 { answered.saturating_sub(*before) as f64 / seconds } else { 0.0 }
    }
}

/// A count that is told at most once in a while.
#[derive(Debug, Default)]
struct Limited {
    /// Not told yet.
    count: u64,
    /// The look before the first of these.
    since: Option<Instant>,
    told: Option<Instant>,
    looked: Option<Instant>,
}

impl Limited {
    /// Counts more: the number to tell now, and the time in which they came.
    fn add(&mut self, now: Instant, more: u64) -> Option<(u64, Duration)> {
        let before = self.looked.replace(now).unwrap_or(now);
        if more > 0 {
            self.count += more;
            self.since.get_or_insert(before);
        }
        let soon = self.told.is_some_and(|told| now.duration_since(told) < TELL_EVERY);
        if self.count == 0 || soon {
            return None;
        }
        self.told = Some(now);
        let since = self.since.take().unwrap_or(now);
        let time = now.duration_since(since).max(Duration::from_secs(1));
        Some((std::mem::take(&mut self.count), time))
    }
}

#[derive(Debug, Default)]
struct OverloadWatch {
    /// Looks in a row with rejections.
    looks: u32,
    /// The first and the last look with rejections, and how many there were.
    seen: Option<(Instant, Instant, u64)>,
    /// Whether it was said.
    told: bool,
}

impl OverloadWatch {
    fn look(&mut self, now: Instant, more: u64) -> Option<Remark> {
        if more > 0 {
            self.looks += 1;
            let (first, _, rejected) = self.seen.unwrap_or((now, now, 0));
            let rejected = rejected + more;
            self.seen = Some((first, now, rejected));
            if self.told || self.looks < OVERLOAD_LOOKS {
                return None;
            }
            self.told = true;
            return Some(Remark::OverloadBegan { time: now.duration_since(first), rejected });
        }
        self.looks = 0;
        let (first, last, rejected) = self.seen?;
        if now.duration_since(last) < TELL_EVERY {
            return None;
        }
        self.seen = None;
        let time = last.duration_since(first);
        std::mem::take(&mut self.told).then_some(Remark::OverloadEnded { time, rejected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_FULL: usize = 0;
    const DRAINING: usize = 3;
    const BAD_INPUT: usize = 9;

    /// What is said in each second in which so many more are rejected for a reason.
    fn said(index: usize, rejected: impl IntoIterator<Item = u64>) -> Vec<(u64, Remark)> {
        let (mut watch, mut totals, start) =
            (RejectionWatch::default(), Totals::default(), Instant::now());
        let mut said = Vec::new();
        for (second, more) in (0..).zip(rejected) {
            totals.rejections[index] += more;
            totals.answered += 180;
            let remarks = watch.look(start + Duration::from_secs(second), &totals);
            said.extend(remarks.into_iter().map(|remark| (second, remark)));
        }
        said
    }

    fn rejected(reason: &'static str, count: u64, seconds: u64, rate: f64) -> Remark {
        let time = Duration::from_secs(seconds);
        Remark::Rejected { reason, count, time, answers_per_second: rate }
    }

    #[test]
    fn a_single_rejection_is_told_at_once_and_is_no_overload() {
        let said = said(QUEUE_FULL, [0, 0, 1].into_iter().chain([0; 30]));
        assert_eq!(said, [(2, rejected("queue_full", 1, 1, 180.0))]);
    }

    #[test]
    fn many_rejections_are_one_line_in_ten_seconds_and_overload_has_two_ends() {
        let said = said(QUEUE_FULL, [0].into_iter().chain([40; 25]).chain([0; 30]));
        let overload = |seconds| Duration::from_secs(seconds);
        assert_eq!(
            said,
            [
                (1, rejected("queue_full", 40, 1, 180.0)),
                (3, Remark::OverloadBegan { time: overload(2), rejected: 120 }),
                (11, rejected("queue_full", 400, 10, 180.0)),
                (21, rejected("queue_full", 400, 10, 180.0)),
                (31, rejected("queue_full", 160, 10, 180.0)),
                (35, Remark::OverloadEnded { time: overload(24), rejected: 1000 }),
            ]
        );
    }

    #[test]
    fn what_clients_do_wrong_is_no_overload_and_a_drain_is_told_elsewhere() {
        let said_of = |index| said(index, [5; 12]);
        assert!(said_of(BAD_INPUT).iter().all(|(_, it)| matches!(it, Remark::Rejected { .. })));
        assert_eq!(said_of(DRAINING), []);
    }

    #[test]
    fn late_answers_are_told_like_rejections() {
        let (mut watch, start) = (RejectionWatch::default(), Instant::now());
        let mut look = |second, late| {
            let totals = Totals { late, ..Totals::default() };
            watch.look(start + Duration::from_secs(second), &totals)
        };
        assert_eq!(look(0, 0), []);
        let second = Duration::from_secs(1);
        assert_eq!(look(1, 3), [Remark::Late { count: 3, time: second }]);
        assert_eq!([look(2, 4), look(9, 5)], [vec![], vec![]]);
        assert_eq!(look(11, 5), [Remark::Late { count: 2, time: second * 10 }]);
    }
}
