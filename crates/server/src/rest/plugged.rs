//! Requests and the operator's plugins: who may pass, and paths that only a plugin knows.
//!
//! Endpoints come last, after every route of the server's own, so that a prediction never looks for
//! one; their bodies have the limit that all bodies have.

use http::request::Parts;
use jitney_engine::call::{Origin, OriginKind};

use super::inference;
use crate::auth::Gate;
use crate::body::Upload;
use crate::door::Visit;
use crate::errors::Problem;
use crate::plugins::{Asker, Listener, Plugins};
use crate::respond::Reply;
use crate::route::{self, Route};

/// Asks the plugin that guards the doors, if one does; what is open without a token is open here too.
pub(crate) async fn authorize(
    visit: &Visit<'_>,
    plugins: &Plugins,
    route: &Route<'_>,
) -> Result<(), Problem> {
    let listener = match Gate::of(visit.apis, route) {
        Gate::Open => return Ok(()),
        Gate::Management | Gate::Renewal => Listener::Management,
        Gate::Inference | Gate::Either => Listener::Inference,
    };
    if !plugins.guarded() {
        return Ok(());
    }
    let path = route::decode(visit.parts.uri.path());
    plugins.authorize(asker(visit, &path), listener).await
}

/// Lets a plugin answer a path that the server does not know, or says that nobody does.
pub(crate) async fn answer(visit: &Visit<'_>, path: &str, body: Upload) -> Result<Reply, Problem> {
    let found =
        visit.house.config.plugins.as_ref().and_then(|plugins| {
            plugins.endpoint(visit.apis, path).map(|endpoint| (plugins, endpoint))
        });
    let Some((plugins, endpoint)) = found else { return Err(Problem::not_found()) };
    if !endpoint.takes(&visit.parts.method) {
        return Err(Problem::method_not_allowed());
    }
    let body = visit.read(body).await?;
    inference::reply(plugins.answer(endpoint, asker(visit, path), body).await?)
}

/// The path is the decoded one, by which the server itself routes: a plugin must judge what will happen.
fn asker<'a>(visit: &'a Visit<'_>, path: &'a str) -> Asker<'a> {
    let Parts { method, uri, headers, .. } = visit.parts;
    Asker {
        id: visit.id.text(),
        method,
        path,
        query: uri.query(),
        headers,
        client: &visit.peer.address,
        origin: Origin { kind: OriginKind::Http, peer: visit.peer.number },
    }
}
