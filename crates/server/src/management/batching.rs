//! What a model's batcher has learned and decided, with the reasons as text.
//!
//! `curve` is what `jitney simulate --curve FILE` and `jitney plan --curve FILE` read. The texts
//! are made here; the batcher has only numbers.

mod text;

use std::collections::BTreeMap;

use jitney_engine::call::Padding;
use jitney_engine::shares::{Cost, Shares};
use jitney_engine::{BatcherReport, CurvePoint, DecisionKind, Engine, PastDecision, WaitScore};
use jitney_telemetry::{duration_millis, millis, own_latency, policy_times};
use serde::Serialize;

use self::text::Unit;
use crate::errors::{ErrorCode, Problem};
use crate::route::ModelRef;

/// The answer to `GET /models/{m}/batching`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BatchingReport {
    model_name: String,
    model_version: String,
    policy: &'static str,
    /// How the policy in force decides.
    how: String,
    max_batch_size: u32,
    /// Batch sizes, in items, at which the model runs, where not any will do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<u32>,
    /// Item lengths at which it runs, where items are padded to these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lengths: Vec<u32>,
    /// Largest batches of a definition's endpoints.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    endpoints: BTreeMap<String, u32>,
    /// What its endpoints keep, where each has a latency of its own; null for none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    endpoint_latencies_ms: BTreeMap<String, Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_latency_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_batch_delay_ms: Option<f64>,
    max_waiting: u32,
    /// Weights of tenants; all others have 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tenants: BTreeMap<String, u32>,
    /// What an item weighs, where it is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cost: Option<u64>,
    /// Where items are padded: what all batches cost so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<PaddingReport>,
    waiting: u32,
    /// Of the bucket that is asked for most.
    curve: Vec<CurveSample>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_curves: Vec<GroupCurve>,
    /// What waiting for larger batches has brought, once it was tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_score: Option<WaitScoreReport>,
    /// Newest first.
    decisions: Vec<DecisionEntry>,
}

/// How long requests took with waiting and without.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitScoreReport {
    /// Whether nothing waits at present, since waiting has lost.
    stopped: bool,
    tests: u32,
    /// The mean time of requests with waiting over that without, as the last test found it.
    over_at_once: f64,
}

/// What padding has cost.
#[derive(Debug, Serialize)]
pub(super) struct PaddingReport {
    real: u64,
    padded: u64,
    /// The share of it that was padding.
    waste: f64,
}

/// One size of a curve.
#[derive(Debug, Serialize)]
struct CurveSample {
    size: u64,
    ms: f64,
    /// What deadlines are planned with: a safe quantile.
    planned_ms: f64,
    samples: u32,
}

/// The curve of another bucket.
#[derive(Debug, Serialize)]
struct GroupCurve {
    bucket: u16,
    curve: Vec<CurveSample>,
}

/// One decision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionEntry {
    ago_ms: f64,
    /// `dispatch`, `wait` or `reject`.
    decision: &'static str,
    /// The same in older words, for clients that read them: `depart`, `wait` or `refuse`.
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    size: u64,
    waiting: u32,
    skipped: u32,
    predicted_ms: f64,
    next_free_ms: f64,
    per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    slack_ms: Option<f64>,
    words: String,
}

/// The report of a version's batcher, the default one if none is named.
pub(crate) async fn batching(
    engine: &Engine,
    target: ModelRef<'_>,
) -> Result<BatchingReport, Problem> {
    let model = engine.model(target.model, target.version)?;
    let gone = || Problem::new(ErrorCode::Ending, "The model was removed.");
    let report = model.batcher_report().await.ok_or_else(gone)?;
    let settings = model.settings();
    let policy = settings.policy.as_str();
    let tuned = model.endpoints();
    let sizes = tuned.iter().filter_map(|(name, it)| Some((name.clone(), it.batch_size?)));
    let latencies =
        tuned.iter().filter_map(|(name, it)| Some((name.clone(), own_latency(it.objective)?)));
    let batching = BatchingReport::new(model.name(), model.version(), policy, &report);
    let padding = PaddingReport::of(model.statistics().total().padding);
    Ok(BatchingReport {
        endpoints: sizes.collect(),
        endpoint_latencies_ms: latencies.collect(),
        padding,
        ..batching.sharing(&settings.shares)
    })
}

