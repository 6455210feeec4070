//! The endpoints of a definition in Python and what can be changed about each, live: how large its
//! batches may be, and the latency to keep ([`Objectives`]).
//!
//! All endpoints of a model share its queue, whose batches are as large as the largest of them takes;
//! each worker cuts them to what its endpoint takes. Sizes that differ from the definition's own are
//! sent with the requests, so that a change shows at once and costs nothing where there was none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS};
use jitney_settings::{Setting, SettingSource, SettingValue, Values, nearest};

use super::endpoint_tensors::EndpointTensors;
use super::statistics::index_of;
use crate::call::{CallRoute, Input};
use crate::local::Signature;
use crate::pending::EndpointIndex;
use crate::settings::{EndpointOptions, ModelSettings};
use crate::sizes::{self, RequestSize, SizeReader};
use crate::store::Api;
use crate::tensors::TensorRequest;

/// Endpoints that answer where a request names none; see `Definition.default` in Python.
const DEFAULTS: [&str; 2] = ["call", "predict"];

/// A definition's endpoints.
pub(crate) struct Endpoints {
    pub(super) api: Api,
    /// By endpoint: whether its function takes many items at a time.
    batched: Vec<bool>,
    /// By endpoint; 0 where the definition's own size holds.
    told: Vec<AtomicU32>,
    objectives: Objectives,
    /// By endpoint; none where every request is one item like any other.
    size_readers: Vec<Option<SizeReader>>,
    /// By endpoint; none of definitions that an older package wrote down.
    tensors: Vec<Option<EndpointTensors>>,
    /// The model's name, for sentences about requests that do not fit.
    model: Box<str>,
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
        let batched = api.endpoints.iter().map(|name| api.batch_sizes.contains_key(name)).collect();
        let told = api.endpoints.iter().map(|_| AtomicU32::new(0)).collect();
        let objectives = Objectives::new(&api, settings.latency_max);
        let reader = |name: &String| api.sizes.get(name).cloned().map(SizeReader::new);
        let size_readers = api.endpoints.iter().map(reader).collect();
        let tensors = |name: &String| api.tensors.get(name).cloned().and_then(EndpointTensors::new);
        let tensors = api.endpoints.iter().map(tensors).collect();
        let endpoints =
            Self { api, batched, told, objectives, size_readers, tensors, model: Box::default() };
        let declared = endpoints.api.batch_sizes.values().max();
        if declared.is_some_and(|declared| *declared != settings.batch_size) {
            endpoints.apply(&endpoints.all(settings.batch_size));
        }
        options.iter().for_each(|(name, one)| endpoints.grant(name, one, settings));
        endpoints
    }

    /// The same under this name.
    pub(crate) fn of_model(self, name: &str) -> Self {
        Self { model: name.into(), ..self }
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

    /// How every endpoint is served at the moment.
    pub(crate) fn views(&self) -> BTreeMap<String, EndpointView> {
        let places = self.api.endpoints.iter().enumerate();
        let views = places.map(|(place, name)| {
            let view = EndpointView {
                batch_size: self.batched[place].then(|| self.size(place)),
                as_defined: self.told[place].load(Ordering::Relaxed) == 0,
                objective: self.objectives.get(Some(place)),
            };
            (name.clone(), view)
        });
        views.collect()
    }

    /// The index of the endpoint that a request asks for; none if it names none, unless there is only one.
    ///
    /// # Errors
    /// A sentence about an endpoint that is not there.
    pub(crate) fn index(&self, route: &CallRoute) -> Result<Option<usize>, String> {
        let Some(asked) = route.endpoint.as_deref().filter(|asked| !asked.is_empty()) else {
            return Ok((self.told.len() == 1).then_some(0));
        };
        match self.api.endpoints.iter().position(|endpoint| endpoint == asked) {
            None => Err(self.no_endpoint(asked)),
            found => Ok(found),
        }
    }

    #[cold]
    fn no_endpoint(&self, asked: &str) -> String {
        let (model, known) = (&self.model, self.api.endpoints.join(", "));
        let hint = nearest(asked, known.split(", ")).map(|it| format!(" (did you mean `{it}`?)"));
        format!("{model} has no endpoint '{asked}'{}; it has: {known}", hint.unwrap_or_default())
    }

    /// Where a request for the endpoint with this index is counted; nowhere for a model with only one.
    pub(crate) fn counted(&self, place: Option<usize>) -> Option<EndpointIndex> {
        let place = place.or_else(|| self.default_index())?;
        index_of(place, self.told.len())
    }

    /// Whether the endpoint with this index takes many items at a time.
    pub(crate) fn takes_batches(&self, place: Option<usize>) -> bool {
        let place = place.or_else(|| self.default_index());
        place.and_then(|place| self.batched.get(place)).copied().unwrap_or(false)
    }

    /// Adds to the route what the worker does not know from the definition; returns the latency that
    /// the request is to keep.
    pub(crate) fn complete(&self, place: Option<usize>, route: &mut CallRoute) -> Objective {
        let place = place.or_else(|| self.default_index());
        route.batch_size = place.map_or(0, |place| self.told[place].load(Ordering::Relaxed));
        self.objectives.get(place)
    }

    /// The tensors of the endpoint that answers where a request names none.
    pub(crate) fn signature(&self) -> Option<&Signature> {
        let tensors = self.tensors.get(self.main_index())?.as_ref();
        tensors.map(|tensors| &tensors.signature)
    }

    /// Sends a request in tensors that names no endpoint to the first one, where none is the default.
    pub(crate) fn direct(&self, input: &mut Input) {
        if input.tensors.is_none() || input.route.endpoint.is_some() {
            return;
        }
        if self.told.len() > 1 && self.default_index().is_none() {
            input.route.endpoint = self.api.endpoints.first().map(|name| name.as_str().into());
        }
    }

    /// Whether the tensors of a request fit its endpoint.
    pub(crate) fn check(&self, place: Option<usize>, input: &Input) -> Result<(), String> {
        let Some(request) = &input.tensors else { return Ok(()) };
        match place.or_else(|| self.default_index()).and_then(|place| self.tensors[place].as_ref())
        {
            Some(tensors) => tensors.check(&self.model, request),
            None => Ok(()),
        }
    }

    /// How large a request is, as far as that is seen before its worker reads it.
    pub(crate) fn size_of(&self, place: Option<usize>, input: &Input) -> RequestSize {
        let Some(place) = place.or_else(|| self.default_index()) else {
            return RequestSize::default();
        };
        if let Some(request) = &input.tensors {
            return self.size_of_tensors(place, request);
        }
        if input.route.open_inference
            && self.api.batch_sizes.contains_key(&self.api.endpoints[place])
        {
            return RequestSize { items: sizes::open_inference(input), ..RequestSize::default() };
        }
        self.size_readers[place].as_ref().map(|reader| reader.read(input)).unwrap_or_default()
    }

    fn size_of_tensors(&self, place: usize, request: &TensorRequest) -> RequestSize {
        let Some(tensors) = &self.tensors[place] else { return RequestSize::default() };
        let (items, bucket) = (tensors.items(request), tensors.bucket(request));
        let Some(reader) = &self.size_readers[place] else {
            return RequestSize { items, bucket, cost: None };
        };
        let one = reader.read_tensors(request);
        // Of several items each has a cost, and their worker calls with as many of them as may be.
        let many = if bucket.is_none() { items.unwrap_or(1).max(1) } else { 1 };
        let all = |cost: u64| {
            cost.max(cost.saturating_mul(u64::from(many)).min(u64::from(self.size(place))))
        };
        let both = bucket.map(|shapes| shapes ^ one.bucket.unwrap_or(0).rotate_left(32));
        RequestSize { items, cost: one.cost.map(all), bucket: both.or(one.bucket) }
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

    /// The endpoint of a request in tensors that names none.
    fn main_index(&self) -> usize {
        self.default_index().unwrap_or(0)
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

/// A change of a live model: what is not named stays. It is checked as a whole before any of it is
/// done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconfigure {
    /// The endpoint of a definition whose batch size or latency target changes; all of them if none
    /// is named.
    pub endpoint: Option<String>,
    /// The settings that change.
    pub settings: Values,
}

impl Reconfigure {
    /// A change of one setting of the model.
    pub fn of(setting: &Setting, value: impl Into<SettingValue>) -> Self {
        Self {
            endpoint: None,
            settings: Values::default().with(setting, value, SettingSource::Live),
        }
    }

    /// The most items in a batch, if they change.
    pub(crate) fn batch_size(&self) -> Option<u32> {
        self.settings.read(&MAX_BATCH_SIZE)
    }

    /// The latency target, if it changes; zero for none.
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.settings.read(&MAX_LATENCY_MS)
    }
}

/// The latency that a request is to keep unless it brings a deadline of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The model's, if it has one.
    #[default]
    Models,
    /// The endpoint's own.
    Own(Duration),
    /// None, although others of the model have one.
    Free,
}

