//! What happened to a version between two samples.

use std::collections::VecDeque;

use crate::overview::sampler::{ModelSample, OverviewSample};

#[derive(Clone, Debug)]
pub(super) struct TrafficBetween {
    pub(super) seconds: f64,
    pub(super) answered: f64,
    pub(super) late: f64,
    pub(super) rejected: f64,
    pub(super) failed: f64,
    pub(super) restarts: u64,
    /// How long those that were answered had waited, all together.
    pub(super) queue_seconds: f64,
    pub(super) batches: f64,
    /// How long all of them ran.
    pub(super) compute_seconds: f64,
    /// Why most were rejected.
    pub(super) reason: Option<String>,
    asked: f64,
}

impl TrafficBetween {
    /// From the first to the last sample between two times.
    pub(super) fn read(
        samples: &VecDeque<OverviewSample>,
        key: &str,
        from: u64,
        to: u64,
    ) -> Option<Self> {
        let within = samples.iter().filter(|sample| (from..=to).contains(&sample.time));
        let mut known = within.filter_map(|sample| Some((sample.time, sample.models.get(key)?)));
        let (start, first) = known.next()?;
        let (end, last) = known.next_back()?;
        // Fewer than before: the version was registered anew.
        let grew = |read: fn(&ModelSample) -> u64| read(last).saturating_sub(read(first)) as f64;
        let (answered, rejected, failed) =
            (grew(|it| it.answered), grew(|it| it.rejected), grew(|it| it.failed));
        let by_reason = last.rejections.iter().map(|(reason, count)| {
            let before = first.rejections.get(reason).copied().unwrap_or(0);
            (count.saturating_sub(before), reason)
        });
        let most = by_reason.filter(|(count, _)| *count > 0).max();
        Some(Self {
            seconds: end.saturating_sub(start) as f64 / 1e3,
            answered,
            late: grew(|it| it.late),
            rejected,
            failed,
            restarts: last.restarts.saturating_sub(first.restarts),
            queue_seconds: (last.queue_seconds_sum - first.queue_seconds_sum).max(0.0),
            batches: grew(|it| it.batches),
            compute_seconds: (last.compute_seconds_sum - first.compute_seconds_sum).max(0.0),
            reason: most.map(|(_, reason)| reason.clone()),
            asked: grew(|it| it.requests).max(answered + rejected + failed),
        })
    }

    /// The share of those that were asked.
    pub(super) fn share(&self, count: f64) -> f64 {
        if self.asked > 0.0 { count / self.asked } else { 0.0 }
    }

    /// Requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.asked / self.seconds
    }
}
