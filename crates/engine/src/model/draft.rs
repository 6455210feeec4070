//! A model between its registration and its first request: everything is known, nothing is connected. What never
//! changes about it, its name and where it came from, stands here too, and which names are possible.
//!
//! Apart from the engine, which decides what is in it; here the handle for callers is made, and what the task behind
//! it is made of. Nothing starts: no worker, no task.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, LazyLock, OnceLock};

use arc_swap::ArcSwap;
use jitney_settings::model::KEEP;

use super::Model;
use super::budget::MemoryBudget;
use super::budget_model::BudgetTerms;
use super::gate::RequestGate;
use super::intake::Intake;
use super::model_ids::ModelIds;
use super::scheduler::ModelClock;
use super::seed::TaskSeed;
use super::sequence::KeptSequences;
use super::state::{ModelState, Traffic};
use super::statistics::EndpointMeters;
use super::warm_up::{Sample, WarmUp};
use crate::admission::Admission;
use crate::changes::Changes;
use crate::data_threads::ModelThreads;
use crate::error::RegisterError;
use crate::local::Signature;
use crate::observer::{ModelTag, Observer};
use crate::pool::Launcher;
use crate::settings::{ModelSettings, RegisterOptions};
use crate::store::{FetchedFile, ModelDir, Sha256, ShownUrl};

/// A model about to be built.
pub(crate) struct Draft {
    pub(crate) identity: ModelIdentity,
    pub(crate) settings: ModelSettings,
    pub(crate) intake: Intake,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) dir: Option<ModelDir>,
    pub(crate) fetched: Option<FetchedFile>,
    /// What an archive declares of its tensors.
    pub(crate) declared: Option<Signature>,
    /// The memory that its workers take part in, and the bytes of its files; none where they are no processes
    /// of this machine.
    pub(crate) budget: Option<(Arc<MemoryBudget>, u64)>,
}

impl Draft {
    /// The handle for callers. Its task runs on `threads` once there is anything to tell it.
    pub(crate) fn build(
        self,
        admission: &Arc<Admission>,
        draining: &Arc<AtomicBool>,
        worker_ids: &Arc<AtomicU32>,
        changes: &Changes,
        threads: ModelThreads,
    ) -> Arc<Model> {
        let names = self.intake.endpoints().map_or(&[][..], |it| &it.api.endpoints);
        let endpoints = EndpointMeters::new(names);
        let worker_target = [self.settings.workers_min.into(), self.settings.workers_max.into()];
        let published = Arc::new(ModelState { endpoints, worker_target, ..ModelState::default() });
        let clock = ModelClock::start();
        let kept = self.settings.sequences().map(|_| KeptSequences::default());
        published.sizes.store(Arc::new(self.settings.sizes.clone()));
        let (tag, warm_up) = (self.tag(), self.warm_up(admission));
        let settings = Arc::new(self.settings);
        let seed = TaskSeed {
            settings: Arc::clone(&settings),
            launcher: self.launcher,
            budget: self
                .budget
                .map(|(budget, files)| (budget, terms(&settings, files, tag.python))),
            observer: self.observer,
            tag: Arc::clone(&tag),
            published: Arc::clone(&published),
            clock,
            kept: kept.clone(),
            warm_up,
            worker_ids: Arc::clone(worker_ids),
            threads: threads.clone(),
        };
        let models = (settings.declared.multiplexed > 0).then(ModelIds::default);
        let model = Model {
            cache: OnceLock::new(),
            identity: self.identity,
            gate: RequestGate {
                settings: ArcSwap::from(Arc::clone(&settings)),
                intake: self.intake,
                admission: Arc::clone(admission),
                task: LazyLock::new(Box::new(|| seed.begin())),
                published,
                clock,
                threads,
                models,
            },
            draining: Arc::clone(draining),
            tag,
            traffic: Traffic::default(),
            unnamed: OnceLock::new(),
            kept,
            share: OnceLock::new(),
            shadow: OnceLock::new(),
            changes: changes.clone(),
            _dir: self.dir,
            fetched: self.fetched,
            declared: self.declared,
        };
        model.set_cache(&settings);
        Arc::new(model)
    }

