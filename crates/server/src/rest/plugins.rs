//! Paths that the operator's plugins answer.
//!
//! They are looked up after every route of the server, so that a prediction never waits for it.

use jitney_net::RequestBody;

use super::authorize::plugin_request;
use super::context::RequestContext;
use super::inference;
use crate::errors::Problem;
use crate::plugins::PluginEndpoint;
use crate::respond::HttpResult;

/// Lets a plugin answer a path that the server does not know.
pub(super) async fn answer(
    context: &RequestContext<'_>,
    endpoint: &PluginEndpoint,
    body: RequestBody,
) -> HttpResult {
    let Some(plugins) = &context.state.parts.plugins else {
        return Err(Problem::not_found());
    };
    if !endpoint.takes(&context.parts.method) {
        return Err(Problem::method_not_allowed());
    }
    let body = context.read(body).await?;
    let request = plugin_request(context, &endpoint.path);
    inference::timed_response(plugins.answer(endpoint, request, body).await?)
}
