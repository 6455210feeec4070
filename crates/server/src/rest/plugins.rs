//! The operator's plugins over REST: one authorizes requests, any answers paths of its own.
//!
//! A plugin's path is looked up after every route of the server, so that a prediction never waits for it.

use http::request::Parts;

use super::context::RequestContext;
use super::inference;
use crate::auth::Gate;
use crate::body::RequestBody;
use crate::errors::Problem;
use crate::plugins::{ApiKind, PluginEndpoint, PluginRequest, Plugins};
use crate::respond::HttpResult;
use crate::route;

/// Asks the plugin that authorizes requests, if there is one; a route that needs no token needs no
/// authorization.
pub(super) async fn authorize(
    context: &RequestContext<'_>,
    plugins: &Plugins,
    gate: Gate,
) -> Result<(), Problem> {
    let listener = match gate {
        Gate::Open => return Ok(()),
        Gate::Management | Gate::Renewal => ApiKind::Management,
        Gate::Inference | Gate::Either => ApiKind::Inference,
    };
    if !plugins.guarded() {
        return Ok(());
    }
    let path = route::decode(context.parts.uri.path());
    plugins.authorize(plugin_request(context, &path), listener).await
}

/// Lets a plugin answer a path that the server does not know.
pub(super) async fn answer(
    context: &RequestContext<'_>,
    endpoint: Option<&PluginEndpoint>,
    path: &str,
    body: RequestBody,
) -> HttpResult {
    let (Some(plugins), Some(endpoint)) = (&context.state.config.plugins, endpoint) else {
        return Err(Problem::not_found());
    };
    if !endpoint.takes(&context.parts.method) {
        return Err(Problem::method_not_allowed());
    }
    let body = context.read(body).await?;
    inference::timed_response(plugins.answer(endpoint, plugin_request(context, path), body).await?)
}

/// The request as a plugin sees it. The path is the decoded one, by which the server routes.
fn plugin_request<'a>(context: &'a RequestContext<'_>, path: &'a str) -> PluginRequest<'a> {
    let Parts { method, uri, headers, .. } = context.parts;
    PluginRequest {
        id: context.id.text(),
        method,
        path,
        query: uri.query(),
        headers,
        client: &context.peer.address,
        origin: context.origin(),
    }
}
