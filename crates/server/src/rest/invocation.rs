//! Predictions whose path names no model: the query does, the start-up or the body.

use jitney_engine::store::Api;
use jitney_net::RequestBody;

use super::context::RequestContext;
use super::{inference, input, mounted, v1};
use crate::auth::{Gate, GuardedOperation};
use crate::errors::Problem;
use crate::plugins::Plugins;
use crate::respond::HttpResult;
use crate::route::{ModelRef, PathNames, PredictRoute};

/// A prediction by the model that the query, the start-up or the body names, in this order. A plugin
/// that authorizes requests is asked as soon as the model is known.
pub(super) async fn invoke(
    context: &RequestContext<'_>,
    plugins: Option<&Plugins>,
    body: RequestBody,
) -> HttpResult {
    invoke_as(context, plugins, body, false).await
}

/// The same where the body decides whether it is KServe's version 1, as on Vertex AI: one path takes both.
/// A model that reads requests itself gets them as they came.
pub(super) async fn invoke_by_body(
    context: &RequestContext<'_>,
    plugins: Option<&Plugins>,
    body: RequestBody,
) -> HttpResult {
    invoke_as(context, plugins, body, true).await
}

async fn invoke_as(
    context: &RequestContext<'_>,
    plugins: Option<&Plugins>,
    body: RequestBody,
    by_body: bool,
) -> HttpResult {
    let query = context.query();
    let sole = || context.state.engine.sole_startup_model().map(|model| model.name().to_owned());
    let known = query.text("model_name").map(str::to_owned).or_else(sole);
    let mut authorized = None;
    if let (Some(plugins), Some(name)) = (plugins, &known) {
        authorized = Some(inference::authorize_model(context, plugins, name).await?);
    }
    let body = context.read(body).await?;
    let name = match known {
        Some(name) => name,
        None => input::named_model(context.state.config.dialect, &context.parts.headers, &body)
            .await?
            .ok_or_else(|| Problem::bad_request("Parameter model_name is required."))?,
    };
    if let (Some(plugins), None) = (plugins, &authorized) {
        let _held = context.state.inference.hold(&name, body.len() as u64)?;
        authorized = Some(inference::authorize_model(context, plugins, &name).await?);
    }
    let context = authorized.as_ref().map_or(*context, |authorized| authorized.context(context));
    let target = ModelRef { model: &name, version: None };
    context.caller.check(Gate::Inference, GuardedOperation::Predict, Some(&name))?;
    let model = context.model_for(target)?;
    if let Some(rest) = model.api().filter(|_| by_body).and_then(raw_endpoint) {
        let names = PathNames { model: Some(&name), rest, ..PathNames::default() };
        return Box::pin(mounted::call(&context, RequestBody::whole(body), names)).await;
    }
    if by_body && v1::has_instances(&body) {
        let route = PredictRoute::new(target);
        return Box::pin(v1::predict(&context, RequestBody::whole(body), route)).await;
    }
    inference::run(&context, &model, PredictRoute::with_query(target), body.into()).await
}

/// The one endpoint of a model, if it gets requests as they came.
fn raw_endpoint(api: &Api) -> Option<&str> {
    let [only] = &*api.endpoints else { return None };
    api.http.raw.contains(only).then_some(only)
}
