//! How loaded the server is, for gateways that ask with a request: the `endpoint-load-metrics` header of the
//! Open Request Cost Aggregation (ORCA), as Triton and vLLM answer it.
//!
//! It is made at most twice a second, however often it is asked for.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use jitney_engine::{CapacityReport, Engine, Model};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::system::SystemSample;

/// How a client asks for it.
const ASKED: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
/// How it is answered.
pub const LOAD_METRICS: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// How old a report may be.
const EVERY: Duration = Duration::from_millis(500);

/// How the report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFormat {
    /// `name=value, …`
    Text,
    /// One object.
    Json,
}

impl LoadFormat {
    /// The format that a client asks for, if it asks for one that there is.
    pub fn asked(headers: &HeaderMap) -> Option<Self> {
        let asked = headers.get(ASKED)?.as_bytes();
        let is = |name: &[u8]| asked.eq_ignore_ascii_case(name);
        if is(b"text") { Some(Self::Text) } else { is(b"json").then_some(Self::Json) }
    }
}

/// What tells in one number how loaded the server is.
const UTILIZATION: &str = "application_utilization";

/// What is told, by name; the names with a point are told inside of another object in JSON.
type LoadValues = Vec<(&'static str, f64)>;

/// The last report, and what the next one is compared with.
#[derive(Debug, Default)]
pub(super) struct LoadReporter(Mutex<LastReport>);

#[derive(Debug, Default)]
struct LastReport {
    made: Option<Instant>,
    models: HashMap<String, ModelTotals>,
    values: LoadValues,
}

/// What a model version had done.
#[derive(Clone, Copy, Debug, Default)]
struct ModelTotals {
    requests: u64,
    rejected: u64,
    busy: Duration,
}

/// What a model version does now.
#[derive(Clone, Copy, Debug, Default)]
struct ModelLoad {
    requests: u64,
    rejected: u64,
    /// What it asks for over what it may have.
    utilization: f64,
    waiting: u32,
    /// Share of its queue that is taken.
    queue: f64,
    workers: usize,
}

impl LoadReporter {
    /// The report in this format.
    pub(super) fn header(
        &self,
        engine: &Engine,
        machine: &SystemSample,
        format: LoadFormat,
    ) -> Option<HeaderValue> {
        let last = self.last(engine, machine);
        HeaderValue::try_from(written(&last.values, format)).ok()
    }

    /// How loaded the server is, in one number.
    pub(super) fn utilization(&self, engine: &Engine, machine: &SystemSample) -> f64 {
        let last = self.last(engine, machine);
        let found = last.values.iter().find(|(name, _)| *name == UTILIZATION);
        found.map_or(0.0, |(_, value)| *value)
    }

    /// The last report, made anew if it is too old.
    fn last(&self, engine: &Engine, machine: &SystemSample) -> MutexGuard<'_, LastReport> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if last.made.is_none_or(|made| now.duration_since(made) >= EVERY) {
            last.renew(engine, machine, now);
        }
        last
    }
}

impl LastReport {
    fn renew(&mut self, engine: &Engine, machine: &SystemSample, now: Instant) {
        let since = self.made.replace(now).map(|made| now.duration_since(made));
        let mut models = HashMap::new();
        let mut loads = Vec::new();
        for model in engine.models().iter().flat_map(|it| engine.versions(it.name())).flatten() {
            let name = format!("{}/{}", model.name(), model.version());
            let (totals, load) = load(&model, self.models.get(&name), since);
            models.insert(name, totals);
            loads.push(load);
        }
        self.models = models;
        self.values = values(&loads, machine);
    }
}

/// What a model version does, and what it had done by now.
fn load(
    model: &Model,
    before: Option<&ModelTotals>,
    since: Option<Duration>,
) -> (ModelTotals, ModelLoad) {
    let (status, batches) = (model.status(), model.statistics().total());
    let totals = ModelTotals {
        requests: status.counters.requests,
        rejected: status.counters.rejected,
        busy: Duration::from_nanos(batches.compute_ns),
    };
    let workers = status.workers.iter().filter(|worker| worker.ready).count();
    let before = before.copied().unwrap_or(totals);
    let worked = since.map_or(0.0, |since| since.as_secs_f64() * workers as f64);
    let busy = totals.busy.saturating_sub(before.busy).as_secs_f64();
    let busy = if worked > 0.0 { (busy / worked).min(1.0) } else { 0.0 };
    let queue = f64::from(status.waiting) / f64::from(status.queue_max.max(1));
    let load = ModelLoad {
        requests: totals.requests.saturating_sub(before.requests),
        rejected: totals.rejected.saturating_sub(before.rejected),
        utilization: status.capacity.and_then(needed_share).unwrap_or(busy + queue),
        waiting: status.waiting,
        queue,
        workers,
    };
    (totals, load)
}

/// Of a model whose number of workers follows the load: the workers that its requests need over the most that it may
/// have, for which there is memory, or that bring anything. None while nothing was learned.
fn needed_share(report: CapacityReport) -> Option<f64> {
    let CapacityReport { bounds: (_, most), wanted, fits } = report;
    let most = [fits, wanted.useful].into_iter().flatten().fold(most, u32::min).max(1);
    (wanted.target > 0).then(|| wanted.need / f64::from(most))
}

