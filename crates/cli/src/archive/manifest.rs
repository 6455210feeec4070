//! `MANIFEST.json`, with the fields that TorchServe's archivers write. Times are UTC.

use std::time::SystemTime;

use serde_json::Value;

/// The manifest: `what` (`model` or `workflow`) is an object of the fields that have a value; `archiver`
/// is the version of TorchServe's archiver of such things.
pub fn text<const N: usize>(
    now: SystemTime,
    runtime: Option<&str>,
    what: &str,
    archiver: &str,
    fields: [(&str, Option<Value>); N],
) -> String {
    let manifest = present([
        ("createdOn", Some(created_on(now).into())),
        ("runtime", runtime.map(Value::from)),
        (what, Some(present(fields))),
        ("archiverVersion", Some(archiver.into())),
    ]);
    format!("{manifest:#}")
}

fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// `dd/MM/yyyy HH:mm:ss`.
fn created_on(now: SystemTime) -> String {
    let time = humantime::format_rfc3339_seconds(now).to_string();
    format!("{}/{}/{} {}", &time[8..10], &time[5..7], &time[..4], &time[11..19])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_workflow_manifest_has_the_fields_of_torchserve() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_601);
        let fields = [
            ("workflowName", Some("w".into())),
            ("specFile", Some("w.yaml".into())),
            ("handler", Some("h.py".into())),
            ("none", None),
        ];
        let manifest: Value =
            serde_json::from_str(&text(now, None, "workflow", "0.2.15", fields)).expect("JSON");
        let expected = json!({
            "createdOn": "01/01/2025 00:00:01",
            "workflow": {"workflowName": "w", "specFile": "w.yaml", "handler": "h.py"},
            "archiverVersion": "0.2.15",
        });
        assert_eq!(manifest, expected);
    }
}
