//! The operator's plugins: the paths they answer, and the requests they authorize.
//!
//! The engine runs their processes (`docs/adr/0010`); here they are called, within a timeout. Any failure
//! denies a request: one place in this file admits it, and it needs `allow: true`.

mod call;
mod description;
mod guard;
mod intent;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use jitney_engine::Model;
use jitney_engine::call::Answer;

pub(crate) use self::call::{ApiKind, PluginRequest};
use self::call::{PluginCall, call_plugin};
use self::description::{DeclaredEndpoint, PluginDescription};
pub(crate) use self::guard::CallGuard;
pub(crate) use self::intent::Intent;
use crate::auth::Gate;
use crate::errors::{ErrorCode, Problem};
use crate::route::Apis;

/// Why the plugins cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// A plugin's description is missing or not valid.
    #[error("plugin {plugin} has no valid description: {why}")]
    NoDescription {
        /// The plugin.
        plugin: String,
        /// What went wrong.
        why: String,
    },
    /// A path is the server's own.
    #[error("plugin {plugin}: {path} is a path of the server's own; choose another")]
    PathTaken {
        /// The plugin.
        plugin: String,
        /// The path.
        path: String,
    },
    /// A path is declared twice.
    #[error("plugin {plugin}: {path} is answered by a plugin already; a path can be declared once")]
    PathTwice {
        /// The plugin that came second.
        plugin: String,
        /// The path.
        path: String,
    },
    /// Two plugins authorize.
    #[error("plugins {first} and {second} both have @authorize; leave one of them out")]
    TwoAuthorizers {
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
}

/// A path that a plugin answers.
pub(crate) struct PluginEndpoint {
    pub(crate) listener: ApiKind,
    pub(crate) path: String,
    pub(crate) methods: Vec<Method>,
    /// The plugin's description of it; often empty.
    pub(crate) description: String,
    plugin: Arc<Model>,
}

/// Everything the plugins offer.
pub struct Plugins {
    endpoints: Vec<PluginEndpoint>,
    guard: Option<Arc<Model>>,
    timeout: Duration,
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.endpoints.iter().map(|endpoint| &endpoint.path).collect();
        let guard = self.guard.as_ref().map(|guard| guard.name());
        f.debug_struct("Plugins").field("paths", &paths).field("guard", &guard).finish()
    }
}

impl Plugins {
    /// Asks every plugin what it offers; callers later wait for answers no longer than `timeout`. Paths that
    /// are `taken` are the server's own.
    ///
    /// # Errors
    /// One does not answer, or their offers do not fit together.
    pub(crate) async fn gather(
        plugins: Vec<Arc<Model>>,
        timeout: Duration,
        taken: fn(&[Method], &str) -> bool,
    ) -> Result<Self, PluginError> {
        let mut gathered = Self { endpoints: Vec::new(), guard: None, timeout };
        for plugin in plugins {
            let offer = description::describe(&plugin, timeout).await.map_err(|why| {
                PluginError::NoDescription { plugin: plugin.name().to_owned(), why }
            })?;
            gathered.add(&plugin, offer, taken)?;
        }
        Ok(gathered)
    }

    fn add(
        &mut self,
        plugin: &Arc<Model>,
        offer: PluginDescription,
        taken: fn(&[Method], &str) -> bool,
    ) -> Result<(), PluginError> {
        let name = || plugin.name().to_owned();
        for declared in offer.endpoints {
            let path = declared.path.clone();
            if taken(&declared.methods, &path) {
                return Err(PluginError::PathTaken { plugin: name(), path });
            }
            if self
                .endpoints
                .iter()
                .any(|one| one.path == path && one.listener == declared.listener)
            {
                return Err(PluginError::PathTwice { plugin: name(), path });
            }
            let DeclaredEndpoint { path, methods, listener, description } = declared;
            let plugin = Arc::clone(plugin);
            self.endpoints.push(PluginEndpoint { listener, path, methods, description, plugin });
        }
        if !offer.authorize {
            return Ok(());
        }
        match self.guard.replace(Arc::clone(plugin)) {
            None => Ok(()),
            Some(first) => {
                Err(PluginError::TwoAuthorizers { first: first.name().to_owned(), second: name() })
            }
        }
    }

    /// Whether requests must be authorized.
    pub(crate) fn guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Authorizes a request; returns its tenant, if the plugin names one.
    pub(crate) async fn authorize(
        &self,
        request: PluginRequest<'_>,
        listener: ApiKind,
        intent: &Intent<'_>,
    ) -> Result<Option<Box<str>>, Problem> {
        let Some(guard) = &self.guard else { return Ok(None) };
        let call = PluginCall { listener, intent: Some(intent), ..PluginCall::new("authorize") };
        let unclear = |why: &str| {
            let message = format!(
                "The request cannot be authorized: plugin {} {why}. Try again later.",
                guard.name()
            );
            Problem::new(ErrorCode::PluginAway, message)
        };
        let asked = call_plugin(guard, call, request, self.timeout).await;
        let answer = asked.map_err(|failure| unclear(failure.text()))?;
        match description::verdict(&answer.output.body) {
            Some(Ok(tenant)) => Ok(tenant),
            Some(Err((status, message))) => {
                Err(Problem { status, ..Problem::new(ErrorCode::Denied, message) })
            }
            None => Err(unclear("did not answer with allow true or false")),
        }
    }

    /// Everything that plugins answer on a listener.
    pub(crate) fn endpoints(&self, apis: Apis) -> impl Iterator<Item = &PluginEndpoint> {
        self.endpoints.iter().filter(move |one| one.listener.is_of(apis))
    }

    /// Who answers a path that the server itself does not know.
    pub(crate) fn endpoint(&self, apis: Apis, path: &str) -> Option<&PluginEndpoint> {
        let path = path.trim_end_matches('/');
        self.endpoints.iter().find(|one| one.path == path && one.listener.is_of(apis))
    }

    /// Lets a plugin answer.
    pub(crate) async fn answer(
        &self,
        endpoint: &PluginEndpoint,
        request: PluginRequest<'_>,
        body: Bytes,
    ) -> Result<Answer, Problem> {
        let PluginEndpoint { listener, path, plugin, .. } = endpoint;
        let (endpoint, listener) = (Some(path.as_str()), *listener);
        let call = PluginCall { endpoint, listener, body, ..PluginCall::new("endpoint") };
        call_plugin(plugin, call, request, self.timeout).await.map_err(|failure| {
            let message = format!("Plugin {} {}.", plugin.name(), failure.text());
            Problem::new(failure.code(), message)
        })
    }
}

impl PluginEndpoint {
    /// The plugin's name.
    pub(crate) fn plugin(&self) -> &str {
        self.plugin.name()
    }

    /// What opens it, wherever it answers.
    pub(crate) fn gate(&self) -> Gate {
        self.listener.gate()
    }

    /// Whether the plugin takes this method.
    pub(crate) fn takes(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }
}

#[cfg(test)]
mod tests;
