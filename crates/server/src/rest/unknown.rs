//! What a client of `jitney serve` is told that asks for a path, a model or a method that is not there: where it
//! is, or what has nearly its name.
//!
//! Nobody is told of a model that its key may not use. Clients of TorchServe get TorchServe's words.

use std::borrow::Cow;

use jitney_engine::store::StoreError;
use jitney_net::Bind;
use jitney_settings::{Dialect, did_you_mean};

use super::context::RequestContext;
use super::endpoints::{Found, find};
use crate::auth::Gate;
use crate::errors::{ErrorCode, Problem};
use crate::route::{self, Apis, ModelRef};

/// Where all models are described.
const DOCS: &str = "GET /docs on the inference port lists the models and how to call them.";
/// What whoever starts the server can do about it.
const NO_STORE: &str =
    "Start the server with --model-store DIRECTORY: url then names a file in it.";

/// A path that no row of this listener has. Under `jitney serve` the answer says where it would be found.
pub(super) fn unknown_path(context: &RequestContext<'_>) -> Problem {
    let config = &context.state.config;
    if config.dialect == Dialect::TorchServe {
        return Problem::not_found();
    }
    let path = route::decode(context.parts.uri.path());
    let none = Apis::default();
    let listeners = [
        ("inference", Apis::PREDICTIONS, Some(&config.inference)),
        ("management", Apis { management: true, ..none }, Some(&config.management)),
        ("metrics", Apis { metrics: true, ..none }, config.metrics.as_ref()),
    ];
    let elsewhere = listeners.into_iter().find(|(_, apis, _)| is_elsewhere(context, *apis, &path));
    let place = match elsewhere {
        Some((name, _, Some(Bind::Tcp(at) | Bind::Tls(at)))) if at.port() != 0 => {
            format!(" It is on the {name} port, {}.", at.port())
        }
        Some((name, ..)) => format!(" It is on the {name} port."),
        None => String::new(),
    };
    let near = did_you_mean(&path, Found::fixed_paths(context.apis)).filter(|_| place.is_empty());
    let near = near.map(|hint| format!("; {hint}")).unwrap_or_else(|| ".".to_owned());
    Problem::new(
        ErrorCode::ResourceNotFound,
        format!("There is no {path} on this port{near}{place} {DOCS}"),
    )
}

/// Whether other APIs than this listener's have the path; of a model's own path, whether there is the model, and the
/// caller may use it.
fn is_elsewhere(context: &RequestContext<'_>, apis: Apis, path: &str) -> bool {
    let own = context.apis;
    let here = (apis.inference && own.inference)
        || (apis.management && own.management)
        || (apis.metrics && own.metrics);
    let found = find(apis, &context.parts.method, path);
    let ModelRef { model, version } = found.names.target();
    let operation = found.endpoint.operation;
    let is_there = || {
        context.caller.check(Gate::Inference, operation, Some(model)).is_ok()
            && context.state.engine.model(model, version).is_ok()
    };
    !here && !found.is_unknown() && (!found.endpoint.is_prediction() || is_there())
}

/// A problem in more words, where the request's path tells more: the nearest model, or the methods that the path takes.
pub(super) fn explained<'a>(
    context: &RequestContext<'_>,
    problem: &'a Problem,
    methods: &str,
) -> Cow<'a, Problem> {
    let message = if problem.message == StoreError::NotConfigured.to_string() {
        Some(format!("{} {NO_STORE}", problem.message))
    } else if problem.code == ErrorCode::ModelNotFound {
        nearest_model(context, &problem.message)
    } else if *problem == Problem::method_not_allowed() {
        let (method, path) = (&context.parts.method, context.parts.uri.path());
        Some(format!("{path} does not take {method}; it takes {methods}. {DOCS}"))
    } else {
        None
    };
    match message {
        Some(message) => Cow::Owned(Problem { message, ..problem.clone() }),
        None => Cow::Borrowed(problem),
    }
}

/// What is added where the path names a model that is not there. A plugin may keep models from a caller: then none
/// is named.
fn nearest_model(context: &RequestContext<'_>, message: &str) -> Option<String> {
    let path = route::decode(context.parts.uri.path());
    let Found { endpoint, names } = find(context.apis, &context.parts.method, &path);
    let asked = names.model.filter(|model| message.ends_with(model))?;
    let gate = endpoint.gate(context.apis);
    let guarded = context.state.parts.plugins.as_ref().is_some_and(|plugins| plugins.guarded());
    let models = context.state.engine.models();
    let usable =
        |name: &&str| !guarded && context.admit(gate, endpoint.operation, Some(name)).is_ok();
    let near = did_you_mean(asked, models.iter().map(|model| model.name()).filter(usable));
    let docs = if context.apis.natural { format!(" {DOCS}") } else { String::new() };
    match near {
        Some(hint) => Some(format!("{message}; {hint}{docs}")),
        None if docs.is_empty() => None,
        None => Some(format!("{message}.{docs}")),
    }
}
