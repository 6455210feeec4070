//! The endpoints of a definition in Python and what can be changed about each, live: how large its
//! batches may be, and the latency to keep ([`Objectives`]).
//!
//! All endpoints of a model share its queue, whose batches are as large as the largest of them takes;
//! each worker cuts them to what its endpoint takes. Sizes that differ from the definition's own are
//! sent with the requests, so that a change shows at once and costs nothing where there was none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS};

use super::objectives::{Objective, Objectives, strictest};
use super::reconfigure::Reconfigure;
use crate::call::CallRoute;
use crate::settings::{EndpointOptions, ModelSettings};
use crate::store::Api;

/// Endpoints that answer where a request names none; see `Definition.default` in Python.
const DEFAULTS: [&str; 2] = ["call", "predict"];

/// A definition's endpoints.
pub(crate) struct Endpoints {
    api: Api,
    /// By endpoint; 0 where the definition's own size holds.
    told: Vec<AtomicU32>,
    objectives: Objectives,
}

/// How one endpoint is served at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// The largest batch; none if it takes one item at a time.
    pub batch_size: Option<u32>,
    /// Whether the definition says so itself.
    pub as_defined: bool,
    /// The latency to keep.
    pub objective: Objective,
}

/// What a change comes to, for the endpoints and for their model.
#[derive(Default)]
pub(crate) struct EndpointChange {
    /// The endpoints whose size changes, by place, and the new one.
    sizes: Option<(Vec<usize>, u32)>,
    /// The objectives of all endpoints, if they change one by one.
    objectives: Option<Vec<Objective>>,
    /// Whether all endpoints keep the model's objective from now on.
    together: bool,
    /// The size of the model's batches then.
    pub(crate) batch_size: Option<u32>,
    /// The model's objective then, where its endpoints have their own.
    pub(crate) latency_max: Option<Option<Duration>>,
}

impl Endpoints {
    /// `settings` are the model's; where an operator asked for another size or latency than the
    /// definition does, all of its endpoints take it, except those that `options` names.
    pub(crate) fn new(
        api: Api,
        settings: &ModelSettings,
        options: &BTreeMap<String, EndpointOptions>,
    ) -> Self {
        let told = api.endpoints.iter().map(|_| AtomicU32::new(0)).collect();
        let objectives = Objectives::new(&api, settings.latency_max);
        let endpoints = Self { api, told, objectives };
        let declared = endpoints.api.batch_sizes.values().max();
        if declared.is_some_and(|declared| *declared != settings.batch_size) {
            endpoints.apply(&endpoints.all(settings.batch_size));
        }
        options.iter().for_each(|(name, one)| endpoints.grant(name, one, settings));
        endpoints
    }

    /// What was asked of one endpoint before the model was there; one that is gone asks for nothing.
    fn grant(&self, name: &str, options: &EndpointOptions, settings: &ModelSettings) {
        let batch_size = options.batch_size.filter(|size| *size <= settings.batch_size);
        let size = batch_size.map(|size| Reconfigure::of(&MAX_BATCH_SIZE, size));
        let latency = options.max_latency_ms.map(Duration::from_millis);
        let latency = latency.map(|latency| Reconfigure::of(&MAX_LATENCY_MS, latency));
        for change in size.into_iter().chain(latency) {
            let change = Reconfigure { endpoint: Some(name.to_owned()), ..change };
            if let Ok(tuning) = self.tune(&change, settings) {
                self.apply(&tuning);
            }
        }
    }

    /// What the definition says about itself.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// How every endpoint is served at the moment.
    pub(crate) fn views(&self) -> BTreeMap<String, EndpointView> {
        let places = self.api.endpoints.iter().enumerate();
        let views = places.map(|(place, name)| {
            let batched = self.api.batch_sizes.contains_key(name);
            let view = EndpointView {
                batch_size: batched.then(|| self.size(place)),
                as_defined: self.told[place].load(Ordering::Relaxed) == 0,
                objective: self.objectives.get(Some(place)),
            };
            (name.clone(), view)
        });
        views.collect()
    }

    /// The index of the endpoint that a request asks for.
    pub(crate) fn index(&self, route: &CallRoute) -> Option<usize> {
        if self.told.len() == 1 {
            return Some(0);
        }
        let asked = route.endpoint.as_deref()?;
        self.api.endpoints.iter().position(|endpoint| endpoint == asked)
    }