    /// Its name in metrics.
    fn tag(&self) -> Arc<ModelTag> {
        let ModelIdentity { name, version, .. } = &self.identity;
        let python = !matches!(self.intake, Intake::Local(..));
        Arc::new(ModelTag { name: name.clone(), version: version.clone(), python })
    }

    /// How its workers are warmed up, where it has a sample.
    fn warm_up(&self, admission: &Arc<Admission>) -> Option<WarmUp> {
        let sample = Sample::of(&self.intake, self.dir.as_ref().map(ModelDir::path))?;
        let cost = self.settings.shares.of_sample(sample.bytes(), sample.length);
        Some(WarmUp::new(sample, cost, Arc::clone(admission)))
    }
}

/// How a model takes part in the memory of all.
fn terms(settings: &ModelSettings, files: u64, python: bool) -> BudgetTerms {
    BudgetTerms {
        on_demand: settings.on_demand(),
        keep: settings.values.flag(&KEEP),
        files,
        python,
        startup_timeout: settings.startup_timeout,
    }
}

/// What tells one model version from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIdentity {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// As it was asked for, without its secrets; empty for the functions of a workflow.
    pub url: ShownUrl,
    /// The checksum that its file must have, where one was given.
    pub sha256: Option<Sha256>,
    /// Whether the server itself loaded it.
    pub at_startup: bool,
    /// The workflow that it is a node of.
    pub workflow: Option<String>,
    /// The names of classes, by output, where its repository has some.
    pub labels: Arc<BTreeMap<String, Vec<String>>>,
}

impl ModelIdentity {
    /// The caller's name and version win over the model's own; without a name there is no model. Every name of
    /// a model is checked here.
    pub(crate) fn settled(
        (own, own_version): (Option<&str>, &str),
        options: &RegisterOptions,
    ) -> Result<Self, RegisterError> {
        let given = options.model_name.as_deref().filter(|name| !name.is_empty());
        let name = given.or(own).ok_or(RegisterError::NoName)?;
        let version = options.version.as_deref().unwrap_or(own_version);
        check_name(name).and_then(|()| check_name(version)).map_err(RegisterError::BadSettings)?;
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            url: ShownUrl::of(&options.url),
            sha256: options.sha256,
            at_startup: options.at_startup,
            workflow: options.workflow.clone(),
            labels: Arc::clone(&options.labels),
        })
    }

    /// Whether it is a function of a workflow, which no archive of its own stands behind.
    pub fn is_function(&self) -> bool {
        self.workflow.is_some() && self.url.is_empty()
    }
}

/// The longest name, in bytes, as for files.
const NAME_BYTES_MAX: usize = 255;

/// Whether a model, a version or a workflow may be called so: the name has to be able to stand in a
/// path. Gives the reason why not.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "paths give it another meaning",
        _ if name.len() > NAME_BYTES_MAX => {
            return Err(format!("A name of more than {NAME_BYTES_MAX} bytes is not possible."));
        }
        _ if name.contains('/') => "it has a slash",
        _ if name.contains(char::is_control) => "it has a control character",
        _ => return Ok(()),
    };
    Err(format!("{name:?} cannot be a name: {why}."))
}

#[cfg(test)]
mod identity_tests {
    use super::*;

    #[test]
    fn every_name_can_stand_in_a_path() {
        let none = RegisterOptions::default();
        let long = "n".repeat(256);
        for name in ["", ".", "..", "a/b", "x/../y", "a\nb", "a\u{1b}[31m", "a\0", &long] {
            for given in [None, Some(name)] {
                let model_name = given.map(str::to_owned);
                let options = RegisterOptions { model_name, ..RegisterOptions::default() };
                let own = if given.is_some() { "fine" } else { name };
                let outcome = ModelIdentity::settled((Some(own), "1.0"), &options);
                let falls_back = given == Some("");
                assert_eq!(outcome.is_ok(), falls_back, "{name:?} {given:?}");
            }
            assert!(ModelIdentity::settled((Some("m"), name), &none).is_err(), "version {name:?}");
        }
        assert!(ModelIdentity::settled((Some("modèle 2.0-b_c"), "1.0"), &none).is_ok());
    }
}
