//! Predictions: one request in, one call to a model, one answer out.
//!
//! The hot path of the server. What the request says becomes a [`Call`]; what the model says becomes
//! the answer, with its receipt in `Server-Timing`. Nothing here waits for anything but the body and
//! the call, and both are dropped with the connection.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use jitney_engine::Model;
use jitney_engine::call::{Answer, AnswerStream, Call, Origin, OriginKind, Output, Priority};
use tokio::time::Instant;

use super::{claim, input, receipt};
use crate::body::RequestBody;
use crate::errors::{ErrorCode, FailedCall, Problem};
use crate::listener::RequestContext;
use crate::piecemeal::ResponseBody;
use crate::respond::{self, HttpResponse};
use crate::route::{ModelRef, PredictRoute};

/// How long the client finds an answer useful, in milliseconds from the arrival of the request's head.
const TIMEOUT: HeaderName = HeaderName::from_static("x-jitney-timeout-ms");
/// `interactive` (the default) or `bulk`.
const PRIORITY: HeaderName = HeaderName::from_static("x-jitney-priority");
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A prediction by the model that the path names.
pub(crate) async fn predict(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> Result<HttpResponse, Problem> {
    if body.large() {
        return Box::pin(predict_large(context, body, route)).await;
    }
    let body = context.read(body).await?;
    let model = context.state.engine.model(route.target.model, route.target.version)?;
    run(context, &model, route, body).await
}

/// The same with a body that takes a while to arrive: the model hears of it beforehand.
async fn predict_large(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> Result<HttpResponse, Problem> {
    let ModelRef { model: name, version } = route.target;
    // A model that is not there is said to be so after the body, as with small ones.
    let hearer = context.state.engine.model(name, version).ok();
    let origin = Origin { kind: OriginKind::Http, peer: context.peer.number };
    let announced = hearer.as_ref().and_then(|model| model.announce(origin));
    let body = context.read(body).await?;
    // Another version may answer by now.
    let model = context.state.engine.model(name, version)?;
    let reply = run(context, &model, route, body).await?;
    if let Some(announced) = announced {
        announced.came();
    }
    Ok(reply)
}

/// A prediction by the model that the query, the start-up or the body names, in this order.
pub(crate) async fn invoke(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> Result<HttpResponse, Problem> {
    let body = context.read(body).await?;
    let query = context.query();
    let engine = &context.state.engine;
    let model = match (query.text("model_name"), engine.sole_startup_model()) {
        (Some(name), _) => engine.model(name, None)?,
        (None, Some(model)) => model,
        (None, None) => {
            let name = input::named_model(&context.parts.headers, &body).await?;
            let name =
                name.ok_or_else(|| Problem::bad_request("Parameter model_name is required."))?;
            engine.model(&name, None)?
        }
    };
    let target = ModelRef { model: model.name(), version: None };
    let route = PredictRoute {
        target,
        explain: None,
        url_path: None,
        query_counts: true,
        open_inference: false,
    };
    run(context, &model, route, body).await
}

async fn run(
    context: &RequestContext<'_>,
    model: &Model,
    route: PredictRoute<'_>,
    body: Bytes,
) -> Result<HttpResponse, Problem> {
    let headers = &context.parts.headers;
    let mut input = input::read(context.parts, &context.id, &route, body).await?;
    if let Some(names) = model.sequence_headers() {
        input.route.sequence = input::sequence(headers, &names);
    }
    let call = Call {
        input,
        deadline: deadline(headers, context.started)?,
        priority: priority(headers)?,
        claim: claim::read(headers)?,
        origin: Origin { kind: OriginKind::Http, peer: context.peer.number },
    };
    let (meter, version_named) = (&context.state.config.meter, route.target.version.is_some());
    meter.asked(model, version_named);
    match model.call(call).await {
        Ok(answer) => {
            let (queue, compute) = (answer.timing.queue, answer.timing.compute);
            meter.answered(model, version_named, queue, queue + compute);
            reply(answer)
        }
        Err(error) => {
            let ModelRef { model: name, version } = route.target;
            let queue_max = model.settings().waiting_max();
            let asked = FailedCall { model: name, version, purpose: "inference", queue_max };
            Err(asked.problem(&error))
        }
    }
}

pub(crate) fn deadline(headers: &HeaderMap, started: Instant) -> Result<Option<Instant>, Problem> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let millis: Option<u64> = value.to_str().ok().and_then(|text| text.parse().ok());
    let millis = millis.ok_or_else(|| {
        Problem::bad_request("Header x-jitney-timeout-ms must be a whole number of milliseconds.")
    })?;
    Ok(started.checked_add(Duration::from_millis(millis)))
}

pub(crate) fn priority(headers: &HeaderMap) -> Result<Priority, Problem> {
    match headers.get(PRIORITY).map(HeaderValue::as_bytes) {
        None | Some(b"interactive") => Ok(Priority::Interactive),
        Some(b"bulk") => Ok(Priority::Bulk),
        Some(_) => {
            Err(Problem::bad_request("Header x-jitney-priority must be interactive or bulk."))
        }
    }
}

pub(crate) fn reply(answer: Answer) -> Result<HttpResponse, Problem> {
    let Answer { output, timing, stream } = answer;
    let mut reply = reply_of(output, stream)?;
    reply.headers_mut().insert(SERVER_TIMING, receipt::header(&timing));
    Ok(reply)
}

/// What a handler said, and what it still says.
pub(super) fn reply_of(
    output: Output,
    rest: Option<AnswerStream>,
) -> Result<HttpResponse, Problem> {
    let Output { status, headers, body } = output;
    let mut reply = HttpResponse::new(ResponseBody::new(body, rest));
    match status {
        None => {}
        Some((code @ 200..=999, phrase)) => respond::set_status(&mut reply, code, &phrase),
        Some((code, _)) => {
            let message = format!("The handler set status {code}, which ends no request.");
            return Err(Problem::new(ErrorCode::Internal, message));
        }
    }
    reply.headers_mut().reserve(headers.len() + 8);
    for (name, value) in &headers {
        add(reply.headers_mut(), name, value);
    }
    Ok(reply)
}

/// Adds a header that the handler set, unless it would break the answer.
fn add(headers: &mut HeaderMap, name: &str, value: &str) {
    let framing = [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        (Ok(known), Ok(value)) if !framing.contains(&known) && known != "keep-alive" => {
            headers.append(known, value);
        }
        _ => tracing::debug!(name, "header of the handler left out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_headers_of_a_handler_are_left_out() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("X-Exam-One", "1"),
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("connection", "close"),
            ("Keep-Alive", "1"),
            ("bad name", "1"),
            ("x-bad-value", "a\r\nInjected: 1"),
            ("x-text", "gr\u{fc}n"),
        ] {
            add(&mut headers, name, value);
        }
        let kept: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(kept, ["x-exam-one", "content-type", "x-text"]);
    }

    #[test]
    fn the_clients_own_wishes_are_read_or_refused() {
        let header = |name, value| HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        let now = Instant::now();
        assert!(deadline(&HeaderMap::new(), now).unwrap().is_none());
        let soon = Some(now + Duration::from_millis(250));
        assert_eq!(deadline(&header(TIMEOUT, "250"), now).unwrap(), soon);
        assert!(deadline(&header(TIMEOUT, "soon"), now).is_err());
        assert!(deadline(&header(TIMEOUT, "-1"), now).is_err());
        assert_eq!(priority(&HeaderMap::new()).unwrap(), Priority::Interactive);
        assert_eq!(priority(&header(PRIORITY, "bulk")).unwrap(), Priority::Bulk);
        assert!(priority(&header(PRIORITY, "urgent")).is_err());
    }
}
