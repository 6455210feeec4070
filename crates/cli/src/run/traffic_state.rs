//! Keeps the shares of `jitney serve` over a restart: what somebody set on the live server, how far a promotion is, and
//! which versions were sent back.
//!
//! They are in one small file beside the jobs, which is made for the first model whose shares are not those of its
//! configuration, and written when something about them changes. A server takes them up where the configuration still
//! says what it said then: who changes that wants to begin anew. `jitney torchserve` has snapshots for this.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::traffic_split::TrafficSplit;
use jitney_engine::{ChangeRecorder, Engine};

use super::traffic_file::{KeptTraffic, TrafficDocument, TrafficFile};

/// How often a file is tried that the server has which this one replaces.
const HOLD_AGAIN: Duration = Duration::from_secs(1);

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
    file: TrafficFile<'a>,
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
    pub fn start(mut file: TrafficFile<'a>, engine: &'a Arc<Engine>, more: bool) -> Self {
        let written = file.read().unwrap_or_else(|error| {
            let file = file.path().display();
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
            let awaited = self.file.is_awaited();
            tokio::select! {
                change = self.changes.next() => {
                    self.look();
                    self.changes.done(change);
                }
                () = tokio::time::sleep(HOLD_AGAIN), if awaited => self.look(),
            }
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
        if now == self.written && !self.file.is_awaited() {
            return;
        }
        match self.file.write(&now) {
            Ok(true) => self.written = now,
            Ok(false) => {}
            Err(error) => {
                let file = self.file.path().display();
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