/// Application utilisation is that of the busiest model: the share of its workers that its requests need, where their
/// number follows the load. Else the share of the time in which its workers are busy, and on top of it the share of its
/// queue that is taken. Above 1 there is more to do than this server can.
fn values(loads: &[ModelLoad], machine: &SystemSample) -> LoadValues {
    let most = |read: fn(&ModelLoad) -> f64| loads.iter().map(read).fold(0.0, f64::max);
    let sum = |read: fn(&ModelLoad) -> u64| loads.iter().map(read).sum::<u64>();
    let (requests, rejected) = (sum(|it| it.requests), sum(|it| it.rejected));
    let memory = |(all, free): (u64, u64)| all.saturating_sub(free) as f64 / all.max(1) as f64;
    let mut values = Vec::new();
    values.extend(machine.cpu_percent.map(|percent| ("cpu_utilization", percent / 100.0)));
    values.extend(machine.memory.map(|it| ("mem_utilization", memory(it))));
    values.push((UTILIZATION, most(|it| it.utilization)));
    let waiting: u32 = loads.iter().map(|it| it.waiting).sum();
    values.push(("named_metrics.queue_depth", waiting.into()));
    values.push(("named_metrics.queue_utilization", most(|it| it.queue)));
    values.push(("named_metrics.rejected_share", rejected as f64 / requests.max(1) as f64));
    let workers: usize = loads.iter().map(|it| it.workers).sum();
    values.push(("named_metrics.workers_ready", workers as f64));
    values.iter_mut().for_each(|(_, value)| *value = (*value * 1e4).round() / 1e4);
    values
}

fn written(values: &LoadValues, format: LoadFormat) -> String {
    match format {
        LoadFormat::Text => {
            let mut text = "TEXT".to_owned();
            for (at, (name, value)) in values.iter().enumerate() {
                let _ = write!(text, "{} {name}={value}", if at == 0 { "" } else { "," });
            }
            text
        }
        LoadFormat::Json => {
            let (mut report, mut named) = (Map::new(), Map::new());
            for (name, value) in values {
                match name.strip_prefix("named_metrics.") {
                    Some(name) => named.insert(name.to_owned(), json!(value)),
                    None => report.insert((*name).to_owned(), json!(value)),
                };
            }
            report.insert("named_metrics".to_owned(), Value::Object(named));
            format!("JSON {}", Value::Object(report))
        }
    }
}

#[cfg(test)]
mod tests {
    use jitney_engine::WantedWorkers;

    use super::*;

    #[test]
    fn a_client_asks_in_any_case_and_for_what_there_is() {
        let asked = |value| {
            LoadFormat::asked(&HeaderMap::from_iter([(ASKED, HeaderValue::from_static(value))]))
        };
        let formats = ["TEXT", "text", "JSON", "json", "BIN"].map(asked);
        use LoadFormat::{Json, Text};
        assert_eq!(formats, [Some(Text), Some(Text), Some(Json), Some(Json), None]);
        assert_eq!(LoadFormat::asked(&HeaderMap::new()), None);
    }

    #[test]
    fn the_busiest_model_decides() {
        let idle = ModelLoad { workers: 1, requests: 10, ..ModelLoad::default() };
        let busy = ModelLoad { utilization: 1.25, waiting: 5, queue: 0.5, workers: 2, ..idle };
        let rejecting = ModelLoad { requests: 20, rejected: 10, ..idle };
        let machine = SystemSample {
            cpu_percent: Some(25.0),
            memory: Some((8 << 30, 2 << 30)),
            ..SystemSample::default()
        };
        let values = values(&[idle, busy, rejecting], &machine);
        let text = "TEXT cpu_utilization=0.25, mem_utilization=0.75, application_utilization=1.25, \
            named_metrics.queue_depth=5, named_metrics.queue_utilization=0.5, \
            named_metrics.rejected_share=0.25, named_metrics.workers_ready=4";
        assert_eq!(written(&values, LoadFormat::Text), text);
        let json = written(&values, LoadFormat::Json);
        let json: Value =
            serde_json::from_str(json.strip_prefix("JSON ").expect("JSON")).expect("JSON");
        assert_eq!(json["named_metrics"]["queue_depth"], 5.0);
        assert_eq!(json["application_utilization"], 1.25);
    }

    #[test]
    fn a_model_whose_workers_follow_the_load_is_full_when_it_needs_the_most() {
        let report = |need, target| CapacityReport {
            bounds: (1, 4),
            wanted: WantedWorkers { workers: 4, rate: 9.0, need, target, useful: None },
            fits: None,
        };
        let with_memory_for_two = CapacityReport { fits: Some(2), ..report(3.6, 1) };
        assert_eq!(needed_share(with_memory_for_two), Some(1.8));
        let mut two_are_useful = report(3.6, 1);
        two_are_useful.wanted.useful = Some(2);
        assert_eq!(needed_share(two_are_useful), Some(1.8));
        assert_eq!(needed_share(report(6.0, 1)), Some(1.5));
        assert_eq!(needed_share(report(0.0, 0)), None, "nothing was learned");
    }
}
