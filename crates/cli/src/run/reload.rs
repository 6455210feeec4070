//! `--watch`: a model whose files change is loaded again beside the old one: an archive, a folder, an ONNX file, or a
//! definition as another version. When the new
//! workers are ready, requests go to the new version and the old one drains, so no request is lost. The parts
//! of an application are loaded again with it, and the old ones go after it, since what it was at calls them.
//! If the new code does not load, the old version stays and the error is logged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jitney_engine::{Engine, ReplaceOrder};
use jitney_server::FollowedFiles;

use super::application::{prepared, register, remove_version};
use super::loading::ServedDefinition;
use crate::definition::{Packed, Packer};
use crate::plan::Startup;

/// How often the files are checked. Editors write in steps, so files have changed only when they are
/// the same in two checks.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Files of a folder that are checked; what is beyond is not seen to change. Chosen: more than models have.
const FILES_MAX: usize = 10_000;

/// `--poll`: looks into the served repositories again and again, without end.
pub async fn follow_repository(every: Duration, engine: Arc<Engine>, followed: FollowedFiles) {
    loop {
        tokio::time::sleep(every).await;
        let before = followed.look();
        engine.repository().follow().await;
        followed.note(before, None);
    }
}

/// Replaces the model of an archive, a folder or a file after every change of it, without end.
pub async fn watch_files(
    startup: Startup,
    path: PathBuf,
    engine: Arc<Engine>,
    followed: FollowedFiles,
) {
    let mut seen = modified(&files(&path));
    loop {
        seen = changed(|| files(&path), seen).await;
        let before = followed.look();
        match engine.replace(&startup.options(), ReplaceOrder::LoadFirst).await {
            Ok(model) => {
                tracing::info!(model = model.name(), version = model.version(), "model reloaded");
                followed.note(before, None);
            }
            Err(error) => {
                let shown = startup.shown();
                tracing::error!("the changed {shown} was not loaded, the old one stays: {error}");
            }
        }
    }
}

/// A file, or all files of a folder; those of hidden folders are not the model's.
fn files(path: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            found.push(folder);
            continue;
        };
        for entry in entries.flatten() {
            let hidden = entry.file_name().to_string_lossy().starts_with('.')
                || entry.file_name() == "__pycache__";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => folders.push(entry.path()),
                Ok(kind) if !kind.is_dir() => found.push(entry.path()),
                _ => {}
            }
            if found.len() + folders.len() >= FILES_MAX {
                return found;
            }
        }
    }
    found.sort_unstable();
    found
}

/// Reloads the definition after every change of its files, without end.
pub async fn watch(
    mut definition: ServedDefinition,
    engine: Arc<Engine>,
    packer: Arc<Packer>,
    followed: FollowedFiles,
) {
    let first = definition.packed.version.clone();
    let mut seen = modified(&definition.packed.sources);
    for count in 2_u32.. {
        seen = changed(|| definition.packed.sources.clone(), seen).await;
        let version = format!("{first}-{count}");
        match reload(&definition, &version, &engine, &packer, &followed).await {
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
    followed: &FollowedFiles,
) -> Result<Packed, String> {
    let before = followed.look();
    let packed = packer.pack(&definition.startup, Some(version)).await;
    let packed = packed.map_err(|error| error.to_string())?;
    let new = prepared(&definition.startup, packed).map_err(|error| error.to_string())?;
    let registered = register(engine, &definition.startup, new).await;
    let (new, packed) = registered.map_err(|error| error.to_string())?;
    let started = new.start().await.and_then(|()| new.set_default(engine));
    if let Err(reason) = started {
        // The new version has answered no request yet.
        new.remove(engine).await;
        return Err(reason);
    }
    let (engine, name) = (Arc::clone(engine), definition.name.clone());
    let (old, parts) = (definition.version.clone(), definition.packed.parts.clone());
    let followed = followed.clone();
    tokio::spawn(async move {
        remove_version(&engine, &name, &old).await;
        for part in parts.iter().rev() {
            remove_version(&engine, &part.name, &part.version).await;
        }
        followed.note(before, None);
    });
    packed.ok_or_else(|| "it is no definition".to_owned())
}

/// Waits until the files have changed and are stable.
async fn changed(
    sources: impl Fn() -> Vec<PathBuf>,
    seen: Vec<Option<SystemTime>>,
) -> Vec<Option<SystemTime>> {
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now = modified(&sources());
        if now == last && now != seen {
            return now;
        }
        last = now;
    }
}

fn modified(sources: &[PathBuf]) -> Vec<Option<SystemTime>> {
    sources.iter().map(|file| file.metadata().and_then(|data| data.modified()).ok()).collect()
}
