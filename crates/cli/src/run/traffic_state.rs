//! Keeps the shares of `jitney serve` over a restart: what somebody set on the live server, how far a promotion is, and
//! which versions were sent back.
//!
//! They are in one small file beside the jobs, which is made for the first model whose shares are not those of its
//! configuration, and written when something about them changes. A server takes them up where the configuration still
//! says what it said then: who changes that wants to begin anew. `jitney torchserve` has snapshots for this.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use jitney_engine::traffic_split::TrafficSplit;
use jitney_engine::{ChangeRecorder, Engine};
use serde::{Deserialize, Serialize};

use crate::durable_file;

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficDocument {
    models: BTreeMap<String, KeptTraffic>,
}

/// The shares of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptTraffic {
    /// What its versions brought from the configuration.
    configured: BTreeSet<String>,
    /// What is in force; without it the default version answers.
    traffic: Option<TrafficSplit>,
    /// The default version.
    default: String,
}

impl KeptTraffic {
    /// Whether every version and model is there that it names.
    fn is_complete(&self, engine: &Engine, name: &str) -> bool {
        let mut shares = self.traffic.iter().flat_map(|split| split.shares.keys());
        let found = |key: &String| {
            let (model, version) = key.split_once('/').unzip();
            engine.model(name, Some(key)).is_ok()
                || engine.model(model.unwrap_or(key), version).is_ok()
        };
        engine.model(name, Some(&self.default)).is_ok() && shares.all(found)
    }
}

/// Keeps the shares of a running server.
pub struct TrafficRecorder<'a> {
    file: &'a Path,
    engine: &'a Arc<Engine>,
    changes: ChangeRecorder,
    /// Those of the last run that are still to be taken up.
    pending: BTreeMap<String, KeptTraffic>,
    /// Those of models that this server does not have.
    others: BTreeMap<String, KeptTraffic>,
    /// The default versions of the start.
    firsts: BTreeMap<String, String>,
    /// Models whose versions shared requests at some time.
    shared: BTreeSet<String>,
    written: TrafficDocument,
}

impl<'a> TrafficRecorder<'a> {
    /// Takes the shares of the last run up. With `more` some of the models are still to come.
    pub fn start(file: &'a Path, engine: &'a Arc<Engine>, more: bool) -> Self {
        let written = read(file).unwrap_or_else(|error| {
            let file = file.display();
            tracing::warn!(%file, "the shares of the last run are not taken up: {error}");
            TrafficDocument::default()
        });
        let (changes, pending) = (engine.changes().recorder(), written.models.clone());
        let mut recorder = Self {
            file,
            engine,
            changes,
            pending,
            others: BTreeMap::new(),
            firsts: BTreeMap::new(),
            shared: BTreeSet::new(),
            written,
        };
        recorder.look();
        if !more {
            recorder.drop_pending();
            recorder.look();
        }
        recorder
    }

    /// Writes every change, until it is cancelled.
    pub async fn write_changes(&mut self) {
        loop {
            let change = self.changes.next().await;
            self.look();
            self.changes.done(change);
        }
    }

    /// Nothing more comes: what is not complete by now will not be.
    fn drop_pending(&mut self) {
        for (model, kept) in std::mem::take(&mut self.pending) {
            if self.engine.model(&model, None).is_ok() {
                tracing::warn!(
                    model,
                    "the shares of the last run are not taken up: a version is not there any more"
                );
            } else {
                self.others.insert(model, kept);
            }
        }
    }

    fn look(&mut self) {
        self.take_up();
        let now = self.now();
        if now == self.written {
            return;
        }
        match write(self.file, &now) {
            Ok(()) => self.written = now,
            Err(error) => {
                let file = self.file.display();
                tracing::warn!(%file, %error, "shares of versions could not be written, so a restart does not know them");
            }
        }
    }

