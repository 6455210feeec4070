//! Version 1 of KServe's protocol, and what OpenAI's clients ask for under the same paths: the models.
//!
//! A client sends `{"instances": [...]}` and gets `{"predictions": [...]}`. Every instance is an item: a
//! request of its own for archives and definitions that take one value at a time, a row for models that
//! take arrays. An archive with an envelope reads the body itself, and so does every archive in
//! TorchServe's dialect.

mod instances;
mod predictions;

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use jitney_engine::Model;
use jitney_engine::call::Answer;
use jitney_engine::store::{Api, ValueForm};
use jitney_net::RequestBody;
use jitney_settings::Dialect;
use serde_json::json;

use self::instances::{InstanceRule, Instances};
use super::context::RequestContext;
use super::{fan_out, inference};
use crate::errors::Problem;
use crate::health::is_model_ready;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{ModelRef, PredictRoute};
use crate::state::ServerState;
use crate::timing::{self, SERVER_TIMING};

/// The endpoint of a definition that explains.
const EXPLAIN: &str = "explain";

/// `/v1/models/{m}:predict` and `:explain`.
pub(super) async fn predict(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> HttpResult {
    let dialect = context.state.config.dialect;
    let model = context.model_for(route.target);
    let reads_itself = |model: &Arc<Model>| {
        let archive = model.api().is_none() && model.tag().python;
        model.settings().declared.envelope.is_some() || archive && dialect == Dialect::TorchServe
    };
    match model {
        Ok(model) if !reads_itself(&model) => instances(context, &model, route, body).await,
        Ok(_) | Err(_) => inference::predict(context, body, route).await,
    }
}

/// Whether a body is a JSON object with a list of instances.
pub(super) fn has_instances(body: &Bytes) -> bool {
    Instances::read(body).is_ok()
}

/// How a model is given instances.
enum InstanceForm {
    /// Each by itself.
    Each(InstanceRule),
    /// All together: the rows of these inputs.
    Rows(Vec<String>),
}

async fn instances(
    context: &RequestContext<'_>,
    model: &Arc<Model>,
    mut route: PredictRoute<'_>,
    body: RequestBody,
) -> HttpResult {
    let body = context.read(body).await?;
    let explains = route.explain == Some(true);
    if explains && (model.api().is_some() || !model.tag().python) {
        let has = |api: &Api| api.endpoints.iter().any(|endpoint| endpoint == EXPLAIN);
        if !model.api().is_some_and(has) {
            return Err(Problem::bad_request(format!(
                "The model {:?} gives no explanations: it has no endpoint {EXPLAIN:?}.",
                model.name()
            )));
        }
        (route.explain, route.url_path) = (Some(false), Some(EXPLAIN));
    }
    let wrong = |reason: String| {
        Problem::bad_request(format!("The request to the model {:?}: {reason}.", model.name()))
    };
    let instances = Instances::read(&body).map_err(wrong)?;
    let key = if explains { "explanations" } else { "predictions" };
    let form = form_of(model, route.url_path, &instances);
    let (body, answers) = match form {
        InstanceForm::Each(rule) => {
            let values = instances.each(rule).map_err(wrong)?;
            let answers = fan_out::call_each(context, model, &route, values).await?;
            (predictions::of_each(key, &answers), answers)
        }
        InstanceForm::Rows(_) if instances.is_empty() => (predictions::of_each(key, &[]), vec![]),
        InstanceForm::Rows(names) => {
            let value = instances.rows(&names).map_err(wrong)?;
            let value = crate::inference::body_parameter("application/json", value);
            let answers = fan_out::call_each(context, model, &route, vec![value]).await?;
            let body = answers.first().map(|answer| &answer.output.body);
            (predictions::of_rows(key, body.unwrap_or(&Bytes::new()), instances.len()), answers)
        }
    };
    Ok(reply(body, &answers))
}

/// An answer in JSON with the timing of what took longest.
pub(super) fn reply(body: Vec<u8>, answers: &[Answer]) -> HttpResponse {
    let mut reply = respond::plain(StatusCode::OK, Bytes::from(body));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(timing) = fan_out::longest(answers) {
        headers.insert(SERVER_TIMING, timing::header(timing));
    }
    reply
}

/// Rows for a model that takes arrays, unless the instances are what a model prepares by itself: files in
/// base64, or texts where no input takes texts.
fn form_of(model: &Model, endpoint: Option<&str>, instances: &Instances<'_>) -> InstanceForm {
    if let Some(api) = model.api() {
        let names = array_params(api, endpoint);
        let each = InstanceForm::Each(InstanceRule::Json);
        return names.map_or(each, InstanceForm::Rows);
    }
    let signature = model.signature().filter(|_| !model.tag().python);
    let Some(signature) = signature else { return InstanceForm::Each(InstanceRule::Named) };
    let texts = signature.inputs.iter().any(|input| input.datatype.width().is_none());
    if instances.are_files() || instances.are_texts() && !texts {
        return InstanceForm::Each(InstanceRule::Plain);
    }
    InstanceForm::Rows(signature.inputs.iter().map(|input| input.name.clone()).collect())
}

/// The parameters of an endpoint whose arrays hold the rows of a request, if it has any.
fn array_params(api: &Api, endpoint: Option<&str>) -> Option<Vec<String>> {
    let only = (api.endpoints.len() == 1).then(|| api.endpoints.first()).flatten();
    let named = |name: &str| api.endpoints.iter().find(|known| *known == name);
    let default = || only.or_else(|| named("call")).or_else(|| named("predict"));
    let endpoint = endpoint.and_then(named).or_else(default)?;
    let sizes = api.sizes.get(endpoint)?;
    let is_array = |form| matches!(form, ValueForm::Array | ValueForm::Frame);
    let arrays = sizes.params.iter().any(|param| param.rows && is_array(param.form));
    arrays.then(|| sizes.params.iter().map(|param| param.name.clone()).collect())
}

/// `GET /`, as KServe's clients ask whether a server lives, and where people begin to look.
pub(super) fn alive() -> HttpResponse {
    respond::json(StatusCode::OK, &json!({ "status": "alive", "docs": "/docs" }))
}

/// `GET /v1/models`: one body for KServe's clients and for OpenAI's.
pub(super) fn models(state: &ServerState) -> HttpResponse {
    let models = state.engine.models();
    let data: Vec<_> = models.iter().map(|model| card(state, model.name())).collect();
    let names: Vec<_> = models.iter().map(|model| model.name()).collect();
    respond::json(StatusCode::OK, &json!({ "object": "list", "data": data, "models": names }))
}

/// A model as OpenAI's clients read it.
fn card(state: &ServerState, name: &str) -> serde_json::Value {
    json!({ "id": name, "object": "model", "created": state.started, "owned_by": "jitney" })
}

/// `GET /v1/models/{m}`: 503 while it is not ready, except in TorchServe's dialect.
pub(super) fn model(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let state = context.state;
    let model = state.engine.model(target.model, target.version)?;
    if state.config.dialect == Dialect::TorchServe {
        let ready = is_model_ready(&state.engine, &model);
        return Ok(respond::json(StatusCode::OK, &json!({ "name": target.model, "ready": ready })));
    }
    let ready = is_model_ready(&state.engine, &model);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = card(state, target.model);
    (body["name"], body["ready"]) = (json!(target.model), json!(ready));
    if !ready {
        body["error"] =
            json!(format!("The model {:?} is not ready: {}", target.model, model.readiness()));
    }
    Ok(respond::json(status, &body))
}