/// Stands for [`Objective::Free`]; any other number above zero is microseconds.
const FREE: u64 = u64::MAX;

/// The objectives of all endpoints, by their place.
///
/// Endpoints that say the same have the model's objective. Where they differ each has its own, or none,
/// and the model's is the strictest of them. What an endpoint keeps is the deadline of its requests,
/// so a change holds from the next request on and no batcher is told.
pub(crate) struct Objectives(Vec<AtomicU64>);

impl Objectives {
    /// What the definition says, unless an operator asked for another latency of the whole model.
    pub(crate) fn new(api: &Api, model: Option<Duration>) -> Self {
        let objectives = Self(api.endpoints.iter().map(|_| AtomicU64::new(0)).collect());
        let own = |name: &String| api.latencies_ms.get(name).and_then(|ms| from_millis(*ms));
        let options: Vec<_> = api.endpoints.iter().map(own).collect();
        let strictest = options.iter().flatten().min().copied();
        if strictest.is_some() && strictest == model {
            let said = options.into_iter().map(|own| own.map_or(Objective::Free, Objective::Own));
            objectives.set(&said.collect::<Vec<_>>());
        }
        objectives
    }

    /// What the endpoint at this place keeps.
    pub(crate) fn get(&self, place: Option<usize>) -> Objective {
        let told = place.and_then(|place| self.0.get(place));
        match told.map_or(0, |told| told.load(Ordering::Relaxed)) {
            0 => Objective::Models,
            FREE => Objective::Free,
            micros => Objective::Own(Duration::from_micros(micros)),
        }
    }

