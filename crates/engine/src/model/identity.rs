//! Which version of which model this is and where it came from: what never changes about it.

use crate::settings::RegisterOptions;
use crate::store::Sha256;

/// What tells one model version from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) version: String,
    /// As it was asked for; empty for the functions of a workflow.
    pub(crate) url: String,
    /// The sum that its file must have, where somebody said one.
    pub(crate) sha256: Option<Sha256>,
    /// Whether the server itself loaded it.
    pub(crate) at_startup: bool,
    /// The workflow that it is a node of.
    pub(crate) workflow: Option<String>,
}

impl Identity {
    /// A model under the name and version that were settled on.
    pub(crate) fn settled(name: String, version: String, options: &RegisterOptions) -> Self {
        Self {
            name,
            version,
            url: options.url.clone(),
            sha256: options.sha256,
            at_startup: options.at_startup,
            workflow: options.workflow.clone(),
        }
    }
}
