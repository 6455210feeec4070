//! Paths that models answer beside those of their names: single ones, and everything below a mount.
//!
//! A raw endpoint gets a request as it came: the path, the method and the query in headers whose names no
//! client can send, and the body unparsed. What it answers goes out as it is.

use http::Method;
use jitney_engine::PathTarget;
use jitney_engine::call::ValueBytes;
use jitney_net::RequestBody;

use super::context::RequestContext;
use super::inference;
use crate::request_options::RAW_METHOD;
use crate::respond::HttpResult;
use crate::route::{PathNames, PredictRoute};

/// Whether an endpoint's path takes this method.
pub(super) fn takes(target: &PathTarget, method: &Method) -> bool {
    match &*target.methods {
        [] if target.raw => true,
        [] => [Method::GET, Method::POST, Method::PUT].contains(method),
        named => named.iter().any(|it| it.eq_ignore_ascii_case(method.as_str())),
    }
}

/// The methods that an endpoint's path takes, for whoever came with another.
pub(super) fn allowed(target: &PathTarget) -> String {
    let usual = [Method::GET, Method::POST, Method::PUT];
    match &*target.methods {
        [] => usual.each_ref().map(Method::as_str).join(", "),
        named => named.join(", ").to_ascii_uppercase(),
    }
}

/// A request that goes to its endpoint as it came.
pub(super) async fn call(
    context: &RequestContext<'_>,
    body: RequestBody,
    names: PathNames<'_>,
) -> HttpResult {
    let value = context.read_value(body).await?;
    run(context, value, names).await
}

/// The same with its body.
pub(super) async fn run(
    context: &RequestContext<'_>,
    value: ValueBytes,
    names: PathNames<'_>,
) -> HttpResult {
    let target = names.target();
    let model = context.model_for(target)?;
    let body = crate::inference::body_parameter("", value);
    let route = PredictRoute { url_path: Some(names.rest), ..PredictRoute::new(target) };
    let mut request = inference::request(context, route, vec![body])?;
    let (uri, headers) = (&context.parts.uri, &mut request.input.headers);
    headers.push(RAW_METHOD, context.parts.method.as_str().as_bytes());
    headers.push("jitney path", uri.path().as_bytes());
    headers.push("jitney mount", names.mount.as_bytes());
    headers.push("jitney query", uri.query().unwrap_or("").as_bytes());
    headers.push("jitney client", context.peer.address.as_bytes());
    let answer = context.state.inference.predict(&model, request).await?;
    let mut reply = inference::timed_response(answer)?;
    reply.extensions_mut().insert(jitney_net::http::OwnCaching);
    Ok(reply)
}
