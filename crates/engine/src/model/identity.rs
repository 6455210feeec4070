//! Which version of which model this is and where it came from: what never changes about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::settings::RegisterOptions;
use crate::store::{Sha256, ShownUrl};

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
    /// A model under the name and version that were settled on.
    pub(crate) fn settled(name: String, version: String, options: &RegisterOptions) -> Self {
        Self {
            name,
            version,
            url: ShownUrl::of(&options.url),
            sha256: options.sha256,
            at_startup: options.at_startup,
            workflow: options.workflow.clone(),
            labels: Arc::clone(&options.labels),
        }
    }

    /// Whether it is a function of a workflow, which no archive of its own stands behind.
    pub fn is_function(&self) -> bool {
        self.workflow.is_some() && self.url.is_empty()
    }
}
