//! Models over REST: register, list, describe, make the default, unregister.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use jitney_engine::ReplaceOrder;
use jitney_engine::settings::RegisterOptions;
use jitney_net::RequestBody;
use jitney_settings::{Dialect, from_parameters};

use crate::errors::{ErrorCode, Problem};
use crate::management::{self, Notice};
use crate::query::RequestFields;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::rest::context::RequestContext;
use crate::rest::input;
use crate::route::ModelRef;
use crate::state::{RoomShortage, ServerState};

/// `GET /models`.
pub(crate) fn list(context: &RequestContext<'_>) -> HttpResponse {
    let fields = context.query();
    let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
    respond::json(StatusCode::OK, &management::list(&context.state.engine, limit, start))
}

/// `GET /models/{m}`. SageMaker, where it manages models on the port for predictions, asks only for name and place.
pub(crate) async fn describe(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let state = context.state;
    if context.apis.sagemaker && state.config.dialect == Dialect::Jitney {
        let model = state.engine.model(target.model, target.version)?;
        return Ok(respond::json(StatusCode::OK, &management::entry(&model)));
    }
    let customized = context.query().boolean("customized", false);
    let caller = customized.then_some((context.id.text(), context.origin()));
    let described = management::describe(context.state, target, caller).await?;
    Ok(respond::json(StatusCode::OK, &described))
}

/// `GET /models/{m}/batching`.
pub(crate) async fn batching(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let report = management::batching(&context.state.engine, target).await?;
    Ok(respond::json(StatusCode::OK, &report))
}

/// `GET /models/{m}/requests`.
pub(crate) fn requests(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    Ok(respond::json(StatusCode::OK, &management::requests(&context.state.engine, target)?))
}

/// `GET /models/{m}/{v}/requests/{id}/body`. Its type is not told, so that no browser runs it as a page.
pub(crate) fn failed_body(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
    id: &str,
) -> HttpResult {
    let body = management::failed_body(&context.state.engine, target, id)?;
    let mut reply = respond::plain(StatusCode::OK, body);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(reply)
}

/// `GET /models/{m}/statistics`.
pub(crate) fn statistics(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let statistics = management::statistics(&context.state.engine, target)?;
    Ok(respond::json(StatusCode::OK, &statistics))
}

/// Makes another version the default.
pub(crate) fn set_default(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let version = target.version.unwrap_or_default();
    management::set_default(&context.state.engine, target.model, version).map(notice)
}

/// Removes a version, the default one if none is named.
pub(crate) async fn unregister(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    need_model_api(context)?;
    note_memory(context.state, target);
    management::unregister(&context.state.engine, target).await.map(notice)
}

pub(super) fn need_model_api(context: &RequestContext<'_>) -> Result<(), Problem> {
    if context.state.config.model_api { Ok(()) } else { Err(Problem::method_not_allowed()) }
}

/// A change that goes on is 202.
pub(super) fn notice(notice: Notice) -> HttpResponse {
    let status = if notice.in_progress { StatusCode::ACCEPTED } else { StatusCode::OK };
    respond::status(status, &notice.text)
}

