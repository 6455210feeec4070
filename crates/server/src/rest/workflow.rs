//! `/wfpredict/{workflow}`: one request in, a walk through the workflow, one answer out.

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use jitney_engine::call::{Call, Origin, OriginKind};

use super::{claim, inference, input};
use crate::body::RequestBody;
use crate::errors::Problem;
use crate::listener::RequestContext;
use crate::respond::HttpResponse;
use crate::route::{ModelRef, PredictRoute};

/// Takes the request through the workflow. Dropped with the connection, and then no further node is asked.
pub(crate) async fn run(
    context: &RequestContext<'_>,
    body: RequestBody,
    name: &str,
) -> Result<HttpResponse, Problem> {
    let body = context.read(body).await?;
    let workflow = context.state.engine.workflow(name)?;
    let target = ModelRef { model: name, version: None };
    let route = PredictRoute {
        target,
        explain: None,
        url_path: None,
        query_counts: false,
        open_inference: false,
    };
    let headers = &context.parts.headers;
    let mut input = input::read(context.parts, &context.id, &route, body).await?;
    input.route.sequence = input::sequence(headers, context.state.engine.sequence_headers());
    let call = Call {
        input,
        deadline: inference::deadline(headers, context.started)?,
        priority: inference::priority(headers)?,
        claim: claim::read(headers)?,
        origin: Origin { kind: OriginKind::Http, peer: context.peer.number },
    };
    let mut reply = inference::reply_of(workflow.run(call).await?, None)?;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    Ok(reply)
}
