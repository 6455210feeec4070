//! What a model's requests and batches came to, in the shape of Triton's statistics.
//!
//! Triton counts the time of a batch once for each of its requests, and once by its size. Reading and
//! writing tensors is part of the worker's time here, so those durations are zero.

use std::time::SystemTime;

use jitney_engine::error::LookupError;
use jitney_engine::{BatchTotals, Engine, Model};
use serde::Serialize;
use tokio::time::Instant;

use crate::route::ModelRef;

/// How often something was done, and the nanoseconds that it took altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct StatisticDuration {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

/// What became of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct InferStatistics {
    pub(crate) success: StatisticDuration,
    pub(crate) fail: StatisticDuration,
    pub(crate) queue: StatisticDuration,
    pub(crate) compute_input: StatisticDuration,
    pub(crate) compute_infer: StatisticDuration,
    pub(crate) compute_output: StatisticDuration,
    pub(crate) cache_hit: StatisticDuration,
    pub(crate) cache_miss: StatisticDuration,
}

/// The batches of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct InferBatchStatistics {
    pub(crate) batch_size: u64,
    pub(crate) compute_input: StatisticDuration,
    pub(crate) compute_infer: StatisticDuration,
    pub(crate) compute_output: StatisticDuration,
}

/// The statistics of one version.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelStatistics {
    pub(crate) name: String,
    pub(crate) version: String,
    /// When the last batch was answered, in milliseconds since 1970; 0 before there was one.
    pub(crate) last_inference: u64,
    /// Items that were answered.
    pub(crate) inference_count: u64,
    /// Batches that were answered.
    pub(crate) execution_count: u64,
    pub(crate) inference_stats: InferStatistics,
    pub(crate) batch_stats: Vec<InferBatchStatistics>,
    pub(crate) response_stats: serde_json::Map<String, serde_json::Value>,
    pub(crate) memory_usage: [u64; 0],
}

/// The statistics of a version, of all versions of a model, or of all models.
///
/// # Errors
/// There is no such model or version.
pub(crate) fn of(
    engine: &Engine,
    target: Option<ModelRef<'_>>,
) -> Result<Vec<ModelStatistics>, LookupError> {
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
    Ok(models.iter().map(|model| ModelStatistics::of(model)).collect())
}

impl ModelStatistics {
    fn of(model: &Model) -> Self {
        let (statistics, counters) = (model.statistics(), model.status().counters);
        let (total, measures) = (statistics.total(), model.measures());
        let requests = total.answered_requests;
        let shared: u64 = statistics.sizes.iter().map(|size| by_request(&size.totals)).sum();
        let untimed = StatisticDuration { count: requests, ns: 0 };
        let latency_ns = measures.latency_us.sum.saturating_mul(1000);
        let sizes = statistics.sizes.iter().filter(|size| size.totals.answered_batches > 0);
        Self {
            name: model.name().to_owned(),
            version: model.version().to_owned(),
            last_inference: statistics.last_answer.map_or(0, since_1970),
            inference_count: total.answered_items,
            execution_count: total.answered_batches,
            inference_stats: InferStatistics {
                success: StatisticDuration { count: counters.answered, ns: latency_ns },
                fail: StatisticDuration { count: counters.failed + counters.rejected, ns: 0 },
                queue: StatisticDuration { count: requests, ns: total.queue_ns },
                compute_input: untimed,
                compute_infer: StatisticDuration { count: requests, ns: shared },
                compute_output: untimed,
                ..InferStatistics::default()
            },
            batch_stats: sizes
                .map(|size| InferBatchStatistics {
                    batch_size: size.largest.into(),
                    compute_input: untimed_batches(&size.totals),
                    compute_infer: StatisticDuration {
                        count: size.totals.answered_batches,
                        ns: size.totals.compute_ns,
                    },
                    compute_output: untimed_batches(&size.totals),
                })
                .collect(),
            response_stats: serde_json::Map::new(),
            memory_usage: [],
        }
    }
}

fn since_1970(then: Instant) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(then.elapsed()).as_millis() as u64
}

fn untimed_batches(totals: &BatchTotals) -> StatisticDuration {
    StatisticDuration { count: totals.answered_batches, ns: 0 }
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
