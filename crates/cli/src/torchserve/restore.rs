//! The way back: the models of a snapshot as models to load at start-up. An archive that is gone
//! stops the start, since serving half of what was served before is worse than saying so.

use std::path::Path;

use jitney_engine::settings::EndpointOptions;
use jitney_settings::model::WORKERS;
use jitney_settings::{SettingSource, Values, from_record};
use serde::Deserialize;

use crate::failure::Failure;
use crate::plan::Startup;
use crate::snapshot::{KEY, Models, SnapshotEndpoint, SnapshotVersion, last_element};

#[derive(Deserialize)]
struct SnapshotModels {
    #[serde(default)]
    models: Models,
}

/// The models to load, each version by itself.
pub fn startups(text: &str, store: &Path, source: &SettingSource) -> Result<Vec<Startup>, Failure> {
    let written: SnapshotModels = serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("{KEY}: not a snapshot of models: {error}")))?;
    let mut startups = Vec::new();
    for (model, versions) in written.models {
        for (number, version) in versions {
            reject_missing(&model, &version, store)?;
            startups.push(startup(&model, number, &version, source)?);
        }
    }
    Ok(startups)
}

fn reject_missing(model: &str, version: &SnapshotVersion, store: &Path) -> Result<(), Failure> {
    let file = &version.mar_name;
    let name = last_element(file);
    let in_store = !name.is_empty() && store.join(name).exists();
    if in_store || file.starts_with("file://") || Path::new(file).is_dir() {
        return Ok(());
    }
    let message = format!(
        "the snapshot cannot be restored: {file} of model {model} is not in the model store {}",
        store.display()
    );
    Err(Failure::failed(message).hint("put it back, or start with --no-config-snapshots"))
}

fn startup(
    model: &str,
    number: String,
    version: &SnapshotVersion,
    source: &SettingSource,
) -> Result<Startup, Failure> {
    let wrong = |why: String| Failure::failed(format!("{KEY}: {model}: {why}"));
    let sha256 = version.sha256.as_deref().map(str::parse).transpose().map_err(wrong)?;
    let none = Values::default().with(&WORKERS, 0_u32, source.clone());
    let options = |one: &SnapshotEndpoint| EndpointOptions {
        batch_size: one.max_batch_size,
        max_latency_ms: one.max_latency_ms,
    };
    let endpoints = version.endpoints.iter().map(|(name, one)| (name.clone(), options(one)));
    let runtime = Some(&version.runtime_type).filter(|runtime| runtime.starts_with("python"));
    Ok(Startup {
        version: Some(number),
        runtime: runtime.cloned(),
        settings: from_record(&version.settings, source, true).or(&none),
        restored: true,
        default: version.default_version,
        sha256,
        endpoints: endpoints.collect(),
        ..Startup::named(model, &version.mar_name)
    })
}

#[cfg(test)]
mod tests;
