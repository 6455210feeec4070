//! `/models/{m}/traffic`: how versions of a model share the requests that name none.

use http::StatusCode;
use jitney_engine::traffic_split::TrafficSplit;
use jitney_net::RequestBody;

use crate::errors::Problem;
use crate::management;
use crate::respond::{self, HttpResult};
use crate::rest::context::RequestContext;
use crate::route::ModelRef;

/// `GET`: the shares, also where one version has everything.
pub(crate) fn traffic(context: &RequestContext<'_>, name: &str) -> HttpResult {
    let engine = &context.state.engine;
    let default = engine.model(name, None)?;
    let split = engine.traffic(name)?.map(|split| TrafficSplit::clone(&split));
    let mut split = split.unwrap_or_default();
    if split.shares.is_empty() {
        split.shares = TrafficSplit::whole(default.version()).shares;
    }
    Ok(respond::json(StatusCode::OK, &split))
}

/// `PUT`: other shares, at once.
pub(crate) async fn set_traffic(
    context: &RequestContext<'_>,
    body: RequestBody,
    name: &str,
) -> HttpResult {
    let body = context.read(body).await?;
    let split: TrafficSplit =
        String::from_utf8_lossy(&body).parse().map_err(Problem::bad_request)?;
    check_shadow(context, name, &split)?;
    context.state.engine.set_traffic(name, Some(split))?;
    context.state.engine.changes().recorded().await;
    traffic(context, name)
}

/// A shadow of the version that answers everything would get no copies.
fn check_shadow(
    context: &RequestContext<'_>,
    name: &str,
    split: &TrafficSplit,
) -> Result<(), Problem> {
    let default = context.state.engine.model(name, None)?;
    match &split.shadow {
        Some(rule) if split.shares.is_empty() && rule.version == default.version() => {
            let version = &rule.version;
            Err(Problem::bad_request(format!(
                "traffic: version {version} answers all requests, so it cannot be the shadow; name another version"
            )))
        }
        _ => Ok(()),
    }
}

/// `GET /models/{m}/{v}/shadow`.
pub(crate) fn shadow(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    Ok(respond::json(StatusCode::OK, &management::shadow(&context.state.engine, target)?))
}

/// `DELETE`: the default version answers again.
pub(crate) async fn end_traffic(context: &RequestContext<'_>, name: &str) -> HttpResult {
    context.state.engine.set_traffic(name, None)?;
    context.state.engine.changes().recorded().await;
    traffic(context, name)
}
