//! The result of a run, as it is printed and written as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::answer::Ending;
use crate::effort::Effort;
use crate::plan::{LoadMode, LoadPlan};
use crate::shard::ShardRecord;
use crate::tally::{Tally, millis};
use crate::timeline::TimeSlotReport;

const PERCENTS: [f64; 10] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];
/// Beyond these the figures are those of the generator.
const LAG_MAX: Duration = Duration::from_millis(1);
const CPU_MAX: f64 = 0.95;
const WAITED_MAX: f64 = 0.1;

/// The counts of several threads.
pub(crate) struct RunRecord {
    shards: ShardRecord,
    efforts: Vec<Effort>,
}

impl RunRecord {
    pub(crate) fn new(shard: ShardRecord, effort: Effort) -> Self {
        Self { shards: shard, efforts: vec![effort] }
    }

    pub(crate) fn add(&mut self, other: Self) {
        let (mine, other) =
            (&mut self.shards, (other.shards, self.efforts.extend(other.efforts)).0);
        mine.tallies.iter_mut().zip(&other.tallies).for_each(|(mine, other)| mine.add(other));
        mine.timeline.add(other.timeline);
        let _ = mine.lag.add(&other.lag);
        mine.opened += other.opened;
        mine.ended += other.ended;
    }
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// `http1`, `http2` or `grpc`.
    pub protocol: &'static str,
    /// `open` or `closed`.
    pub mode: &'static str,
    /// Time within which an answer is good, if one was given.
    pub objective_ms: Option<f64>,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// All that counts.
    pub total: PhaseReport,
    /// Every phase that counts.
    pub phases: Vec<PhaseReport>,
    /// The generator itself.
    pub generator: GeneratorReport,
    /// Latency over time, by the time at which requests were due.
    pub timeline: Vec<TimeSlotReport>,
}

/// What became of the requests of a phase.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// Requests per second that were wanted; none in a closed loop.
    pub rate: Option<f64>,
    /// How long it lasted.
    pub seconds: f64,
    /// Requests that were due; in a closed loop, that ended.
    pub offered: u64,
    /// Of them per second.
    pub offered_per_s: f64,
    /// Requests that were answered.
    pub answered: u64,
    /// Of them per second.
    pub answered_per_s: f64,
    /// Requests that were answered within the objective.
    pub good: u64,
    /// Of them per second.
    pub good_per_s: f64,
    /// Requests that the server did not take (503, 429, UNAVAILABLE, RESOURCE_EXHAUSTED).
    pub rejected: u64,
    /// Rejections and errors by the reason in their text.
    pub reasons: BTreeMap<Box<str>, u64>,
    /// Rejections with a reason and Retry-After.
    pub explained: u64,
    /// Median time of a rejection.
    pub rejection_p50_ms: f64,
    /// Requests that the server gave up because their time was over (408, 504, DEADLINE_EXCEEDED).
    pub expired: u64,
    /// Requests without an answer.
    pub lost: u64,
    /// Mean time of an answer.
    pub answer_mean_ms: f64,
    /// Median time of an answer.
    pub answer_p50_ms: f64,
    /// 99 of 100 answers took no longer.
    pub answer_p99_ms: f64,
    /// No answer took longer.
    pub answer_max_ms: f64,
    /// Times of answers.
    pub percentiles: Vec<PercentileReport>,
    /// Requests by the status of their answer.
    pub statuses: BTreeMap<String, u64>,
    /// Requests without an answer, by what happened.
    pub errors: BTreeMap<String, u64>,
    /// When the last request was due that was not good, in seconds from the start of the phase.
    pub last_bad_s: f64,
    /// Bytes of the answers' bodies.
    pub bytes_received: u64,
}

/// A percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PercentileReport {
    /// So many of a hundred.
    pub percent: f64,
    /// Took no longer.
    pub ms: f64,
}

/// The generator itself.
#[derive(Clone, Debug, Serialize)]
pub struct GeneratorReport {
    /// Threads that sent.
    pub threads: usize,
    /// Processor time per request.
    pub cpu_us_per_request: f64,
    /// The share of its time that the busiest thread was on a processor.
    pub busy: f64,
    /// The largest share of its time that a thread waited for a processor.
    pub waited: f64,
    /// How late requests were sent.
    pub lag_p50_ms: f64,
    /// 99 of 100 were sent no later.
    pub lag_p99_ms: f64,
    /// None was sent later.
    pub lag_max_ms: f64,
    /// Why the figures are those of the generator rather than the server's, if they are.
    pub limited_by: Option<String>,
}