    /// Applies what was kept of the models that are there by now.
    fn take_up(&mut self) {
        let engine = self.engine;
        let ready = |name: &String, kept: &mut KeptTraffic| kept.is_complete(engine, name);
        let ready: Vec<_> = self.pending.extract_if(.., ready).collect();
        for (model, kept) in ready {
            self.shared.insert(model.clone());
            self.note_first(&model);
            if configured(engine, &model) != kept.configured {
                tracing::info!(
                    model,
                    "the configuration says other shares than before, so they begin anew"
                );
                continue;
            }
            if !self.is_fresh(&model) {
                continue;
            }
            let said = kept.traffic.as_ref().map_or_else(
                || format!("version {} answers everything", kept.default),
                TrafficSplit::sentence,
            );
            let taken = engine.set_default(&model, &kept.default).map_err(Into::into);
            match taken.and_then(|()| engine.set_traffic(&model, kept.traffic)) {
                Ok(()) => tracing::info!(model, "shares as before the restart: {said}"),
                Err(error) => {
                    tracing::warn!(model, "the shares of the last run are not taken up: {error}")
                }
            }
        }
    }

    /// Whether the shares are those that the configuration gives to a fresh server.
    fn is_fresh(&self, name: &str) -> bool {
        let configured = configured(self.engine, name);
        let split = self.engine.traffic(name).unwrap_or_default();
        split.map_or(configured.is_empty(), |split| configured.contains(&split.text()))
    }

    fn note_first(&mut self, name: &str) {
        if let Ok(model) = self.engine.model(name, None) {
            self.firsts.entry(name.to_owned()).or_insert_with(|| model.version().to_owned());
        }
    }

    /// What is to be in the file.
    fn now(&mut self) -> TrafficDocument {
        let mut models = self.others.clone();
        for model in self.engine.models() {
            let (name, default) = (model.name(), model.version());
            self.note_first(name);
            let traffic = self.engine.traffic(name).unwrap_or_default();
            if traffic.is_some() {
                self.shared.insert(name.to_owned());
            }
            let moved = self.shared.contains(name)
                && self.firsts.get(name).is_some_and(|first| first != default);
            if self.is_fresh(name) && !moved {
                continue;
            }
            // Who set others meanwhile does not want those of the last run any more.
            self.pending.remove(name);
            let traffic = traffic.map(|split| TrafficSplit::clone(&split));
            let (configured, default) = (configured(self.engine, name), default.to_owned());
            models.insert(name.to_owned(), KeptTraffic { configured, traffic, default });
        }
        models.extend(self.pending.clone());
        TrafficDocument { models }
    }
}

/// What the versions of a model brought from the configuration.
fn configured(engine: &Engine, name: &str) -> BTreeSet<String> {
    let versions = engine.versions(name).unwrap_or_default();
    let brought =
        versions.iter().filter_map(|model| Some(model.settings().traffic.as_ref()?.text()));
    brought.collect()
}

fn read(file: &Path) -> io::Result<TrafficDocument> {
    match fs::read(file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TrafficDocument::default()),
        Err(error) => Err(error),
    }
}

/// Replaces the file; when this returns, it survives a crash of the machine.
fn write(file: &Path, document: &TrafficDocument) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    durable_file::replace(file, document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_missing_file_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("jobs").join("traffic.json");
        assert_eq!(read(&file).expect("reads"), TrafficDocument::default());
        let text = r#"{"shares":{"1.0":100.0,"2.0":0.0},"return":{"errors":"+1%"},"returned":{"2.0":"it failed"}}"#;
        let kept = KeptTraffic {
            configured: BTreeSet::from(["{}".to_owned()]),
            traffic: Some(text.parse().expect("shares")),
            default: "1.0".to_owned(),
        };
        let document = TrafficDocument { models: BTreeMap::from([("m".to_owned(), kept)]) };
        for _ in 0..2 {
            write(&file, &document).expect("writes");
            assert_eq!(read(&file).expect("reads"), document);
        }
        let names = fs::read_dir(file.parent().expect("a folder")).expect("lists");
        assert_eq!(names.count(), 1, "nothing is left beside it");
        fs::write(&file, "{").expect("writes");
        assert!(read(&file).is_err());
    }
}
