//! Requests of a version that are worth a look: the last that failed, and the slowest of the last minutes.

use bytes::Bytes;
use jitney_engine::call::{CallRoute, Operation};
use jitney_engine::{Engine, Model, NotedRequest};
use jitney_telemetry::duration_millis;
use serde::Serialize;

use crate::errors::Problem;
use crate::route::ModelRef;

/// The answer to `GET /models/{m}/requests`.
#[derive(Debug, Serialize)]
pub(crate) struct NotedReport {
    /// The last one first.
    failed: Vec<NotedEntry>,
    /// The slowest first.
    slow: Vec<NotedEntry>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotedEntry {
    id: String,
    time: String,
    /// A path on which this version answers such a request.
    path: String,
    headers: Vec<(String, String)>,
    latency_ms: f64,
    /// Whether its body was kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_body: bool,
    #[serde(flatten)]
    batch: Option<NotedBatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// How the batch of an answered request was.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotedBatch {
    queue_ms: f64,
    compute_ms: f64,
    batch_items: u32,
    reason: &'static str,
    attempt: u8,
}

/// The requests of a version, the default one if none is named.
pub(crate) fn requests(engine: &Engine, target: ModelRef<'_>) -> Result<NotedReport, Problem> {
    let model = engine.model(target.model, target.version)?;
    let [failed, slow] = model.noted_requests();
    let entry = |noted| NotedEntry::new(noted, &model);
    let entries = |noted: Vec<NotedRequest>| noted.into_iter().map(entry).collect();
    Ok(NotedReport { failed: entries(failed), slow: entries(slow) })
}

/// The body of a request that failed, if it was kept.
pub(crate) fn failed_body(
    engine: &Engine,
    target: ModelRef<'_>,
    id: &str,
) -> Result<Bytes, Problem> {
    let [failed, _] = engine.model(target.model, target.version)?.noted_requests();
    let body = failed.into_iter().find(|noted| noted.id == id).and_then(|noted| noted.body);
    body.map(|body| body.bytes.clone()).ok_or_else(Problem::not_found)
}

impl NotedEntry {
    fn new(noted: NotedRequest, model: &Model) -> Self {
        let NotedRequest { id, ended, latency, timing, error, route, headers, body } = noted;
        let batch = timing.map(|timing| NotedBatch {
            queue_ms: duration_millis(timing.queue),
            compute_ms: duration_millis(timing.compute),
            batch_items: timing.batch_items,
            reason: timing.reason.as_str(),
            attempt: timing.attempt,
        });
        let time = humantime::format_rfc3339_millis(ended).to_string();
        let (path, latency_ms) = (path(&route, model), duration_millis(latency));
        Self { id, time, path, headers, latency_ms, has_body: body.is_some(), batch, error }
    }
}

fn path(route: &CallRoute, model: &Model) -> String {
    let (name, version) = (model.name(), model.version());
    if route.open_inference {
        return format!("/v2/models/{name}/versions/{version}/infer");
    }
    let explains = route.operation == Operation::Explain;
    let kind = if explains { "explanations" } else { "predictions" };
    let endpoint = route.endpoint.iter().filter(|it| !it.is_empty()).map(|it| format!("/{it}"));
    format!("/{kind}/{name}/{version}{}", endpoint.collect::<String>())
}
