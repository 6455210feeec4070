//! `/logs` and `/log-level`: the last lines of the log, new ones as they come, and what is logged.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use jitney_net::events::{self, EVENT_STREAM};
use jitney_net::{RequestBody, ResponseBody};
use jitney_telemetry::log_book::{FoundLines, LINES_MAX, LineFilter, LogBook};
use serde::Deserialize;
use serde_json::json;
use tracing::Level;

use super::context::RequestContext;
use crate::errors::Problem;
use crate::query::RequestFields;
use crate::respond::{self, HttpResponse, HttpResult};

/// Lines of `GET /logs` where the client does not say how many.
const LINES: usize = 200;

/// Tells nginx to pass on every event at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The body of `PUT /log-level`.
#[derive(Deserialize)]
struct LevelBody {
    level: String,
}

/// `GET /logs`.
pub(super) fn last(context: &RequestContext<'_>) -> HttpResult {
    let fields = context.query();
    let found = book(context)?.last(&filter(&fields)?, lines(&fields, LINES)?);
    let FoundLines { lines, dropped } = found;
    let lines: Vec<&str> = lines.iter().map(|line| line.json()).collect();
    let body = [r#"{"lines":["#, &lines.join(",\n"), r#"],"dropped":"#, &dropped.to_string(), "}"];
    let mut reply = respond::plain(StatusCode::OK, Bytes::from(body.concat()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(reply)
}

/// `GET /logs/stream`.
pub(super) fn follow(context: &RequestContext<'_>) -> HttpResult {
    let fields = context.query();
    let (first, rest) = book(context)?.follow(filter(&fields)?, lines(&fields, 0)?)?;
    let overview = Arc::clone(&context.state.overview);
    let closing = Box::pin(async move { overview.closing().await });
    let rest = rest.take_until(closing).chain(stream::iter([events::end()]));
    let mut reply = HttpResponse::new(ResponseBody::pieces(first, rest.map(Ok)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(reply)
}

/// `GET /log-level`.
pub(super) fn level(context: &RequestContext<'_>) -> HttpResult {
    Ok(respond::json(StatusCode::OK, &json!({"level": book(context)?.level()})))
}

/// `PUT /log-level`.
pub(super) async fn set_level(context: &RequestContext<'_>, body: RequestBody) -> HttpResult {
    let book = book(context)?;
    let body = context.read(body).await?;
    let wanted: LevelBody = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request(format!("The body must be a JSON object with a level: {error}."))
    })?;
    book.set_level(&wanted.level).map_err(Problem::bad_request)?;
    level(context)
}

fn book<'a>(context: &RequestContext<'a>) -> Result<&'a LogBook, Problem> {
    context.state.parts.log_book.as_deref().ok_or_else(Problem::not_found)
}

fn filter(fields: &RequestFields) -> Result<LineFilter, Problem> {
    let level = fields.text("level").map(|text| text.parse::<Level>().map_err(|_| text));
    let level = level.transpose().map_err(|text| {
        Problem::bad_request(format!(
            "level must be one of error, warn, info, debug, trace, not \"{text}\"."
        ))
    })?;
    let model = fields.text("model").map(str::to_owned);
    Ok(LineFilter::new(level.unwrap_or(Level::TRACE), model, fields.text("contains")))
}

fn lines(fields: &RequestFields, usual: usize) -> Result<usize, Problem> {
    let Some(text) = fields.text("lines") else { return Ok(usual) };
    let wrong = || format!("lines must be a whole number from 0 to {LINES_MAX}, not \"{text}\".");
    let number = text.parse().ok().filter(|number| *number <= LINES_MAX);
    number.ok_or_else(|| Problem::bad_request(wrong()))
}
