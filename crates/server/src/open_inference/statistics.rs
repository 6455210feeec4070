//! What a model's requests and batches came to, in the shape of Triton's statistics.
//!
//! Triton counts the time of a batch once for each of its requests, and once by its size. Reading and
//! writing tensors is part of the worker's time here, so those durations are zero.

use std::time::SystemTime;

use jitney_engine::error::LookupError;
use jitney_engine::{BatchTotals, Engine, Model};
use jitney_proto::kserve as pb;
use jitney_proto::kserve::StatisticDuration;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::route::ModelRef;

/// The statistics of a version, of all versions of a model, or of all models.
///
/// # Errors
/// There is no such model or version.
pub(crate) fn of(
    engine: &Engine,
    target: Option<ModelRef<'_>>,
) -> Result<Vec<pb::ModelStatistics>, LookupError> {
    let mut models = Vec::new();
    match target {
        Some(ModelRef { model, version: Some(version) }) => {
            models.push(engine.model(model, Some(version))?);
        }
        Some(ModelRef { model, version: None }) => models = engine.versions(model)?,
        None => {
            for model in engine.models() {
                // A model that has gone meanwhile has no statistics.
                models.extend(engine.versions(model.name()).unwrap_or_default());
            }
        }
    }
    Ok(models.iter().map(|model| of_version(model)).collect())
}

fn of_version(model: &Model) -> pb::ModelStatistics {
    let (statistics, counters) = (model.statistics(), model.status().counters);
    let (total, measures) = (statistics.total(), model.measures());
    let requests = total.answered_requests;
    let shared: u64 = statistics.sizes.iter().map(|size| by_request(&size.totals)).sum();
    let latency_ns = measures.latency_us.sum.saturating_mul(1000);
    let sizes = statistics.sizes.iter().filter(|size| size.totals.answered_batches > 0);
    let batches = sizes.map(|size| {
        let count = size.totals.answered_batches;
        pb::InferBatchStatistics {
            batch_size: size.largest.into(),
            compute_input: time(count, 0),
            compute_infer: time(count, size.totals.compute_ns),
            compute_output: time(count, 0),
        }
    });
    pb::ModelStatistics {
        name: model.name().to_owned(),
        version: model.version().to_owned(),
        last_inference: statistics.last_answer.map_or(0, since_1970),
        inference_count: total.answered_items,
        execution_count: total.answered_batches,
        inference_stats: Some(pb::InferStatistics {
            success: time(counters.answered, latency_ns),
            fail: time(counters.failed + counters.rejected, 0),
            queue: time(requests, total.queue_ns),
            compute_input: time(requests, 0),
            compute_infer: time(requests, shared),
            compute_output: time(requests, 0),
            cache_hit: time(0, 0),
            cache_miss: time(0, 0),
        }),
        batch_stats: batches.collect(),
        ..pb::ModelStatistics::default()
    }
}

/// How often something was done, and the nanoseconds that it took altogether.
fn time(count: u64, ns: u64) -> Option<StatisticDuration> {
    Some(StatisticDuration { count, ns })
}

/// As Triton writes it over REST.
pub(crate) fn json(of: &pb::ModelStatistics) -> Value {
    let time = |it: Option<StatisticDuration>| {
        let StatisticDuration { count, ns } = it.unwrap_or_default();
        json!({ "count": count, "ns": ns })
    };
    let batch = |it: &pb::InferBatchStatistics| {
        json!({
            "batch_size": it.batch_size,
            "compute_input": time(it.compute_input),
            "compute_infer": time(it.compute_infer),
            "compute_output": time(it.compute_output),
        })
    };
    let requests = of.inference_stats.unwrap_or_default();
    json!({
        "name": of.name,
        "version": of.version,
        "last_inference": of.last_inference,
        "inference_count": of.inference_count,
        "execution_count": of.execution_count,
        "inference_stats": {
            "success": time(requests.success),
            "fail": time(requests.fail),
            "queue": time(requests.queue),
            "compute_input": time(requests.compute_input),
            "compute_infer": time(requests.compute_infer),
            "compute_output": time(requests.compute_output),
            "cache_hit": time(requests.cache_hit),
            "cache_miss": time(requests.cache_miss),
        },
        "batch_stats": of.batch_stats.iter().map(batch).collect::<Vec<_>>(),
        "response_stats": {},
        "memory_usage": [],
    })
}

fn since_1970(then: Instant) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(then.elapsed()).as_millis() as u64
}

/// The time of batches of one size, counted once for each of their requests.
fn by_request(totals: &BatchTotals) -> u64 {
    let product = u128::from(totals.compute_ns) * u128::from(totals.answered_requests);
    u64::try_from(product / u128::from(totals.answered_batches.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_batch_counts_for_each_of_its_requests() {
        let totals = BatchTotals {
            answered_batches: 2,
            answered_requests: 8,
            compute_ns: 10,
            ..BatchTotals::default()
        };
        assert_eq!(by_request(&totals), 40);
        assert_eq!(by_request(&BatchTotals::default()), 0);
    }
}