    /// Adds to the route what the worker does not know from the definition; returns the latency that
    /// the request is to keep.
    pub(crate) fn complete(&self, place: Option<usize>, route: &mut CallRoute) -> Objective {
        let place = place.or_else(|| self.default_index());
        route.batch_size = place.map_or(0, |place| self.told[place].load(Ordering::Relaxed));
        self.objectives.get(place)
    }

    /// What a change means, of one endpoint or of all; nothing yet changes.
    pub(crate) fn tune(
        &self,
        change: &Reconfigure,
        now: &ModelSettings,
    ) -> Result<EndpointChange, String> {
        let Some(name) = &change.endpoint else {
            let sizes = change.batch_size().map(|size| self.all(size)).unwrap_or_default();
            return Ok(EndpointChange { together: change.latency().is_some(), ..sizes });
        };
        reject_shared(change)?;
        let sizes = change.batch_size().map(|size| self.resize(name, size)).transpose()?;
        let sizes = sizes.unwrap_or_default();
        let Some(latency) = change.latency() else { return Ok(sizes) };
        let latency = Some(latency).filter(|latency| !latency.is_zero());
        let known = || self.api.endpoints.iter().enumerate().map(|(at, name)| (at, name.as_str()));
        let place = find(known(), name)
            .ok_or_else(|| unknown(&format!("endpoint \"{name}\"; there are"), known()))?;
        let objectives = self.objectives.with(place, latency, now.latency_max);
        let latency_max = Some(strictest(&objectives));
        Ok(EndpointChange { objectives: Some(objectives), latency_max, ..sizes })
    }

    fn resize(&self, name: &str, size: u32) -> Result<EndpointChange, String> {
        let place = find(self.batched(), name).ok_or_else(|| {
            let what = format!("endpoint \"{name}\" that takes batches; those that do");
            unknown(&what, self.batched())
        })?;
        let others = self.batched().filter(|(other, _)| *other != place);
        let model = others.map(|(other, _)| self.size(other)).fold(size, u32::max);
        let sizes = Some((vec![place], size));
        Ok(EndpointChange { sizes, batch_size: Some(model), ..EndpointChange::default() })
    }

    /// Makes a change.
    pub(crate) fn apply(&self, tuning: &EndpointChange) {
        let (places, size) = tuning.sizes.as_ref().map_or((&[][..], 0), |(at, size)| (at, *size));
        places.iter().for_each(|place| self.told[*place].store(size, Ordering::Relaxed));
        if let Some(objectives) = &tuning.objectives {
            self.objectives.set(objectives);
        }
        if tuning.together {
            self.objectives.clear();
        }
    }

    fn all(&self, size: u32) -> EndpointChange {
        let places = self.batched().map(|(place, _)| place).collect();
        EndpointChange {
            sizes: Some((places, size)),
            batch_size: Some(size),
            ..EndpointChange::default()
        }
    }

    fn batched(&self) -> impl Iterator<Item = (usize, &str)> {
        let places = self.api.endpoints.iter().enumerate();
        places
            .filter(|(_, name)| self.api.batch_sizes.contains_key(*name))
            .map(|(at, n)| (at, n.as_str()))
    }

    fn size(&self, place: usize) -> u32 {
        match self.told[place].load(Ordering::Relaxed) {
            0 => self.api.batch_sizes.get(&self.api.endpoints[place]).copied().unwrap_or(1),
            told => told,
        }
    }

    fn default_index(&self) -> Option<usize> {
        self.api.endpoints.iter().position(|endpoint| DEFAULTS.contains(&endpoint.as_str()))
    }
}

/// Endpoints share one queue and one batcher, so what those are told holds for all of them.
fn reject_shared(change: &Reconfigure) -> Result<(), String> {
    let own = change.settings.only(&[&MAX_BATCH_SIZE, &MAX_LATENCY_MS]);
    if !own.is_empty() && own == change.settings {
        return Ok(());
    }
    let words = "endpoint= goes with max_batch_size= and max_latency_ms=; what else there is to \
                 change holds for the model, whose endpoints share one queue";
    Err(words.to_owned())
}

fn find<'a>(mut known: impl Iterator<Item = (usize, &'a str)>, name: &str) -> Option<usize> {
    known.find(|(_, known)| *known == name).map(|(place, _)| place)
}

fn unknown<'a>(what: &str, known: impl Iterator<Item = (usize, &'a str)>) -> String {
    let known: Vec<&str> = known.map(|(_, name)| name).collect();
    format!("there is no {what}: {}", known.join(", "))
}

#[cfg(test)]
mod tests;
