//! `/wfpredict/{workflow}`: one request in, a walk through the workflow, one answer out.

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use jitney_engine::call::{Call, Origin, OriginKind};

use super::{claim, inference, input};
use crate::body::Upload;
use crate::door::Visit;
use crate::errors::Problem;
use crate::respond::Reply;
use crate::route::{Ride, Target};

/// Takes the request through the workflow. Dropped with the connection, and then no further node is asked.
pub(crate) async fn run(visit: &Visit<'_>, body: Upload, name: &str) -> Result<Reply, Problem> {
    let body = visit.read(body).await?;
    let workflow = visit.house.engine.workflow(name)?;
    let target = Target { model: name, version: None };
    let ride =
        Ride { target, explain: None, url_path: None, query_counts: false, open_inference: false };
    let headers = &visit.parts.headers;
    let call = Call {
        deadline: inference::deadline(headers, visit.started)?,
        priority: inference::priority(headers)?,
        claim: claim::read(headers)?,
        input: input::read(visit.parts, &visit.id, &ride, body).await?,
        origin: Origin { kind: OriginKind::Http, peer: visit.peer.number },
        alone: false,
    };
    let mut reply = inference::reply_of(workflow.run(call).await?, None)?;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    Ok(reply)
}
