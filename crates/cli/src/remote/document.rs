//! Documents of servers that may be older or newer than this program: what they leave out is empty, what
//! they add is ignored, and what is null counts as left out.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a document.
pub fn read<T: DeserializeOwned>(mut document: Value) -> Result<T, serde_json::Error> {
    drop_nulls(&mut document);
    serde_json::from_value(document)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use jitney_telemetry::overview::OverviewDocument;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_older_server_leaves_out_is_empty() {
        let document = json!({
            "server": {"state": "ready"},
            "models": [{"name": "m", "version": "1", "workers": [{"id": 9000, "state": "ready"}]}],
        });
        let overview: OverviewDocument = read(document).expect("reads");
        assert!(overview.server.is_ready());
        assert!(overview.sample.is_none() && overview.machine.is_none());
        let model = &overview.models[0];
        assert_eq!((model.key().as_str(), model.workers_ready()), ("m/1", 1));
        assert_eq!((model.totals.requests, model.live_settings.len()), (0, 0));
    }

    #[test]
    fn what_is_null_or_unknown_is_no_error() {
        let document = json!({
            "news": {"of": "tomorrow"},
            "server": {"state": "ready", "logLevel": null, "version": null, "news": [1]},
            "machine": {"cpuPercent": null, "memoryUsedBytes": 1, "memoryTotalBytes": 2},
            "sample": null,
            "models": [{"name": "m", "version": "1", "totals": null, "state": "asleep", "workers": [
                {"id": 9000, "state": "loading", "progress": {"done": 1, "of": 4, "what": "warming up"}},
            ]}],
        });
        let overview: OverviewDocument = read(document).expect("reads");
        let worker = &overview.models[0].workers[0];
        let progress = worker.progress.as_ref().map(ToString::to_string);
        assert_eq!(progress.as_deref(), Some("warming up 1/4"));
        assert!(read::<OverviewDocument>(json!("text")).is_err());
    }
}
