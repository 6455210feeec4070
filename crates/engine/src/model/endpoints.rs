//! The endpoints of a definition in Python and how large their batches may be, live.
//!
//! All endpoints of a model share its queue, whose batches are as large as the largest of them takes;
//! each worker cuts them to what its endpoint takes. Sizes that differ from the definition's own ride
//! with the requests, so that a change shows at once and costs nothing where there was none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Reconfigure;
use crate::call::Input;
use crate::store::Api;

/// The header that tells a worker the size of an endpoint's batches. No client can send one of this
/// name, since HTTP allows no spaces in it.
const SIZE_HEADER: &str = "jitney batch size";

/// Endpoints that answer where a request names none; see `Definition.default` in Python.
const DEFAULTS: [&str; 2] = ["call", "predict"];

/// A definition's endpoints.
pub(crate) struct Endpoints {
    api: Api,
    /// By place; 0 where the definition's own size holds.
    told: Vec<AtomicU32>,
}

/// What a change of batch sizes comes to.
pub(crate) struct Resize {
    /// The endpoints that change, by place, and their new size.
    places: Vec<usize>,
    size: u32,
    /// The size of the model's batches then.
    pub(crate) model: u32,
}

impl Endpoints {
    /// `batch_size` is the model's; where an operator asked for another than the definition does, all
    /// of its endpoints take it.
    pub(crate) fn new(api: Api, batch_size: u32) -> Self {
        let told = api.endpoints.iter().map(|_| AtomicU32::new(0)).collect();
        let endpoints = Self { api, told };
        let declared = endpoints.api.batch_sizes.values().max();
        if declared.is_some_and(|declared| *declared != batch_size) {
            endpoints.apply(&endpoints.all(batch_size));
        }
        endpoints
    }

    /// What the definition says about itself.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// The sizes in force, of the endpoints that take batches.
    pub(crate) fn sizes(&self) -> BTreeMap<String, u32> {
        let sizes = self.batched().map(|(place, name)| (name.to_owned(), self.size(place)));
        sizes.collect()
    }

    /// The place of the endpoint that a request asks for.
    pub(crate) fn place(&self, input: &Input) -> Option<usize> {
        if self.told.len() == 1 {
            return Some(0);
        }
        // The route's word follows what a client may have sent under the same name: the last counts.
        let asked = input.headers.iter().filter(|(name, _)| *name == b"url_path").last();
        let asked = asked.map_or(&b""[..], |(_, value)| value);
        self.api.endpoints.iter().position(|endpoint| endpoint.as_bytes() == asked)
    }

    /// Writes down for the worker what it does not know from the definition.
    pub(crate) fn tell(&self, place: Option<usize>, input: &mut Input) {
        let place = place.or_else(|| self.default_place());
        let told = place.map_or(0, |place| self.told[place].load(Ordering::Relaxed));
        if told > 0 {
            input.headers.push(SIZE_HEADER, told.to_string().as_bytes());
        }
    }

    /// What a change of the batch size means, of one endpoint or of all; nothing yet changes.
    pub(crate) fn resize(&self, change: &Reconfigure) -> Result<Option<Resize>, String> {
        let Some(name) = &change.endpoint else {
            return Ok(change.batch_size.map(|size| self.all(size)));
        };
        let Some(size) = change.batch_size else {
            return Err(
                "endpoint= goes with max_batch_size=: what else there is to change holds for \
                        the model, whose endpoints share one queue"
                    .to_owned(),
            );
        };
        let place = self.batched().find(|(_, known)| known == name).map(|(place, _)| place);
        let Some(place) = place else {
            let known: Vec<&str> = self.batched().map(|(_, name)| name).collect();
            return Err(format!(
                "there is no endpoint \"{name}\" that takes batches; those that do: {}",
                known.join(", ")
            ));
        };
        let others = self.batched().filter(|(other, _)| *other != place);
        let model = others.map(|(other, _)| self.size(other)).fold(size, u32::max);
        Ok(Some(Resize { places: vec![place], size, model }))
    }

    /// Makes a change.
    pub(crate) fn apply(&self, resize: &Resize) {
        for place in &resize.places {
            self.told[*place].store(resize.size, Ordering::Relaxed);
        }
    }

    fn all(&self, size: u32) -> Resize {
        Resize { places: self.batched().map(|(place, _)| place).collect(), size, model: size }
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

    fn default_place(&self) -> Option<usize> {
        self.api.endpoints.iter().position(|endpoint| DEFAULTS.contains(&endpoint.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::HeaderBlock;

    fn endpoints(batch_size: u32) -> Endpoints {
        let names = ["one", "two", "single"];
        let batch_sizes = BTreeMap::from([("one".to_owned(), 4), ("two".to_owned(), 8)]);
        let api =
            Api { endpoints: names.map(str::to_owned).to_vec(), batch_sizes, ..Api::default() };
        Endpoints::new(api, batch_size)
    }

    fn change(endpoint: Option<&str>, batch_size: Option<u32>) -> Reconfigure {
        let endpoint = endpoint.map(str::to_owned);
        Reconfigure { endpoint, batch_size, ..Reconfigure::default() }
    }

    fn told(endpoints: &Endpoints, asked: &str) -> String {
        let mut headers = HeaderBlock::new();
        headers.push("url_path", asked.as_bytes());
        let mut input = Input { id: String::new(), headers, parameters: Vec::new() };
        endpoints.tell(endpoints.place(&input), &mut input);
        let told = input.headers.iter().find(|(name, _)| *name == SIZE_HEADER.as_bytes());
        told.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    }

    #[test]
    fn a_change_of_one_endpoint_leaves_the_others_and_the_model_follows_the_largest() {
        let endpoints = endpoints(8);
        assert_eq!([told(&endpoints, "one"), told(&endpoints, "two")], ["", ""]);
        for (name, size, model) in [("two", 2, 4), ("one", 3, 3), ("two", 16, 16)] {
            let resize = endpoints.resize(&change(Some(name), Some(size))).expect("fits");
            let resize = resize.expect("changes");
            assert_eq!(resize.model, model, "{name}");
            endpoints.apply(&resize);
        }
        assert_eq!([told(&endpoints, "one"), told(&endpoints, "two")], ["3", "16"]);
        assert_eq!(told(&endpoints, "single"), "");
        let all = endpoints.resize(&change(None, Some(5))).expect("fits").expect("changes");
        endpoints.apply(&all);
        assert_eq!(endpoints.sizes().into_values().collect::<Vec<_>>(), [5, 5]);
    }

    #[test]
    fn what_an_endpoint_cannot_change_is_said() {
        let endpoints = endpoints(8);
        for (change, words) in [
            (change(Some("single"), Some(2)), "those that do: one, two"),
            (change(Some("one"), None), "goes with max_batch_size="),
        ] {
            let refused = endpoints.resize(&change).err().unwrap_or_default();
            assert!(refused.contains(words), "{refused}");
        }
        assert!(endpoints.resize(&change(None, None)).is_ok_and(|resize| resize.is_none()));
    }

    #[test]
    fn the_operators_size_is_every_endpoints() {
        let sizes: Vec<u32> = endpoints(64).sizes().into_values().collect();
        assert_eq!(sizes, [64, 64]);
    }
}
