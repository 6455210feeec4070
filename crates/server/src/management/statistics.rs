//! What the batches of a model's versions came to since each was registered, in all and by size.

use std::collections::BTreeMap;

use jitney_engine::{BatchTotals, Engine, Model, SizeStatistics};
use jitney_telemetry::counted;
use serde::Serialize;

use super::batching::PaddingReport;
use crate::errors::Problem;
use crate::route::ModelRef;

/// One version in the answer to `GET /models/{m}/statistics`. All numbers only ever grow.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionStatistics {
    model_name: String,
    model_version: String,
    /// The policy in force.
    policy: &'static str,
    max_batch_size: u32,
    requests: RequestTotals,
    /// All sizes together.
    total: BatchReport,
    /// Every size that was dispatched, ascending.
    sizes: Vec<SizeReport>,
}

/// What became of the requests.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestTotals {
    received: u64,
    answered: u64,
    rejected: u64,
    failed: u64,
    cancelled: u64,
    /// Times that a request was run again.
    retried: u64,
    /// Of answered ones, from admission to answer.
    latency_seconds_sum: f64,
    /// Rejected ones by reason.
    rejections: BTreeMap<String, u64>,
    /// Copies that it got as a shadow, by how they ended; they are received ones as well.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shadow_copies: BTreeMap<String, u64>,
}

/// The batches of one size.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SizeReport {
    /// Items; the most where several sizes are counted together.
    size: u32,
    /// The fewest items where several sizes are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest_size: Option<u32>,
    #[serde(flatten)]
    batches: BatchReport,
}

/// What was counted about a number of batches.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchReport {
    batches: u64,
    items: u64,
    /// Items divided by those that the batches could have held.
    fill: f64,
    /// Batches by the reason for their dispatch.
    dispatches: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<PaddingReport>,
    answered_batches: u64,
    answered_items: u64,
    answered_requests: u64,
    failed_batches: u64,
    /// Of all answered requests together, and of one.
    queue_seconds_sum: f64,
    queue_seconds_mean: f64,
    /// Of all answered batches together, and of one.
    compute_seconds_sum: f64,
    compute_seconds_mean: f64,
}

/// The statistics of a version, or of all if none is named.
pub(crate) fn statistics(
    engine: &Engine,
    target: ModelRef<'_>,
) -> Result<Vec<VersionStatistics>, Problem> {
    let named = target.version.filter(|version| *version != "all");
    let models = match named {
        Some(version) => vec![engine.model(target.model, Some(version))?],
        None => engine.versions(target.model)?,
    };
    Ok(models.iter().map(|model| VersionStatistics::of(model)).collect())
}

impl VersionStatistics {
    fn of(model: &Model) -> Self {
        let (settings, statistics) = (model.settings(), model.statistics());
        Self {
            model_name: model.name().to_owned(),
            model_version: model.version().to_owned(),
            policy: settings.policy.as_str(),
            max_batch_size: settings.items_max(),
            requests: RequestTotals::of(model),
            total: BatchReport::new(&statistics.total()),
            sizes: statistics.sizes.iter().map(SizeReport::new).collect(),
        }
    }
}

impl RequestTotals {
    fn of(model: &Model) -> Self {
        let (counters, measures) = (model.status().counters, model.measures());
        Self {
            received: counters.requests,
            answered: counters.answered,
            rejected: counters.rejected,
            failed: counters.failed,
            cancelled: counters.abandoned,
            retried: counters.retried,
            latency_seconds_sum: measures.latency_us.sum as f64 / 1e6,
            rejections: counted(measures.rejections),
            shadow_copies: counted(model.shadow_counts()),
        }
    }
}

impl SizeReport {
    fn new(size: &SizeStatistics) -> Self {
        let SizeStatistics { smallest, largest, totals } = size;
        let smallest_size = (smallest < largest).then_some(*smallest);
        Self { size: *largest, smallest_size, batches: BatchReport::new(totals) }
    }
}

impl BatchReport {
    fn new(totals: &BatchTotals) -> Self {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let mean = |nanos: u64, count: u64| (nanos / count.max(1)) as f64 / 1e9;
        let fill = totals.items as f64 / totals.room.max(1) as f64;
        Self {
            batches: totals.batches,
            items: totals.items,
            fill: (fill * 1e4).round() / 1e4,
            dispatches: counted(totals.dispatches()),
            padding: PaddingReport::of(totals.padding),
            answered_batches: totals.answered_batches,
            answered_items: totals.answered_items,
            answered_requests: totals.answered_requests,
            failed_batches: totals.failed_batches,
            queue_seconds_sum: seconds(totals.queue_ns),
            queue_seconds_mean: mean(totals.queue_ns, totals.answered_requests),
            compute_seconds_sum: seconds(totals.compute_ns),
            compute_seconds_mean: mean(totals.compute_ns, totals.answered_batches),
        }
    }
}

#[cfg(test)]
mod tests {
    use jitney_engine::call::Padding;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_size_is_told_with_its_units_and_without_what_never_was() {
        let mut totals = BatchTotals {
            batches: 3,
            items: 15,
            room: 24,
            answered_batches: 2,
            answered_items: 10,
            answered_requests: 10,
            queue_ns: 40_000_000,
            compute_ns: 12_000_000,
            failed_batches: 1,
            ..BatchTotals::default()
        };
        totals.reasons[0] = 3;
        let told = json!(SizeReport::new(&SizeStatistics { smallest: 5, largest: 5, totals }));
        assert_eq!(
            told,
            json!({
                "size": 5, "batches": 3, "items": 15, "fill": 0.625, "dispatches": {"full": 3},
                "answeredBatches": 2, "answeredItems": 10, "answeredRequests": 10,
                "failedBatches": 1, "queueSecondsSum": 0.04, "queueSecondsMean": 0.004,
                "computeSecondsSum": 0.012, "computeSecondsMean": 0.006,
            })
        );
        totals.padding = Padding { real: 9, padded: 10 };
        let range = json!(SizeReport::new(&SizeStatistics { smallest: 129, largest: 256, totals }));
        assert_eq!((&range["size"], &range["smallestSize"]), (&json!(256), &json!(129)));
        assert_eq!(range["padding"], json!({"real": 9, "padded": 10, "waste": 0.1}));
    }

    #[test]
    fn a_version_without_a_batch_has_zeros() {
        let told = json!(BatchReport::new(&BatchTotals::default()));
        assert_eq!((&told["fill"], &told["queueSecondsMean"]), (&json!(0.0), &json!(0.0)));
    }
}
