//! `/metrics`: Prometheus text in the dialect of TorchServe's library, which has a comma after the
//! last label and Java's way of writing numbers.
//!
//! Every number is read from a model's status or the doors' tally at the time of asking; nothing is
//! counted here.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use jitney_engine::{Model, Status};

use crate::door::{House, Visit};
use crate::query::Fields;
use crate::respond::{self, Reply};

/// The page, or only the metrics that `name[]` names.
pub(crate) fn page(visit: &Visit<'_>) -> Reply {
    let text = render(visit.house, &visit.query());
    let mut reply = respond::plain(StatusCode::OK, Bytes::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn render(house: &House, query: &Fields) -> String {
    let mut page = Page { text: String::with_capacity(4096), query, host: &house.config.hostname };
    page.host_counters(house);
    let models = every_version(house);
    for (name, unit, read) in TORCHSERVE {
        page.per_model(name, unit, "counter", &models, *read);
    }
    for (name, kind, read) in JITNEY {
        page.per_model(name, "Count", kind, &models, *read);
    }
    page.departures(&models);
    page.text
}

type Reading = fn(&Status) -> u64;

/// TorchServe's own.
const TORCHSERVE: &[(&str, &str, Reading)] = &[
    ("ts_inference_requests_total", "Count", |status| status.counters.requests),
    ("ts_inference_latency_microseconds", "Microseconds", |status| status.counters.latency_us),
    ("ts_queue_latency_microseconds", "Microseconds", |status| status.counters.queue_us),
];

/// Ours: how requests ended, and what there is now.
const JITNEY: &[(&str, &str, Reading)] = &[
    ("jitney_requests_answered_total", "counter", |status| status.counters.answered),
    ("jitney_requests_refused_total", "counter", |status| status.counters.refused),
    ("jitney_requests_failed_total", "counter", |status| status.counters.failed),
    ("jitney_requests_abandoned_total", "counter", |status| status.counters.abandoned),
    ("jitney_requests_retried_total", "counter", |status| status.counters.retried),
    ("jitney_batches_total", "counter", |status| status.counters.batches),
    ("jitney_items_total", "counter", |status| status.counters.items),
    ("jitney_waiting", "gauge", |status| status.waiting.into()),
    ("jitney_workers_ready", "gauge", ready),
];

fn ready(status: &Status) -> u64 {
    status.workers.iter().filter(|worker| worker.ready).count() as u64
}

/// A model version with what it looked like when the page was asked for.
struct Seen {
    model: Arc<Model>,
    /// As TorchServe labels it: requests that name no version count for `default`.
    version: String,
    status: Status,
}

fn every_version(house: &House) -> Vec<Seen> {
    let mut seen = Vec::new();
    for default in house.engine.models() {
        for model in house.engine.versions(default.name()).unwrap_or_default() {
            let is_default = model.version() == default.version();
            let version = if is_default { "default" } else { model.version() }.to_owned();
            seen.push(Seen { status: model.status(), model, version });
        }
    }
    seen
}

struct Page<'a> {
    text: String,
    query: &'a Fields,
    host: &'a str,
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, unit: &str) -> bool {
        let mut wanted = self.query.all("name[]").peekable();
        if wanted.peek().is_some() && !wanted.any(|wanted| wanted == name) {
            return false;
        }
        let _ = writeln!(
            self.text,
            "# HELP {name} Torchserve prometheus {kind} metric with unit: {unit}"
        );
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        true
    }

    fn host_counters(&mut self, house: &House) {
        let tally = &house.tally;
        let classes: [(&str, &AtomicU64); 3] = [
            ("Requests2XX", &tally.good),
            ("Requests4XX", &tally.client),
            ("Requests5XX", &tally.other),
        ];
        for (name, count) in classes {
            if self.head(name, "counter", "Count") {
                let (host, count) = (escaped(self.host), java_double(count.load(Relaxed)));
                let _ =
                    writeln!(self.text, "{name}{{Level=\"Host\",Hostname=\"{host}\",}} {count}");
            }
        }
    }

    fn per_model(&mut self, name: &str, unit: &str, kind: &str, models: &[Seen], read: Reading) {
        if self.head(name, kind, unit) {
            for seen in models {
                self.sample(name, seen, "", read(&seen.status));
            }
        }
    }

    fn departures(&mut self, models: &[Seen]) {
        let name = "jitney_departures_total";
        if self.head(name, "counter", "Count") {
            for seen in models {
                for (reason, count) in seen.status.counters.departures {
                    self.sample(name, seen, &format!("reason=\"{reason}\","), count);
                }
            }
        }
    }

    fn sample(&mut self, name: &str, seen: &Seen, more: &str, value: u64) {
        let (model, version) = (escaped(seen.model.name()), escaped(&seen.version));
        let (host, value) = (escaped(self.host), java_double(value));
        let labels = format!(
            "model_name=\"{model}\",model_version=\"{version}\",{more}hostname=\"{host}\","
        );
        let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Java's `Double.toString` of a whole number: `5.0`, `1.0E7`, `1.2345678E7`.
fn java_double(value: u64) -> String {
    if value < 10_000_000 {
        return format!("{value}.0");
    }
    let text = format!("{:E}", value as f64);
    if text.contains('.') { text } else { text.replace('E', ".0E") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_does() {
        for (value, expected) in [
            (0, "0.0"),
            (9_999_999, "9999999.0"),
            (10_000_000, "1.0E7"),
            (12_345_678, "1.2345678E7"),
            (1_000_000_000_000, "1.0E12"),
        ] {
            assert_eq!(java_double(value), expected);
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