impl BatchingReport {
    fn sharing(mut self, shares: &Shares) -> Self {
        self.tenants = shares.tenants.iter().cloned().collect();
        self.cost = (shares.cost != Cost::Items).then(|| shares.cost.as_str());
        self.max_cost = shares.cost_max;
        self
    }

    fn new(name: &str, version: &str, policy: &'static str, report: &BatcherReport) -> Self {
        let config = &report.config;
        let (objective, delay) = policy_times(&config.policy);
        // Sizes are in items unless the model has a cost.
        let unit = if config.measure == Default::default() { Unit::Items } else { Unit::Cost };
        Self {
            model_name: name.to_owned(),
            model_version: version.to_owned(),
            policy,
            how: text::policy(&config.policy, config.max_items),
            max_batch_size: config.max_items,
            sizes: config.sizes.clone(),
            lengths: config.lengths.clone(),
            endpoints: BTreeMap::new(),
            endpoint_latencies_ms: BTreeMap::new(),
            max_latency_ms: objective.map(millis),
            max_batch_delay_ms: delay.map(millis),
            max_waiting: config.max_queue,
            tenants: BTreeMap::new(),
            cost: None,
            max_cost: None,
            padding: None,
            waiting: report.waiting,
            curve: report.main_curve().map(CurveSample::new).collect(),
            other_curves: others(report),
            wait_score: WaitScoreReport::of(report.wait_score),
            decisions: report
                .decisions
                .iter()
                .rev()
                .map(|it| DecisionEntry::new(it, unit))
                .collect(),
        }
    }
}

fn others(report: &BatcherReport) -> Vec<GroupCurve> {
    let main = report.main_curve().next().map(|point| point.group);
    let mut others: Vec<GroupCurve> = Vec::new();
    for point in report.curve.iter().filter(|point| Some(point.group) != main) {
        match others.last_mut().filter(|other| other.bucket == point.group) {
            Some(other) => other.curve.push(CurveSample::new(point)),
            None => others
                .push(GroupCurve { bucket: point.group, curve: vec![CurveSample::new(point)] }),
        }
    }
    others
}

impl PaddingReport {
    /// None for a model that has padded nothing.
    pub(super) fn of(padding: Padding) -> Option<Self> {
        let Padding { real, padded } = padding;
        let waste = (padding.waste() * 1e4).round() / 1e4;
        (padded > 0).then_some(Self { real, padded, waste })
    }
}

impl WaitScoreReport {
    /// None before the first test.
    fn of(score: WaitScore) -> Option<Self> {
        let WaitScore { stopped, tests, ratio } = score;
        let over_at_once = (ratio? * 1e4).round() / 1e4;
        Some(Self { stopped, tests, over_at_once })
    }
}

impl CurveSample {
    fn new(point: &CurvePoint) -> Self {
        let CurvePoint { size, mean, planned, samples, .. } = *point;
        Self { size, ms: millis(mean), planned_ms: millis(planned), samples }
    }
}

impl DecisionEntry {
    fn new(decided: &PastDecision, unit: Unit) -> Self {
        let decision = &decided.decision;
        let (word, verdict, reason) = match decision.kind {
            DecisionKind::Dispatch(reason) => ("dispatch", "depart", Some(reason.as_str())),
            DecisionKind::Wait(_) => ("wait", "wait", None),
            DecisionKind::Reject(reason) => ("reject", "refuse", Some(reason.as_str())),
        };
        Self {
            ago_ms: duration_millis(decided.ago),
            decision: word,
            verdict,
            reason,
            size: decision.size,
            waiting: decision.waiting,
            skipped: decision.skipped,
            predicted_ms: millis(decision.predicted),
            next_free_ms: millis(decision.next_free),
            per_second: (decision.rate * 10.0).round() / 10.0,
            slack_ms: decision.slack.map(millis),
            words: text::decision(decided, unit),
        }
    }
}

#[cfg(test)]
mod tests;
