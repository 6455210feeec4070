//! A model to load at start-up, before anybody knows what is inside it.

use std::collections::BTreeMap;

use jitney_engine::settings::{EndpointOptions, RegisterOptions};
use jitney_engine::store::{Sha256, is_remote};

use crate::serve::options::PerModel;

/// What to load and what the operator said about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Startup {
    /// The name to serve it under; without one the archive's own.
    pub name: Option<String>,
    /// File of the store, path or URL.
    pub url: String,
    /// `module:object`, if it is a definition in Python; then the url only repeats it.
    pub definition: Option<String>,
    /// The version to serve it as.
    pub version: Option<String>,
    /// The handler, if not the archive's own.
    pub handler: Option<String>,
    /// The runtime, if not the archive's own.
    pub runtime: Option<String>,
    /// Settings given from outside the archive.
    pub per_model: PerModel,
    /// The fewest and the most workers, whatever the archive says.
    pub workers: Option<(u32, u32)>,
    /// The sum its file must have.
    pub sha256: Option<Sha256>,
    /// What single endpoints of a definition take.
    pub endpoints: BTreeMap<String, EndpointOptions>,
    /// Whether this version answers when none is named; else the first one loaded does.
    pub default: bool,
}

impl Startup {
    /// A model under the archive's name.
    pub fn unnamed(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// A model under a name of its own.
    pub fn named(name: &str, url: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::unnamed(url) }
    }

    /// Whether it has to be fetched from another machine.
    pub fn is_remote(&self) -> bool {
        is_remote(&self.url)
    }

    /// The same in the engine's words.
    pub fn options(&self) -> RegisterOptions {
        let batching = &self.per_model.batching;
        RegisterOptions {
            url: self.url.clone(),
            model_name: self.name.clone(),
            version: self.version.clone(),
            handler: self.handler.clone(),
            runtime: self.runtime.clone(),
            batch_size: batching.max_batch_size,
            max_batch_delay_ms: batching.max_batch_delay.map(|time| time.whole()),
            max_latency_ms: batching.max_latency_ms.map(|time| time.whole()),
            policy: batching.policy.map(|policy| policy.0),
            tenants: batching.tenants.clone().map(|tenants| tenants.into_iter().collect()),
            cost: batching.cost.map(|cost| cost.0),
            max_cost: batching.max_cost,
            initial_workers: self.per_model.workers,
            response_timeout_s: self.per_model.response_timeout.map(|time| time.whole()),
            startup_timeout_s: self.per_model.startup_timeout.map(|time| time.whole()),
            queue_max: self.per_model.queue,
            at_startup: true,
            sha256: self.sha256,
            endpoints: self.endpoints.clone(),
            ..RegisterOptions::default()
        }
    }
}
