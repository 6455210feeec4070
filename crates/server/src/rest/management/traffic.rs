//! `/models/{m}/traffic`: how versions of a model share the requests that name none.

use http::StatusCode;
use jitney_engine::traffic_split::TrafficSplit;
use jitney_net::RequestBody;

use crate::errors::Problem;
use crate::respond::{self, HttpResult};
use crate::rest::context::RequestContext;

/// `GET`: the shares, also where one version has everything.
pub(crate) fn traffic(context: &RequestContext<'_>, name: &str) -> HttpResult {
    let engine = &context.state.engine;
    let default = engine.model(name, None)?;
    let split = engine.traffic(name)?.map(|split| TrafficSplit::clone(&split));
    let split = split.unwrap_or_else(|| TrafficSplit::whole(default.version()));
    Ok(respond::json(StatusCode::OK, &split))
}

/// `PUT`: other shares, at once.
pub(crate) async fn set_traffic(
    context: &RequestContext<'_>,
    body: RequestBody,
    name: &str,
) -> HttpResult {
    let body = context.read(body).await?;
    let split = String::from_utf8_lossy(&body).parse().map_err(Problem::bad_request)?;
    context.state.engine.set_traffic(name, Some(split))?;
    traffic(context, name)
}

/// `DELETE`: the default version answers again.
pub(crate) fn end_traffic(context: &RequestContext<'_>, name: &str) -> HttpResult {
    context.state.engine.set_traffic(name, None)?;
    traffic(context, name)
}