    /// All of them as they would be with one changed, each by itself from then on.
    pub(crate) fn with(
        &self,
        place: usize,
        latency: Option<Duration>,
        model: Option<Duration>,
    ) -> Vec<Objective> {
        let spelt = |latency: Option<Duration>| latency.map_or(Objective::Free, Objective::Own);
        let now = (0..self.0.len()).map(|other| match self.get(Some(other)) {
            _ if other == place => spelt(latency),
            Objective::Models => spelt(model),
            own @ (Objective::Own(_) | Objective::Free) => own,
        });
        now.collect()
    }

    /// Makes a change; places that are left out keep what they have.
    pub(crate) fn set(&self, objectives: &[Objective]) {
        for (told, objective) in self.0.iter().zip(objectives) {
            let number = match objective {
                Objective::Models => 0,
                Objective::Own(latency) => (latency.as_micros() as u64).clamp(1, FREE - 1),
                Objective::Free => FREE,
            };
            told.store(number, Ordering::Relaxed);
        }
    }

    /// Lets all of them keep the model's.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|told| told.store(0, Ordering::Relaxed));
    }
}

/// The strictest of several, which a model with such endpoints has.
pub(crate) fn strictest(objectives: &[Objective]) -> Option<Duration> {
    let own = objectives.iter().filter_map(|objective| match objective {
        Objective::Own(latency) => Some(*latency),
        Objective::Models | Objective::Free => None,
    });
    own.min()
}

/// A latency as people write it; none if it makes no sense.
fn from_millis(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1e3).ok().filter(|latency| !latency.is_zero())
}

#[cfg(test)]
mod tests;
