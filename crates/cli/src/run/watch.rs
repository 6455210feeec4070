//! `--watch`: a definition whose files change is loaded again beside the old one. The new version
//! answers once its workers are ready, the old one finishes what it was given and goes; no request
//! is lost. Code that does not load changes nothing but the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jitney_engine::{Engine, Registered};

use super::loading;
use crate::definition::{Packed, Packer};
use crate::startup::Startup;

/// How often the files are looked at. Editors write in steps, so a change counts once it has stood
/// still from one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A definition that is being served and watched.
pub struct Watched {
    /// What was asked for at the start.
    pub startup: Startup,
    /// What was packed last.
    pub packed: Packed,
    /// The name it is served under.
    pub name: String,
    /// The version that answers.
    pub version: String,
}

/// Watches for as long as it is polled.
pub async fn watch(mut watched: Watched, engine: Arc<Engine>, packer: Arc<Packer>) {
    let first = watched.packed.version.clone();
    let mut seen = stamps(&watched.packed.sources);
    for reload in 2_u32.. {
        seen = changed(&watched.packed.sources, seen).await;
        let version = format!("{first}-{reload}");
        match reload_once(&watched, &version, &engine, &packer).await {
            Ok(packed) => {
                tracing::info!(model = watched.name, version, "code reloaded");
                watched = Watched { packed, version, ..watched };
                seen = stamps(&watched.packed.sources);
            }
            Err(why) => tracing::error!(
                model = watched.name,
                "the changed code is not served, {} goes on: {why}",
                watched.version
            ),
        }
    }
}

async fn reload_once(
    watched: &Watched,
    version: &str,
    engine: &Arc<Engine>,
    packer: &Packer,
) -> Result<Packed, String> {
    let object = watched.startup.definition.as_deref().unwrap_or_default();
    let packed = packer.pack(object, Some(version)).await.map_err(|error| error.to_string())?;
    let options = loading::options(&watched.startup, &packed);
    let registered = engine.register(options).await.map_err(|error| error.to_string())?;
    let Registered { model, workers_min, workers_max } = registered;
    let name = model.name().to_owned();
    let ready = async {
        model.scale(workers_min, workers_max).await.map_err(|error| error.to_string())?;
        engine.set_default(&name, version).map_err(|error| error.to_string())
    };
    if let Err(why) = ready.await {
        // It answered nobody; what it leaves behind is only its own.
        drop(engine.unregister(&name, Some(version)).await);
        return Err(why);
    }
    let (engine, old) = (Arc::clone(engine), watched.version.clone());
    tokio::spawn(async move {
        if let Err(error) = engine.unregister(&name, Some(&old)).await {
            tracing::warn!(model = name, version = old, %error, "the old code was not removed");
        }
    });
    Ok(packed)
}

/// Waits until the files differ from what was seen and have stopped changing.
async fn changed(sources: &[PathBuf], seen: Vec<Option<SystemTime>>) -> Vec<Option<SystemTime>> {
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = stamps(sources);
        if now == last && now != seen {
            return now;
        }
        last = now;
    }
}

fn stamps(sources: &[PathBuf]) -> Vec<Option<SystemTime>> {
    sources.iter().map(|file| file.metadata().and_then(|data| data.modified()).ok()).collect()
}
