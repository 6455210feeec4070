//! Reads the shared list at intervals, starts what [`reconcile`] asks for, and tells what became of it. It is
//! the only one that knows which models came from the list; all others are left alone.

use std::sync::Arc;
use std::time::SystemTime;

use jitney_telemetry::{ListedModel, ListedState, Registrations, RegistrationsReport};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::loader::{ListedRun, LoadOutcome, Loader, NotLoaded};
use super::reconcile::{Listing, ReconcileStep, new_leaders, next_attempt, reconcile};
use super::source::DocumentSource;
use crate::plan::{RegistrationsPlan, Startup};
use crate::serve::model::from_entry;
use crate::url_rule::UrlRule;

/// Follows a list.
pub struct ListFollower {
    plan: RegistrationsPlan,
    source: DocumentSource,
    loader: Loader,
    urls: Arc<UrlRule>,
    wanted: Vec<Startup>,
    held: Vec<HeldModel>,
    loads: JoinSet<LoadOutcome>,
    /// Models so far: each has a number that no other has.
    count: u64,
    /// Why the last look could not read the list.
    unreadable: Option<String>,
    /// What is wrong with the list that was read last.
    mistake: Option<String>,
    report: RegistrationsReport,
    /// Where the report is read.
    registrations: Arc<Registrations>,
}

/// A model of the list.
struct HeldModel {
    id: u64,
    listing: Listing,
    run: Option<ListedRun>,
    /// Ends what is being loaded; gone once it was used.
    cancel: Option<oneshot::Sender<()>>,
}

impl ListFollower {
    /// From now on the server is not ready until the list was loaded.
    pub fn new(
        plan: RegistrationsPlan,
        source: DocumentSource,
        loader: Loader,
        urls: Arc<UrlRule>,
        registrations: Arc<Registrations>,
    ) -> Self {
        let report = RegistrationsReport { source: source.shown(), ..Default::default() };
        loader.engine.expect_models(true);
        registrations.report(report.clone());
        Self {
            plan,
            source,
            loader,
            urls,
            wanted: Vec::new(),
            held: Vec::new(),
            loads: JoinSet::new(),
            count: 0,
            unreadable: None,
            mistake: None,
            report,
            registrations,
        }
    }

