//! The latencies that the endpoints of a definition keep, live.
//!
//! Endpoints that say the same have the model's objective. Where they differ each has its own, or
//! none, and the model's is the strictest of them. What an endpoint keeps is
//! the deadline of its requests, so a change holds from the next request on and no batcher is told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::Api;

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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const FAST: Duration = Duration::from_millis(40);

    fn objectives(model: Option<Duration>) -> Objectives {
        let latencies_ms = BTreeMap::from([("fast".to_owned(), 40.0), ("slow".to_owned(), 900.5)]);
        let endpoints = ["fast", "slow", "patient"].map(str::to_owned).to_vec();
        Objectives::new(&Api { endpoints, latencies_ms, ..Api::default() }, model)
    }

    fn all(objectives: &Objectives) -> [Objective; 3] {
        [0, 1, 2].map(|place| objectives.get(Some(place)))
    }

    #[test]
    fn each_endpoint_keeps_what_the_definition_says() {
        let slow = Objective::Own(Duration::from_micros(900_500));
        let objectives = objectives(Some(FAST));
        assert_eq!(all(&objectives), [Objective::Own(FAST), slow, Objective::Free]);
        assert_eq!(objectives.get(None), Objective::Models, "a request that names none of them");
    }

    #[test]
    fn what_an_operator_asks_of_the_model_holds_for_all() {
        for model in [None, Some(FAST * 2)] {
            assert_eq!(all(&objectives(model)), [Objective::Models; 3]);
        }
    }

    #[test]
    fn a_change_of_one_leaves_the_others_with_what_they_had() {
        let objectives = objectives(None);
        let changed = objectives.with(1, Some(FAST), Some(FAST * 3));
        let others = Objective::Own(FAST * 3);
        assert_eq!(changed, [others, Objective::Own(FAST), others]);
        assert_eq!(strictest(&changed), Some(FAST));
        objectives.set(&changed);
        let freed = objectives.with(1, None, Some(FAST));
        assert_eq!(freed, [others, Objective::Free, others]);
        assert_eq!((strictest(&freed), strictest(&[Objective::Free])), (Some(FAST * 3), None));
        objectives.clear();
        assert_eq!(all(&objectives), [Objective::Models; 3]);
    }
}
