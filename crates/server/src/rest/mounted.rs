//! Paths that models answer beside those of their names: single ones, and everything below a mount.
//!
//! A raw endpoint gets a request as it came: the path, the method and the query in headers whose names no
//! client can send, and the body unparsed. What it answers goes out as it is.

use std::sync::Arc;

use http::Method;
use jitney_engine::PathTarget;
use jitney_engine::call::Parameter;

use super::context::RequestContext;
use super::inference;
use crate::body::RequestBody;
use crate::respond::{HttpResult, OwnCaching};
use crate::route::{self, ModelRef, MountedRoute, OpenInferenceRoute, PredictRoute, Route};

/// What models want with a path.
pub(super) enum ClaimedPath {
    /// An endpoint answers it.
    Endpoint(Arc<PathTarget>),
    /// Its endpoint takes other methods.
    WrongMethod(Arc<PathTarget>),
}

/// The endpoint that a decoded path belongs to. Servers whose models have no paths of their own do not look.
#[inline]
pub(super) fn find(context: &RequestContext<'_>, path: &str) -> Option<ClaimedPath> {
    if !context.apis.natural || !context.apis.inference {
        return None;
    }
    let paths = context.state.engine.paths()?;
    if route::is_fixed(context.apis, path) {
        return None;
    }
    let route = paths.route(path);
    let taken = route.filter(|target| takes(target, &context.parts.method));
    if let Some(target) = taken.or_else(|| paths.mount(path)) {
        return Some(ClaimedPath::Endpoint(Arc::clone(target)));
    }
    route.map(|target| ClaimedPath::WrongMethod(Arc::clone(target)))
}

/// Whether an endpoint's path takes this method.
fn takes(target: &PathTarget, method: &Method) -> bool {
    match &*target.methods {
        [] if target.raw => true,
        [] => [Method::GET, Method::POST, Method::PUT].contains(method),
        named => named.iter().any(|it| it.eq_ignore_ascii_case(method.as_str())),
    }
}

impl ClaimedPath {
    /// Where requests for it go.
    pub(super) fn route(&self) -> Route<'_> {
        let Self::Endpoint(target) = self else { return Route::MethodNotAllowed };
        let PathTarget { model, endpoint, path: prefix, raw, answers, .. } = &**target;
        match answers.as_deref() {
            Some("live") => return Route::OpenInference(OpenInferenceRoute::Live),
            Some(_) => return Route::OpenInference(OpenInferenceRoute::Ready),
            None => {}
        }
        let target = ModelRef { model, version: None };
        if *raw {
            return Route::Mounted(MountedRoute { target, endpoint, prefix });
        }
        Route::Predict(PredictRoute {
            url_path: Some(endpoint),
            ..PredictRoute::with_query(target)
        })
    }

    /// The methods that it takes, for whoever came with another.
    pub(super) fn allowed(&self) -> String {
        let (Self::Endpoint(target) | Self::WrongMethod(target)) = self;
        let usual = [Method::GET, Method::POST, Method::PUT];
        match &*target.methods {
            [] => usual.each_ref().map(Method::as_str).join(", "),
            named => named.join(", ").to_ascii_uppercase(),
        }
    }
}

/// A request that goes to its endpoint as it came.
pub(super) async fn call(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: MountedRoute<'_>,
) -> HttpResult {
    let MountedRoute { target, endpoint, prefix } = route;
    let value = context.read_value(body).await?;
    let model = context.model(target)?;
    let body = Parameter { name: "body".into(), content_type: "".into(), value };
    let route = PredictRoute { url_path: Some(endpoint), ..PredictRoute::new(target) };
    let mut request = inference::request(context, route, vec![body])?;
    let (uri, headers) = (&context.parts.uri, &mut request.input.headers);
    headers.push("jitney method", context.parts.method.as_str().as_bytes());
    headers.push("jitney path", uri.path().as_bytes());
    headers.push("jitney mount", prefix.as_bytes());
    headers.push("jitney query", uri.query().unwrap_or("").as_bytes());
    headers.push("jitney client", context.peer.address.as_bytes());
    let answer = context.state.inference.predict(&model, request).await?;
    let mut reply = inference::timed_response(answer)?;
    reply.extensions_mut().insert(OwnCaching);
    Ok(reply)
}
