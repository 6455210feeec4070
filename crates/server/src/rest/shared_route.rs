//! A path that several models have, such as `/rerank`: the body's `model` chooses among them. One that only one model
//! has needs no such field and never comes here.

use std::borrow::Cow;

use jitney_net::RequestBody;
use serde::Deserialize;

use super::context::RequestContext;
use super::{embeddings, inference, mounted};
use crate::auth::{Gate, GuardedOperation};
use crate::errors::{ErrorCode, Problem};
use crate::plugins::Plugins;
use crate::respond::HttpResult;
use crate::route::PathNames;

#[derive(Deserialize)]
struct RouteBody<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
}

/// A request of the path that is named here as the mount. A plugin that authorizes requests is asked as soon as the
/// model is known.
pub(super) async fn call(
    context: &RequestContext<'_>,
    plugins: Option<&Plugins>,
    body: RequestBody,
    path: &str,
) -> HttpResult {
    let body = context.read(body).await?;
    let paths = context.state.engine.paths();
    let models = paths.as_deref().map(|paths| paths.sharers(path)).unwrap_or_default();
    let shown = || {
        let mut names = Vec::from_iter(models.iter().map(|target| &*target.model));
        names.sort_unstable();
        names.join(", ")
    };
    let chosen = serde_json::from_slice::<RouteBody<'_>>(&body)
        .map_err(|error| {
            Problem::bad_request(format!("The request body is no JSON object: {error}."))
        })
        .and_then(|named| {
            named.model.ok_or_else(|| {
                let all = shown();
                Problem::bad_request(format!(
                    "The request names no model: {path} belongs to several, so the body needs the field model. They \
                     are {all}."
                ))
            })
        })
        .and_then(|name| {
            models.iter().find(|target| *target.model == *name).ok_or_else(|| {
                let all = shown();
                let message =
                    format!("The model {name:?} does not answer {path}. Those that do are {all}.");
                Problem::new(ErrorCode::ModelNotFound, message)
            })
        });
    let target = match chosen {
        Ok(target) => target,
        Err(problem) => return Ok(embeddings::failed(&problem)),
    };
    context.caller.check(Gate::Inference, GuardedOperation::Predict, Some(&target.model))?;
    let mut authorized = None;
    if let Some(plugins) = plugins {
        let _held = context.state.inference.hold(&target.model, body.len() as u64)?;
        authorized = Some(inference::authorize_model(context, plugins, &target.model).await?);
    }
    let context = authorized.as_ref().map_or(*context, |authorized| authorized.context(context));
    let names = PathNames {
        model: Some(&target.model),
        rest: &target.endpoint,
        mount: &target.path,
        ..PathNames::default()
    };
    mounted::run(&context, body.into(), names).await
}
