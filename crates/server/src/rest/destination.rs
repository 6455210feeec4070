//! Where a path leads: to a row of the table, to an endpoint of a model, or to a plugin.

use std::sync::Arc;

use jitney_engine::PathTarget;

use super::context::RequestContext;
use super::endpoint::Endpoint;
use super::endpoints::{self, Found};
use super::mounted;
use crate::auth::{Gate, GuardedOperation};
use crate::plugins::PluginEndpoint;
use crate::route::{Apis, PathNames};

/// Who answers a request.
#[derive(Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) endpoint: &'static Endpoint,
    pub(super) names: PathNames<'a>,
    /// It answers instead of the endpoint.
    pub(super) plugin: Option<&'a PluginEndpoint>,
}

impl<'a> Destination<'a> {
    /// A plugin's path goes before a model's bare name, and so does what models claim for themselves.
    pub(super) fn of(
        context: &RequestContext<'a>,
        path: &'a str,
        claimed: Option<&'a ClaimedPath>,
    ) -> Self {
        let found = endpoints::find(context.apis, &context.parts.method, path);
        let plugins = context.state.parts.plugins.as_ref();
        let plugins = plugins.filter(|_| found.is_unknown() || context.apis.natural);
        let plugin = plugins.and_then(|plugins| plugins.endpoint(context.apis, path));
        let Found { endpoint, names } = match claimed.filter(|_| plugin.is_none()) {
            None => found,
            Some(claimed) if claimed.taken => Found::claimed(&claimed.target),
            Some(_) => Found::wrong_method(),
        };
        Self { endpoint, names, plugin }
    }

    /// Who may call it.
    pub(super) fn gate(&self, apis: Apis) -> Gate {
        self.plugin.map_or_else(|| self.endpoint.gate(apis), PluginEndpoint::gate)
    }

    /// What its caller does, for keys.
    pub(super) fn operation(&self) -> GuardedOperation {
        self.plugin.map_or(self.endpoint.operation, |_| GuardedOperation::Endpoint)
    }
}

/// What models want with a path.
pub(super) struct ClaimedPath {
    target: Arc<PathTarget>,
    /// Whether its endpoint takes the request's method.
    taken: bool,
}

impl ClaimedPath {
    /// The model's endpoint that a decoded path belongs to. Servers whose models have no paths of their own do
    /// not look.
    #[inline]
    pub(super) fn of(context: &RequestContext<'_>, path: &str) -> Option<Self> {
        if !context.apis.inference {
            return None;
        }
        let paths = context.state.engine.paths()?;
        if endpoints::is_fixed(context.apis, path) {
            return None;
        }
        let route = paths.route(path);
        let fit = route.filter(|target| mounted::takes(target, &context.parts.method));
        let fit = fit.or_else(|| paths.mount(path));
        let target = Arc::clone(fit.or(route)?);
        Some(Self { target, taken: fit.is_some() })
    }
}

/// The methods that the request's path takes.
pub(super) fn methods(context: &RequestContext<'_>) -> String {
    let engine = &context.state.engine;
    let without_body = |names: &PathNames<'_>| {
        let target = names.target();
        engine.model(target.model, target.version).is_ok_and(|model| model.tag().python)
    };
    let path = context.path();
    match ClaimedPath::of(context, &path) {
        Some(claimed) => mounted::allowed(&claimed.target),
        None => endpoints::allowed(context.apis, &path, without_body),
    }
}
