//! `--watch`: a definition whose files change is loaded again beside the old version. When the new
//! workers are ready, requests go to the new version and the old one drains, so no request is lost.
//! If the new code does not load, the old version stays and the error is logged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jitney_engine::{Engine, Registered};

use super::loading::{ServedDefinition, options_of};
use crate::definition::{Packed, Packer};

/// How often the files are checked. Editors write in steps, so files have changed only when they are
/// the same in two checks.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// `--poll`: looks into the served repositories again and again, without end.
pub async fn follow_repository(every: Duration, engine: Arc<Engine>) {
    loop {
        tokio::time::sleep(every).await;
        engine.repository().follow().await;
    }
}

/// Reloads the definition after every change of its files, without end.
pub async fn watch(mut definition: ServedDefinition, engine: Arc<Engine>, packer: Arc<Packer>) {
    let first = definition.packed.version.clone();
    let mut seen = modified(&definition.packed.sources);
    for count in 2_u32.. {
        seen = changed(&definition.packed.sources, seen).await;
        let version = format!("{first}-{count}");
        match reload(&definition, &version, &engine, &packer).await {
            Ok(packed) => {
                tracing::info!(model = definition.name, version, "code reloaded");
                definition = ServedDefinition { packed, version, ..definition };
                seen = modified(&definition.packed.sources);
            }
            Err(reason) => tracing::error!(
                model = definition.name,
                "the changed code was not loaded, version {} stays: {reason}",
                definition.version
            ),
        }
    }
}

async fn reload(
    definition: &ServedDefinition,
    version: &str,
    engine: &Arc<Engine>,
    packer: &Packer,
) -> Result<Packed, String> {
    let object = definition.startup.definition.as_deref().unwrap_or_default();
    let packed = packer.pack(object, Some(version)).await.map_err(|error| error.to_string())?;
    let options = options_of(&definition.startup, &packed);
    let registered = engine.register(options).await.map_err(|error| error.to_string())?;
    let Registered { model, workers_min, workers_max } = registered;
    let name = model.name().to_owned();
    let ready = async {
        model.scale(workers_min, workers_max).await.map_err(|error| error.to_string())?;
        engine.set_default(&name, version).map_err(|error| error.to_string())
    };
    if let Err(reason) = ready.await {
        // The new version has answered no request yet.
        drop(engine.unregister(&name, Some(version)).await);
        return Err(reason);
    }
    let (engine, old) = (Arc::clone(engine), definition.version.clone());
    tokio::spawn(async move {
        if let Err(error) = engine.unregister(&name, Some(&old)).await {
            tracing::warn!(model = name, version = old, %error, "the old version was not removed");
        }
    });
    Ok(packed)
}

/// Waits until the files have changed and are stable.
async fn changed(sources: &[PathBuf], seen: Vec<Option<SystemTime>>) -> Vec<Option<SystemTime>> {
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now = modified(sources);
        if now == last && now != seen {
            return now;
        }
        last = now;
    }
}

fn modified(sources: &[PathBuf]) -> Vec<Option<SystemTime>> {
    sources.iter().map(|file| file.metadata().and_then(|data| data.modified()).ok()).collect()
}