impl LoadReport {
    /// `ran` is how long the load ran, if it was ended early.
    pub(crate) fn new(plan: &LoadPlan, run: &RunRecord, ran: Option<Duration>) -> Self {
        let record = &run.shards;
        let (mode, phases) = match &plan.mode {
            LoadMode::Closed { warm_up, length, requests, .. } => {
                let tally = &record.tallies[0];
                let ran = cut(*warm_up, *length, ran);
                let length = if requests.is_some() { tally.elapsed } else { ran };
                ("closed", vec![PhaseReport::new(tally, None, length)])
            }
            LoadMode::Open { phases, .. } => {
                let (mut reports, mut start) = (Vec::new(), Duration::ZERO);
                for phase in phases {
                    if let (true, Some(tally)) = (phase.counted, record.tallies.get(reports.len()))
                    {
                        let length = cut(start, phase.length, ran);
                        reports.push(PhaseReport::new(tally, Some(phase.rate), length));
                    }
                    start += phase.length;
                }
                ("open", reports)
            }
        };
        let mut all = Tally::new();
        record.tallies.iter().for_each(|tally| all.add(tally));
        let seconds: f64 = phases.iter().map(|phase| phase.seconds).sum();
        let rate = match phases.as_slice() {
            [one] => one.rate,
            _ => None,
        };
        Self {
            protocol: plan.target.protocol.name(),
            mode,
            objective_ms: plan.objective.map(|objective| objective.as_secs_f64() * 1e3),
            connections_opened: record.opened,
            total: PhaseReport::new(&all, rate, Duration::from_secs_f64(seconds)),
            phases,
            generator: GeneratorReport::new(run),
            timeline: record.timeline.report(),
        }
    }
}

/// What is left of a while that starts at `start`, if the load was ended early.
fn cut(start: Duration, length: Duration, ran: Option<Duration>) -> Duration {
    ran.map_or(length, |ran| ran.saturating_sub(start).min(length))
}

impl PhaseReport {
    fn new(tally: &Tally, rate: Option<f64>, length: Duration) -> Self {
        // Nothing comes of a while without a length.
        let seconds = length.as_secs_f64().max(1e-3);
        let answered = tally.ended(Ending::is_answer);
        let answers = &tally.answers;
        let by = |way: fn(Ending) -> bool| {
            let of = tally.endings.iter().filter(|(ending, _)| way(*ending));
            of.map(|(ending, count)| (ending.to_string(), *count)).collect()
        };
        let percentile =
            |&percent: &f64| PercentileReport { percent, ms: quantile(answers, percent / 100.0) };
        Self {
            rate,
            seconds,
            offered: tally.offered,
            offered_per_s: tally.offered as f64 / seconds,
            answered,
            answered_per_s: answered as f64 / seconds,
            good: tally.good,
            good_per_s: tally.good as f64 / seconds,
            rejected: tally.ended(Ending::is_rejection),
            reasons: tally.reasons.clone(),
            explained: tally.explained,
            rejection_p50_ms: quantile(&tally.rejections, 0.5),
            expired: tally.ended(Ending::is_expiry),
            lost: tally.ended(Ending::is_failure),
            answer_mean_ms: answers.mean() / 1e6,
            answer_p50_ms: quantile(answers, 0.5),
            answer_p99_ms: quantile(answers, 0.99),
            answer_max_ms: quantile(answers, 1.0),
            percentiles: PERCENTS.iter().map(percentile).collect(),
            statuses: by(|ending| !ending.is_failure()),
            errors: by(Ending::is_failure),
            last_bad_s: tally.last_bad.as_secs_f64(),
            bytes_received: tally.bytes,
        }
    }
}

fn quantile(histogram: &Histogram<u64>, share: f64) -> f64 {
    millis(histogram.value_at_quantile(share))
}

impl GeneratorReport {
    fn new(run: &RunRecord) -> Self {
        let (record, efforts) = (&run.shards, &run.efforts);
        let cpu: Duration = efforts.iter().map(|effort| effort.cpu).sum();
        let most = |part: fn(&Effort) -> Duration| {
            let share =
                |effort: &Effort| part(effort).as_secs_f64() / effort.wall.as_secs_f64().max(1e-9);
            efforts.iter().map(share).fold(0.0, f64::max)
        };
        let mut report = Self {
            threads: efforts.len(),
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / record.ended.max(1) as f64,
            busy: most(|effort| effort.cpu),
            waited: most(|effort| effort.waited),
            lag_p50_ms: quantile(&record.lag, 0.5),
            lag_p99_ms: quantile(&record.lag, 0.99),
            lag_max_ms: quantile(&record.lag, 1.0),
            limited_by: None,
        };
        report.limited_by = report.limit();
        report
    }

    fn limit(&self) -> Option<String> {
        if self.busy > CPU_MAX {
            return Some(format!(
                "a thread of it was busy for {:.0} % of the time",
                self.busy * 100.0
            ));
        }
        if self.waited > WAITED_MAX {
            let share = self.waited * 100.0;
            return Some(format!("it waited for a processor for {share:.0} % of the time"));
        }
        let late = self.lag_p99_ms > LAG_MAX.as_secs_f64() * 1e3;
        late.then(|| {
            format!("one request in a hundred was sent {:.1} ms late or more", self.lag_p99_ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_is_ended_early_is_as_long_as_it_ran() {
        let seconds = Duration::from_secs;
        assert_eq!(cut(seconds(1), seconds(10), None), seconds(10));
        assert_eq!(cut(seconds(1), seconds(10), Some(seconds(4))), seconds(3));
        assert_eq!(cut(seconds(5), seconds(10), Some(seconds(4))), seconds(0));
        assert_eq!(cut(seconds(1), seconds(2), Some(seconds(9))), seconds(2));
    }
}