/// Registers a model. `synchronous` (the default) waits until its workers are loaded.
pub(crate) async fn register(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> Result<HttpResponse, Problem> {
    need_model_api(context)?;
    let fields = fields(context, body).await?;
    let options = options(&fields)?;
    let synchronous = fields.boolean("synchronous", true);
    let replaces = replaces(&fields)?;
    check_room(context.state, &options).await?;
    management::register(context.state, options, synchronous, replaces).await.map(notice)
}

/// Whether the model takes the place of another of its name, and which of the two comes first.
fn replaces(fields: &RequestFields) -> Result<Option<ReplaceOrder>, Problem> {
    match fields.text("replace") {
        None | Some("" | "false") => Ok(None),
        Some("true") => Ok(Some(ReplaceOrder::LoadFirst)),
        Some("stop") => Ok(Some(ReplaceOrder::StopFirst)),
        Some(other) => Err(Problem::bad_request(format!(
            "replace must be true (the old version ends when the new one is ready), stop (it ends first) or false, not \"{other}\"."
        ))),
    }
}

/// A name that is taken is another mistake, which the registration tells.
async fn check_room(state: &ServerState, options: &RegisterOptions) -> Result<(), Problem> {
    let Some(room) = state.parts.room.clone() else { return Ok(()) };
    let name = options.model_name.as_deref().unwrap_or_default();
    if state.engine.model(name, None).is_ok() {
        return Ok(());
    }
    let url = options.url.clone();
    // It cannot panic; and what was not looked at is not in the way.
    let looked = tokio::task::spawn_blocking(move || room.shortage(&url)).await.unwrap_or(None);
    let Some(RoomShortage { needed, free, kept }) = looked else { return Ok(()) };
    let [needed, free, kept] = [needed, free, kept].map(|bytes| bytes >> 20);
    let message = format!(
        "There is no memory for the model: it needs about {needed} MiB, {free} MiB are free, and {kept} MiB of \
         them are kept. Unload other models, or take a larger machine. [reason: memory]"
    );
    Err(Problem::new(ErrorCode::LoadOutOfMemory, message))
}

/// What the model's workers hold now is what it will need when it is loaded again.
fn note_memory(state: &ServerState, target: ModelRef<'_>) {
    let Some(room) = &state.parts.room else { return };
    let Ok(model) = state.engine.model(target.model, target.version) else { return };
    let pids = model.status().workers.into_iter().filter_map(|worker| worker.pid);
    room.note(&model.identity().url, pids.filter_map(|pid| state.parts.meter.memory(pid)).sum());
}

/// A JSON body replaces the query; any other body is ignored.
pub(super) async fn fields(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> Result<RequestFields, Problem> {
    if input::mime(&context.parts.headers) != "application/json" {
        return Ok(context.query());
    }
    RequestFields::from_json(&context.read(body).await?).map_err(Problem::bad_request)
}

/// What the caller gives.
fn options(fields: &RequestFields) -> Result<RegisterOptions, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let url = text("url").ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    Ok(RegisterOptions {
        url,
        model_name: text("model_name"),
        handler: text("handler"),
        runtime: text("runtime"),
        settings: from_parameters(|name| fields.text(name), false).map_err(Problem::bad_request)?,
        sha256: fields.text("sha256").map(str::parse).transpose().map_err(Problem::bad_request)?,
        s3_sse_kms: fields.boolean("s3_sse_kms", false),
        ..RegisterOptions::default()
    })
}

#[cfg(test)]
mod register_tests {
    use super::*;
    use jitney_settings::model::{
        MAX_BATCH_DELAY, MAX_BATCH_SIZE, MAX_LATENCY_MS, POLICY, RESPONSE_TIMEOUT, SIZES,
        STARTUP_TIMEOUT, WORKERS,
    };

    fn read(query: &str) -> Result<RegisterOptions, Problem> {
        options(&RequestFields::from_query(Some(query)))
    }

    #[test]
    fn every_parameter_reaches_the_engine() {
        let options = read(
            "url=a.mar&model_name=m&handler=h:f&runtime=python3&batch_size=8&max_batch_delay=0\
             &max_latency_ms=50&policy=adaptive&sizes=1,2,8&initial_workers=2&response_timeout=33&startup_timeout=0",
        )
        .unwrap();
        assert_eq!((options.url.as_str(), options.model_name.as_deref()), ("a.mar", Some("m")));
        assert_eq!(
            (options.handler.as_deref(), options.runtime.as_deref()),
            (Some("h:f"), Some("python3"))
        );
        let expected = [
            (&WORKERS, "2"),
            (&MAX_BATCH_SIZE, "8"),
            (&MAX_BATCH_DELAY, "0"),
            (&MAX_LATENCY_MS, "50"),
            (&POLICY, "adaptive"),
            (&SIZES, "1,2,8"),
            (&RESPONSE_TIMEOUT, "33"),
            (&STARTUP_TIMEOUT, "0"),
        ];
        for (setting, value) in expected {
            assert_eq!(options.settings.show(setting).as_deref(), Some(value));
        }
        assert!(!options.at_startup);
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_set() {
        let options = read(
            "url=&batch_size=many&max_batch_delay=-100&response_timeout=1.5&initial_workers=two",
        )
        .unwrap();
        assert_eq!(options.url, "", "an empty url is the store's to refuse");
        assert!(options.settings.is_empty());
        assert!(read("url=a&batch_size=-1").unwrap().settings.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (query, message) in [
            ("", "Parameter url is required."),
            (
                "url=a&policy=magic",
                "policy must be one of adaptive, window, opportunistic, not \"magic\"",
            ),
        ] {
            let problem = read(query).unwrap_err();
            assert_eq!((problem.status, problem.message.as_str()), (400, message));
        }
    }
}
