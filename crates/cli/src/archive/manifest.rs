//! `MANIFEST.json`, with the fields that TorchServe's archivers write. Times are UTC.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::flags::archive::ArchiveFlags;
use crate::torchserve::VERSION;

/// The files that the manifest names, by their names inside the archive.
#[derive(Debug, Default)]
pub struct ManifestFiles {
    /// The Python file of the model's class.
    pub model: Option<String>,
    /// The weights.
    pub serialized: Option<String>,
    /// The requirements for pip.
    pub requirements: Option<String>,
    /// The model's settings.
    pub config: Option<String>,
}

/// The manifest of a model.
pub fn model(
    flags: &ArchiveFlags,
    handler: &str,
    files: &ManifestFiles,
    now: SystemTime,
) -> String {
    let fields = [
        ("modelName", Some(flags.model_name.as_str())),
        ("serializedFile", files.serialized.as_deref()),
        ("handler", Some(handler)),
        ("modelFile", files.model.as_deref()),
        ("modelVersion", Some(flags.version.as_str())),
        ("requirementsFile", files.requirements.as_deref()),
        ("configFile", files.config.as_deref()),
    ];
    let manifest = json!({
        "createdOn": created_on(now),
        "runtime": flags.runtime.as_str(),
        "model": present(&fields),
        "archiverVersion": VERSION,
    });
    format!("{manifest:#}")
}

/// The manifest of a workflow.
pub fn workflow(
    name: &str,
    spec: Option<String>,
    handler: Option<String>,
    now: SystemTime,
) -> String {
    let fields = [
        ("workflowName", Some(name)),
        ("specFile", spec.as_deref()),
        ("handler", handler.as_deref()),
    ];
    let manifest = json!({
        "createdOn": created_on(now),
        "workflow": present(&fields),
        "archiverVersion": VERSION,
    });
    format!("{manifest:#}")
}

fn present(fields: &[(&str, Option<&str>)]) -> Map<String, Value> {
    let present = |(key, value): &(&str, Option<&str>)| Some(((*key).to_owned(), (*value)?.into()));
    fields.iter().filter_map(present).collect()
}

/// `dd/MM/yyyy HH:mm:ss`.
fn created_on(now: SystemTime) -> String {
    let time = humantime::format_rfc3339_seconds(now).to_string();
    format!("{}/{}/{} {}", &time[8..10], &time[5..7], &time[..4], &time[11..19])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_workflow_manifest_has_the_fields_of_torchserve() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_601);
        let (spec, handler) = (Some("w.yaml".to_owned()), Some("h.py".to_owned()));
        let manifest: Value =
            serde_json::from_str(&workflow("w", spec, handler, now)).expect("JSON");
        let expected = json!({
            "createdOn": "01/01/2025 00:00:01",
            "workflow": {"workflowName": "w", "specFile": "w.yaml", "handler": "h.py"},
            "archiverVersion": "0.12.0",
        });
        assert_eq!(manifest, expected);
    }
}
