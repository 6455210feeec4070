//! The page in Prometheus' protobuf format, which has room for native histograms: their many fine buckets
//! are sent only where they are not empty.

use jitney_engine::FineCounts;
use jitney_proto::Message as _;
use jitney_proto::prometheus::{
    Bucket, BucketSpan, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use super::family::MetricKind;

/// Shorter times than this are no time at all: the end of the bucket before that of one microsecond.
const ZERO_SECONDS: f64 = 1.0 / (1 << 20) as f64;

/// The families while they are written.
#[derive(Default)]
pub(super) struct FamilyWriter {
    written: Vec<u8>,
    /// The metric at hand.
    open: Option<MetricFamily>,
}

impl FamilyWriter {
    /// Begins a metric.
    pub(super) fn begin(&mut self, name: &str, kind: MetricKind, help: &str) {
        self.end();
        let kind = match kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        let (name, help, r#type) = (name.to_owned(), help.to_owned(), kind.into());
        self.open = Some(MetricFamily { name, help, r#type, metric: Vec::new() });
    }

    /// One number of the metric at hand.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let Some(family) = &mut self.open else { return };
        let mut metric = Metric { label: pairs(labels), ..Metric::default() };
        if family.r#type == i32::from(MetricType::Counter) {
            metric.counter = Some(Counter { value });
        } else {
            metric.gauge = Some(Gauge { value });
        }
        family.metric.push(metric);
    }

    /// One histogram of the metric at hand: cumulative counts with their bounds, sum, and finer counts.
    pub(super) fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
        fine: Option<&FineCounts>,
    ) {
        let Some(family) = &mut self.open else { return };
        let bucket = |(upper_bound, cumulative_count)| Bucket { cumulative_count, upper_bound };
        let bucket: Vec<_> = buckets.map(bucket).collect();
        let sample_count = bucket.last().map_or(0, |last| last.cumulative_count);
        let mut histogram =
            Histogram { sample_count, sample_sum: sum, bucket, ..Histogram::default() };
        if let Some(fine) = fine {
            (histogram.schema, histogram.zero_count) = (fine.schema, fine.zero);
            histogram.zero_threshold = ZERO_SECONDS;
            (histogram.positive_span, histogram.positive_delta) = spans(&fine.buckets);
        }
        let (label, histogram) = (pairs(labels), Some(histogram));
        family.metric.push(Metric { label, histogram, ..Metric::default() });
    }

    /// The whole page.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.end();
        self.written
    }

    /// Writes the metric at hand. One without samples is left out: here nothing could be told of it.
    fn end(&mut self) {
        let family = self.open.take().filter(|family| !family.metric.is_empty());
        self.written.extend(family.iter().flat_map(MetricFamily::encode_length_delimited_to_vec));
    }
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| LabelPair {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    labels.iter().map(pair).collect()
}

/// Runs of neighbouring buckets, and the difference of each count to the one before it.
fn spans(buckets: &[(i32, u64)]) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<BucketSpan>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (bucket, count) in buckets {
        match spans.last_mut() {
            Some(span) if *bucket == next => span.length += 1,
            _ => spans.push(BucketSpan { offset: bucket - next, length: 1 }),
        }
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (bucket + 1, count);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_stand_one_after_another_each_behind_its_length() {
        let mut writer = FamilyWriter::default();
        writer.begin("a", MetricKind::Counter, "first");
        writer.sample(&[("l", "v")], 2.0);
        writer.begin("empty", MetricKind::Gauge, "never recorded");
        writer.begin("h", MetricKind::Histogram, "second");
        let fine = FineCounts { schema: 3, zero: 1, buckets: vec![(-5, 2), (-4, 1), (7, 4)] };
        writer.histogram(&[], [(0.5, 3), (f64::INFINITY, 8)].into_iter(), 9.5, Some(&fine));
        let bytes = writer.finish();
        let mut rest = &bytes[..];
        let mut next = || MetricFamily::decode_length_delimited(&mut rest).expect("a family");
        let (counter, histogram) = (next(), next());
        assert_eq!(
            (counter.name.as_str(), counter.metric[0].counter),
            ("a", Some(Counter { value: 2.0 }))
        );
        assert_eq!(counter.metric[0].label, pairs(&[("l", "v")]));
        let told = histogram.metric[0].histogram.clone().expect("a histogram");
        assert_eq!((told.sample_count, told.zero_count, told.schema), (8, 1, 3));
        let spans: Vec<_> = told.positive_span.iter().map(|it| (it.offset, it.length)).collect();
        assert_eq!((spans, told.positive_delta), (vec![(-5, 2), (10, 1)], vec![2, -1, 3]));
        assert!(rest.is_empty());
    }
}
