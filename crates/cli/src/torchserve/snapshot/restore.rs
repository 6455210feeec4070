//! The way back: the models of a snapshot as models to load at start-up. An archive that is gone
//! stops the start, since serving half of what was served before is worse than saying so.

use std::path::Path;
use std::time::Duration;

use jitney_engine::settings::EndpointOptions;
use serde::Deserialize;

use super::KEY;
use super::document::{Endpoint, Models, Version, last_element};
use crate::failure::Failure;
use crate::serve::options::{Batching, PerModel, Policy};
use crate::startup::Startup;
use crate::units::{Millis, Seconds};

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    models: Models,
}

/// The models to load, each version by itself.
pub fn startups(text: &str, store: &Path) -> Result<Vec<Startup>, Failure> {
    let written: Written = serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("{KEY}: not a snapshot of models: {error}")))?;
    let mut startups = Vec::new();
    for (model, versions) in written.models {
        for (number, version) in versions {
            refuse_missing(&model, &version, store)?;
            startups.push(startup(&model, number, &version)?);
        }
    }
    Ok(startups)
}

fn refuse_missing(model: &str, version: &Version, store: &Path) -> Result<(), Failure> {
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

fn startup(model: &str, number: String, version: &Version) -> Result<Startup, Failure> {
    let policy = version.policy.as_deref().map(str::parse::<Policy>).transpose();
    let wrong = |why: String| Failure::failed(format!("{KEY}: {model}: {why}"));
    let policy = policy.map_err(wrong)?;
    let sha256 = version.sha256.as_deref().map(str::parse).transpose().map_err(wrong)?;
    let seconds = |value| positive(value).map(|value| Seconds(Duration::from_secs(value)));
    let millis = |value: u64| Millis(Duration::from_millis(value));
    let batching = Batching {
        max_batch_size: small(version.batch_size),
        max_batch_delay: u64::try_from(version.max_batch_delay).ok().map(millis),
        max_latency_ms: version.max_latency_ms.map(millis),
        policy,
        tenants: version.tenants.clone(),
        ..Batching::default()
    };
    let min = u32::try_from(version.min_workers).unwrap_or(0);
    let per_model = PerModel {
        workers: Some(min),
        batching,
        queue: version.job_queue_size.filter(|size| *size > 0),
        response_timeout: seconds(version.response_timeout),
        startup_timeout: seconds(version.startup_timeout),
    };
    let endpoints = version.endpoints.iter().map(|(name, one)| (name.clone(), options(one)));
    let runtime = Some(&version.runtime_type).filter(|runtime| runtime.starts_with("python"));
    Ok(Startup {
        version: Some(number),
        runtime: runtime.cloned(),
        per_model,
        workers: Some((min, small(version.max_workers).unwrap_or(min).max(min))),
        default: version.default_version,
        sha256,
        endpoints: endpoints.collect(),
        ..Startup::named(model, &version.mar_name)
    })
}

fn options(endpoint: &Endpoint) -> EndpointOptions {
    let Endpoint { max_batch_size: batch_size, max_latency_ms } = *endpoint;
    EndpointOptions { batch_size, max_latency_ms }
}

fn positive(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

fn small(number: i64) -> Option<u32> {
    positive(number).and_then(|number| u32::try_from(number).ok())
}
