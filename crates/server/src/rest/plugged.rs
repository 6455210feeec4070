//! Requests and the operator's plugins: who may pass, and paths that only a plugin knows.
//!
//! Endpoints come last, after every route of the server's own, so that a prediction never looks for
//! one; their bodies have the limit that all bodies have.

use http::request::Parts;
use jitney_engine::call::{Origin, OriginKind};

use super::inference;
use crate::auth::Gate;
use crate::body::RequestBody;
use crate::errors::Problem;
use crate::listener::RequestContext;
use crate::plugins::{ApiKind, PluginRequest, Plugins};
use crate::respond::HttpResponse;
use crate::route::{self, Route};

/// Asks the plugin that guards the server, if one does; what is open without a token is open here too.
pub(crate) async fn authorize(
    context: &RequestContext<'_>,
    plugins: &Plugins,
    route: &Route<'_>,
) -> Result<(), Problem> {
    let listener = match Gate::of(context.apis, route) {
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

/// Lets a plugin answer a path that the server does not know, or says that nobody does.
pub(crate) async fn answer(
    context: &RequestContext<'_>,
    path: &str,
    body: RequestBody,
) -> Result<HttpResponse, Problem> {
    let found = context.state.config.plugins.as_ref().and_then(|plugins| {
        plugins.endpoint(context.apis, path).map(|endpoint| (plugins, endpoint))
    });
    let Some((plugins, endpoint)) = found else { return Err(Problem::not_found()) };
    if !endpoint.takes(&context.parts.method) {
        return Err(Problem::method_not_allowed());
    }
    let body = context.read(body).await?;
    inference::reply(plugins.answer(endpoint, plugin_request(context, path), body).await?)
}

/// The path is the decoded one, by which the server itself routes: a plugin must judge what will happen.
fn plugin_request<'a>(context: &'a RequestContext<'_>, path: &'a str) -> PluginRequest<'a> {
    let Parts { method, uri, headers, .. } = context.parts;
    PluginRequest {
        id: context.id.text(),
        method,
        path,
        query: uri.query(),
        headers,
        client: &context.peer.address,
        origin: Origin { kind: OriginKind::Http, peer: context.peer.number },
    }
}
