//! Asks the plugin that authorizes requests, with what the router found out about them.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use jitney_engine::Model;

use super::context::RequestContext;
use crate::auth::GuardedOperation;
use crate::errors::Problem;
use crate::keys::Caller;
use crate::plugins::{ApiKind, CallGuard, Intent, PluginRequest, Plugins};
use crate::query::RequestFields;
use crate::route::{self, PathNames};

/// What the plugin's yes is for.
pub(super) struct Authorized {
    /// The caller with the tenant that the plugin named, if it did.
    caller: Option<Caller>,
    model: Option<Arc<Model>>,
}

impl Authorized {
    /// The request as it goes on.
    pub(super) fn context<'a>(&'a self, asked: &RequestContext<'a>) -> RequestContext<'a> {
        let caller = self.caller.as_ref().unwrap_or(asked.caller);
        RequestContext { caller, authorized: self.model.as_ref(), ..*asked }
    }
}

/// Authorizes a request.
///
/// # Errors
/// The plugin denied it, or gave no clear answer.
pub(super) async fn authorize(
    context: &RequestContext<'_>,
    plugins: &Plugins,
    listener: ApiKind,
    intent: Intent<'_>,
) -> Result<Authorized, Problem> {
    let path = path(context);
    let request = plugin_request(context, &path);
    let tenant = plugins.authorize(request, listener, &intent).await?;
    let caller = tenant.map(|tenant| context.caller.of_tenant(&tenant));
    Ok(Authorized { caller, model: intent.model })
}

/// What a request is about to do; nothing for what everybody may read. The query of a request for
/// scaling may name the version.
pub(super) fn intent<'a>(
    context: &RequestContext<'_>,
    operation: GuardedOperation,
    mut names: PathNames<'a>,
    query: &'a RequestFields,
) -> Option<Intent<'a>> {
    if operation == GuardedOperation::Scale {
        names.version = names.version.or_else(|| query.text("model_version"));
    }
    let mut intent = Intent::of(operation, &names, &context.state.engine)?;
    if operation.predicts() && intent.model.is_some() {
        intent.model = context.model_for(names.target()).ok();
    }
    Some(intent)
}

/// Who authorizes the calls of a handle, each by itself.
pub(super) fn call_guard(context: &RequestContext<'_>) -> Option<Arc<CallGuard>> {
    let plugins = context.state.parts.plugins.as_ref().filter(|plugins| plugins.guarded())?;
    let Parts { method, uri, headers, .. } = context.parts;
    Some(Arc::new(CallGuard {
        plugins: Arc::clone(plugins),
        listener: ApiKind::Inference,
        method: method.clone(),
        path: path(context).into_owned(),
        query: uri.query().map(str::to_owned),
        headers: headers.clone(),
        client: context.peer.address.clone(),
        origin: context.origin(),
    }))
}

/// The path by which the server routes: decoded, without slashes at its end.
fn path<'a>(context: &RequestContext<'a>) -> Cow<'a, str> {
    let trimmed = |path: &str| path.trim_end_matches('/').len().max(1);
    match route::decode(context.parts.uri.path()) {
        Cow::Borrowed(path) => Cow::Borrowed(&path[..trimmed(path).min(path.len())]),
        Cow::Owned(mut path) => {
            path.truncate(trimmed(&path));
            Cow::Owned(path)
        }
    }
}

/// The request as a plugin sees it.
pub(super) fn plugin_request<'a>(
    context: &'a RequestContext<'_>,
    path: &'a str,
) -> PluginRequest<'a> {
    let Parts { method, uri, headers, .. } = context.parts;
    PluginRequest {
        id: context.id.text(),
        method,
        path,
        query: uri.query(),
        headers,
        client: &context.peer.address,
        origin: context.origin(),
    }
}
