//! Authorizes calls that share one head: the messages of a gRPC call, and the calls of a handle.

use std::sync::Arc;

use http::{HeaderMap, Method};
use jitney_engine::call::Origin;

use super::Plugins;
use super::call::{ApiKind, PluginRequest};
use super::intent::Intent;
use crate::errors::Problem;

/// The head of the calls, and who is asked about each of them.
pub(crate) struct CallGuard {
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) listener: ApiKind,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) client: String,
    pub(crate) origin: Origin,
}

impl CallGuard {
    /// Authorizes one call; returns its tenant, if the plugin names one.
    ///
    /// # Errors
    /// The plugin denied it, or gave no clear answer.
    pub(crate) async fn authorize(
        &self,
        id: &str,
        intent: &Intent<'_>,
    ) -> Result<Option<Box<str>>, Problem> {
        let request = PluginRequest {
            id,
            method: &self.method,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            client: &self.client,
            origin: self.origin,
        };
        self.plugins.authorize(request, self.listener, intent).await
    }
}
