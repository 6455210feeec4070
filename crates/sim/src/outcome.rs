//! How a run ended, and the figures people ask about it.
//!
//! It only counts what the runner wrote down; nothing is estimated.

use jitney_batcher::Nanos;

use crate::job::{Job, SimulatedEnd};

/// Every request of a run with its end, in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The requests.
    pub jobs: Vec<Job>,
    /// How each of them ended.
    pub ends: Vec<SimulatedEnd>,
    /// Whether each was sent by a client that waits for its answers.
    pub asked: Vec<bool>,
    /// Batches run.
    pub batches: u64,
    /// Time spent by all workers together.
    pub busy: Nanos,
    /// When the last thing happened.
    pub until: Nanos,
}

impl Outcome {
    fn pairs(&self) -> impl Iterator<Item = (&Job, &SimulatedEnd)> {
        self.jobs.iter().zip(&self.ends)
    }

    /// Requests answered by their deadline.
    #[must_use]
    pub fn on_time(&self) -> usize {
        self.pairs().filter(|(job, end)| in_time(job, end)).count()
    }

    /// Share of all requests answered by their deadline; refusals count as misses.
    #[must_use]
    pub fn on_time_share(&self) -> f64 {
        self.on_time() as f64 / self.jobs.len().max(1) as f64
    }

    /// The same of the requests that are chosen.
    #[must_use]
    pub fn share_of(&self, chosen: impl Fn(&Job) -> bool) -> f64 {
        let of = self.pairs().filter(|(job, _)| chosen(job));
        let (count, good) = of.fold((0, 0), |(count, good), (job, end)| {
            (count + 1, good + usize::from(in_time(job, end)))
        });
        good as f64 / f64::from(count.max(1))
    }

    /// Requests rejected.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.ends.iter().filter(|end| matches!(end, SimulatedEnd::Rejected { .. })).count()
    }

    /// The end of the time in which answers are counted, which begins with the first arrival: the last arrival, or
    /// the last answer in time where that is later. Whatever is answered in it was also computed in it, so that no
    /// rate is above what the workers can do. Queues that are emptied later, too late, do not count.
    fn counted_until(&self) -> Nanos {
        let answered = |(job, end): (&Job, &SimulatedEnd)| match end {
            SimulatedEnd::Answered { at, .. } if in_time(job, end) => Some(*at),
            SimulatedEnd::Answered { .. } | SimulatedEnd::Rejected { .. } => None,
        };
        self.jobs
            .iter()
            .map(|job| job.at)
            .chain(self.pairs().filter_map(answered))
            .max()
            .unwrap_or(0)
    }

    fn per_second(&self, count: usize) -> f64 {
        let first = self.jobs.first().map_or(0, |job| job.at);
        count as f64 / (self.counted_until().saturating_sub(first).max(1) as f64 / 1e9)
    }

    /// Answers in time per second.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.per_second(self.on_time())
    }

    /// Answers per second, those that are late included.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let until = self.counted_until();
        let counted =
            |end: &&SimulatedEnd| matches!(end, SimulatedEnd::Answered { at, .. } if *at <= until);
        self.per_second(self.ends.iter().filter(counted).count())
    }

    /// Requests in an average batch.
    #[must_use]
    pub fn fill(&self) -> f64 {
        (self.ends.len() - self.rejected()) as f64 / self.batches.max(1) as f64
    }

    /// Latencies of the answered requests after the first `skip` of all.
    #[must_use]
    pub fn latencies(&self, skip: usize) -> Latencies {
        Latencies::of(self.pairs().skip(skip))
    }

    /// Latencies of the requests that came whatever happened to others.
    #[must_use]
    pub fn open_latencies(&self) -> Latencies {
        Latencies::of(self.pairs().zip(&self.asked).filter(|it| !it.1).map(|it| it.0))
    }
}

fn in_time(job: &Job, end: &SimulatedEnd) -> bool {
    matches!(end, SimulatedEnd::Answered { at, .. } if *at <= job.deadline)
}

/// Sorted latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(Vec<Nanos>);

impl Latencies {
    fn of<'a>(pairs: impl Iterator<Item = (&'a Job, &'a SimulatedEnd)>) -> Self {
        let answered = |(job, end): (&Job, &SimulatedEnd)| match end {
            SimulatedEnd::Answered { at, .. } => Some(at - job.at),
            SimulatedEnd::Rejected { .. } => None,
        };
        let mut all: Vec<Nanos> = pairs.filter_map(answered).collect();
        all.sort_unstable();
        Self(all)
    }

    /// The mean in milliseconds; 0 if there are none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|&each| each as f64).sum::<f64>() / self.0.len().max(1) as f64 / 1e6
    }

    /// The smallest latency in milliseconds that this share does not exceed; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).map_or(0.0, |&each| each as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use crate::curve::ServiceCurve;
    use crate::demand::Demand;
    use crate::policy::SimulatedPolicy;
    use crate::runner::run;
    use crate::world::World;

    #[test]
    fn no_rate_is_above_what_the_workers_can_do() {
        let world = World::new(ServiceCurve::affine(5.0, 0.2, 32), 1);
        for rate in [1000.0, 2500.0, 5000.0] {
            let load = Demand::poisson(100.0).load(rate, 4000, 42);
            for policy in ["adaptive", "opportunistic", "window:5"] {
                let policy = SimulatedPolicy::parse(policy).expect("a policy");
                let outcome = run(&world, &load, &mut policy.build(&world));
                let [good, all] = [outcome.goodput(), outcome.throughput()];
                let most = world.curve.capacity(1);
                assert!(0.0 < good && good <= all && all <= most, "{policy}: {good} {all} {most}");
            }
        }
    }
}
