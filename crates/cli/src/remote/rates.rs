//! What happened between two samples of a running server, per second.

use jitney_telemetry::overview::{ModelSample, OverviewSample};

/// Traffic of a version over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RemoteRates {
    /// The interval.
    pub seconds: f64,
    /// Requests per second.
    pub requests: f64,
    /// Answered in time, per second.
    pub goodput: f64,
    /// Rejected per second.
    pub rejected: f64,
    /// Failed per second.
    pub failed: f64,
    /// Items in a batch on average; none without batches.
    pub batch_size: Option<f64>,
    /// The latest of the interval.
    pub p50_ms: Option<f64>,
    /// The largest of the interval.
    pub p99_ms: Option<f64>,
}

impl RemoteRates {
    /// From the first to the last of these samples, oldest first.
    pub fn of<'a>(
        key: &str,
        samples: impl DoubleEndedIterator<Item = &'a OverviewSample> + Clone,
    ) -> Self {
        let mut known =
            samples.filter_map(|sample| sample.models.get(key).map(|model| (sample.time, model)));
        let all = known.clone();
        let Some((last_time, last)) = known.next_back() else { return Self::default() };
        let p99_ms = all.clone().skip(1).filter_map(|(_, model)| model.p99_ms).fold(None, max);
        let p50_ms = all.clone().skip(1).filter_map(|(_, model)| model.p50_ms).last();
        let Some((first_time, first)) = known.next() else {
            return Self { p50_ms: last.p50_ms, p99_ms: last.p99_ms, ..Self::default() };
        };
        let seconds = (last_time.saturating_sub(first_time) as f64 / 1e3).max(0.001);
        let since = |count: fn(&ModelSample) -> u64| {
            // Fewer than before: the model was registered anew.
            count(last).saturating_sub(count(first)) as f64
        };
        let batches = since(|model| model.batches);
        Self {
            seconds,
            requests: since(|model| model.requests) / seconds,
            goodput: (since(|model| model.answered) - since(|model| model.late)).max(0.0) / seconds,
            rejected: since(|model| model.rejected) / seconds,
            failed: since(|model| model.failed) / seconds,
            batch_size: (batches > 0.0).then(|| since(|model| model.items) / batches),
            p50_ms,
            p99_ms,
        }
    }
}

fn max(largest: Option<f64>, value: f64) -> Option<f64> {
    Some(largest.map_or(value, |largest| largest.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: u64, answered: u64, p99_ms: Option<f64>) -> OverviewSample {
        let model = Box::new(ModelSample {
            requests: answered + 2,
            answered,
            late: answered / 10,
            batches: answered / 4,
            items: answered,
            p99_ms,
            ..ModelSample::default()
        });
        OverviewSample { time, models: [("m/1".to_owned(), model)].into() }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let samples =
            [sample(1000, 0, Some(99.0)), sample(3000, 20, Some(9.0)), sample(5000, 40, Some(7.0))];
        let rates = RemoteRates::of("m/1", samples.iter());
        assert_eq!((rates.requests, rates.goodput, rates.batch_size), (10.0, 9.0, Some(4.0)));
        assert_eq!(rates.p99_ms, Some(9.0), "the first sample is of the time before");
        let one = RemoteRates::of("m/1", samples[..1].iter());
        assert_eq!((one.requests, one.p99_ms), (0.0, Some(99.0)));
        assert_eq!(RemoteRates::of("other/1", samples.iter()), RemoteRates::default());
        let anew = [sample(1000, 50, None), sample(2000, 3, None)];
        assert_eq!(RemoteRates::of("m/1", anew.iter()).requests, 0.0);
    }
}