    /// Follows it without end; a server that drains changes nothing more.
    pub async fn run(mut self) {
        let mut ticks = interval(self.plan.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.loader.engine.draining() {
            let again = next_attempt(&self.listings());
            tokio::select! {
                _ = ticks.tick() => self.look().await,
                Some(Ok(loaded)) = self.loads.join_next() => {
                    self.ended(loaded);
                    // Of a long list many end at a time, and every look goes over all of it.
                    while let Some(Ok(loaded)) = self.loads.try_join_next() {
                        self.ended(loaded);
                    }
                }
                () = at(again) => {}
            }
            self.act();
            self.tell();
        }
    }

    /// Reads the list once. One that cannot be read changes nothing.
    async fn look(&mut self) {
        let document = match self.source.read().await {
            Ok(document) => document,
            Err(why) => {
                self.report.read_failures += 1;
                if self.unreadable.as_ref() != Some(&why) {
                    let source = &self.report.source;
                    tracing::error!(
                        source,
                        "the registrations cannot be read, nothing changes: {why}"
                    );
                }
                self.unreadable = Some(why);
                return;
            }
        };
        self.unreadable = None;
        self.report.read_at = Some(SystemTime::now());
        let Some(document) = document else { return };
        match document.models(&self.plan) {
            Err(failure) => {
                self.report.read_failures += 1;
                tracing::error!("the registrations have a mistake, nothing changes: {failure}");
                self.mistake = Some(failure.to_string());
            }
            Ok(models) => {
                let revision = document.revision();
                tracing::info!(revision, models = models.len(), "registrations read");
                (self.mistake, self.report.revision) = (None, Some(revision));
                let before = std::mem::replace(&mut self.wanted, models);
                for leader in new_leaders(&self.wanted, &before) {
                    self.make_default(leader);
                }
            }
        }
    }

    /// Lets the running model that was loaded for this entry answer by default.
    fn make_default(&self, entry: &Startup) {
        let loaded = |held: &&HeldModel| {
            held.listing.applied.as_ref().is_some_and(|applied| {
                applied.name == entry.name && applied.version == entry.version
            })
        };
        let run = self.held.iter().find(loaded).and_then(|held| held.run.as_ref());
        if let Some(model) =
            run.map(|run| &run.model).filter(|model| self.loader.engine.holds(model))
        {
            let before = self.loader.followed.look();
            // It is there.
            let _ = self.loader.engine.set_default(model.name(), model.version());
            self.loader.followed.note(before, Some(model.name()));
        }
    }

    /// Does what is to be done.
    fn act(&mut self) {
        let steps = reconcile(Instant::now(), &self.wanted, &self.listings());
        if !steps.is_empty() {
            let entries = self.wanted.iter().filter_map(|entry| from_entry(entry.clone()).ok());
            self.urls.list(entries.map(|entry| entry.url).collect::<Vec<_>>());
        }
        let mut gone = Vec::new();
        for step in steps {
            match step {
                ReconcileStep::Load { wanted, held } => self.load(wanted, held),
                ReconcileStep::Change { wanted, held, settings } => {
                    let (entry, held) = (self.wanted[wanted].clone(), &mut self.held[held]);
                    let Some(run) = held.run.clone() else { continue };
                    held.listing.loading = Some(entry.clone());
                    let cancelled = held.cancellation();
                    let loader = self.loader.clone();
                    self.loads.spawn(loader.change(held.id, entry, run, settings, cancelled));
                }
                ReconcileStep::Keep { held } => {
                    let held = &mut self.held[held];
                    held.cancel();
                    held.listing.failed = None;
                }
                // What is being loaded for it ends first.
                ReconcileStep::Remove { held } if self.held[held].listing.loading.is_some() => {
                    self.held[held].cancel();
                }
                ReconcileStep::Remove { held } => gone.push(held),
            }
        }
        for held in gone.into_iter().rev() {
            let HeldModel { run, listing, .. } = self.held.remove(held);
            let name = listing.applied.and_then(|entry| entry.name);
            tracing::info!(model = name, "not listed any more");
            let before = self.loader.followed.look();
            run.iter().for_each(|run| run.retire(&self.loader.engine));
            self.loader.followed.note(before, name.as_deref());
        }
    }

    fn load(&mut self, wanted: usize, held: Option<usize>) {
        let entry = self.wanted[wanted].clone();
        let at = held.unwrap_or_else(|| {
            self.count += 1;
            let (id, listing) = (self.count, Listing::default());
            self.held.push(HeldModel { id, listing, run: None, cancel: None });
            self.held.len() - 1
        });
        let held = &mut self.held[at];
        if held.listing.loading.is_some() {
            // Its end brings the next step.
            return held.cancel();
        }
        held.listing.loading = Some(entry.clone());
        let cancelled = held.cancellation();
        let loader = self.loader.clone();
        self.loads.spawn(loader.load(held.id, entry, held.run.clone(), cancelled));
    }

    /// Takes over what became of a model.
    fn ended(&mut self, LoadOutcome { id, wanted, outcome }: LoadOutcome) {
        let Some(held) = self.held.iter_mut().find(|held| held.id == id) else { return };
        held.listing.loading = None;
        let name = wanted.name.as_deref().unwrap_or_default();
        match outcome {
            Ok(run) => {
                let version = run.model.version();
                tracing::info!(model = name, version, "as the registrations say");
                held.listing.applied = Some(wanted.clone());
                held.listing.failed = None;
                let model = Arc::clone(&run.model);
                let other = held.run.replace(run);
                let is_new = other.is_none_or(|other| !Arc::ptr_eq(&other.model, &model));
                let first = self.wanted.iter().find(|entry| entry.name == wanted.name);
                if is_new && first.is_some_and(|first| first.version == wanted.version) {
                    self.make_default(&wanted);
                }
            }
            Err(NotLoaded::Cancelled) => {}
            Err(NotLoaded::Failed(reason, run)) => {
                let kept = match &held.listing.applied {
                    Some(_) => "; what was served stays",
                    None => "",
                };
                held.run = run.or_else(|| held.run.take());
                let pause = held.listing.fail(Instant::now(), wanted.clone(), reason.clone());
                let again_s = pause.as_secs();
                tracing::error!(model = name, again_s, "not loaded{kept}: {reason}");
            }
        }
    }

    /// Tells what became of the list.
    fn tell(&mut self) {
        let models: Vec<ListedModel> = self.held.iter().map(HeldModel::told).collect();
        let loaded = models.iter().all(|model| model.state == ListedState::Loaded);
        self.report.settled |= self.report.revision.is_some() && loaded;
        self.report.models = models;
        self.report.error = self.unreadable.clone().or_else(|| self.mistake.clone());
        self.loader.engine.expect_models(!self.report.settled);
        self.registrations.report(self.report.clone());
    }

    fn listings(&self) -> Vec<Listing> {
        self.held.iter().map(|held| held.listing.clone()).collect()
    }
}

impl HeldModel {
    fn cancellation(&mut self) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        self.cancel = Some(cancel);
        cancelled
    }

    fn cancel(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            // It may have ended meanwhile.
            let _ = cancel.send(());
        }
    }

    fn told(&self) -> ListedModel {
        let Listing { applied, loading, failed } = &self.listing;
        let (state, wanted) = match (loading, failed) {
            (_, Some(failed)) => (ListedState::Failed, Some(&failed.wanted)),
            (Some(loading), None) => (ListedState::Loading, Some(loading)),
            (None, None) => (ListedState::Loaded, applied.as_ref()),
        };
        let running = self.run.as_ref().map(|run| run.model.version().to_owned());
        ListedModel {
            name: wanted.and_then(|wanted| wanted.name.clone()).unwrap_or_default(),
            version: running.or_else(|| wanted.and_then(|wanted| wanted.version.clone())),
            state,
            reason: failed.as_ref().map(|failed| failed.reason.clone()),
        }
    }
}

/// That moment; never, if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
