//! A model to load at start-up, before it was opened.

use std::collections::BTreeMap;

use jitney_engine::settings::{EndpointOptions, RegisterOptions};
use jitney_engine::store::{Sha256, is_remote};
use jitney_settings::Values;

/// What to load, and the settings that flags, variables and files give it.
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
    pub settings: Values,
    /// Whether it is restored from a snapshot.
    pub restored: bool,
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

    /// What the engine is given.
    pub fn options(&self) -> RegisterOptions {
        RegisterOptions {
            url: self.url.clone(),
            model_name: self.name.clone(),
            version: self.version.clone(),
            handler: self.handler.clone(),
            runtime: self.runtime.clone(),
            settings: self.settings.clone(),
            endpoints: self.endpoints.clone(),
            at_startup: true,
            restored: self.restored,
            sha256: self.sha256,
            ..RegisterOptions::default()
        }
    }
}
