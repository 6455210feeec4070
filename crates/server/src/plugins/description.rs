//! What plugins answer about themselves and about requests, read strictly: an answer in another form is
//! an error.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{Origin, OriginKind};
use serde::Deserialize;

use super::call::{ApiKind, PluginCall, PluginRequest, call_plugin};
use crate::request_id::RequestUuid;

/// What a plugin offers.
#[derive(Debug)]
pub(super) struct PluginDescription {
    pub(super) endpoints: Vec<DeclaredEndpoint>,
    pub(super) authorize: bool,
}

/// A path that it answers.
#[derive(Debug)]
pub(super) struct DeclaredEndpoint {
    pub(super) path: String,
    pub(super) methods: Vec<Method>,
    pub(super) listener: ApiKind,
    pub(super) description: String,
}

#[derive(Deserialize)]
struct DescriptionJson {
    endpoints: Vec<EndpointJson>,
    authorize: bool,
}

#[derive(Deserialize)]
struct EndpointJson {
    path: String,
    methods: Vec<String>,
    listener: ApiKind,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct AuthorizationJson {
    allow: bool,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    message: String,
}

/// Asks a plugin what it offers.
pub(super) async fn describe(
    plugin: &Model,
    timeout: Duration,
) -> Result<PluginDescription, String> {
    let call = PluginCall {
        ask: "describe",
        endpoint: None,
        listener: ApiKind::Inference,
        body: Bytes::new(),
    };
    let (id, method, headers) = (RequestUuid::fresh(), Method::GET, HeaderMap::new());
    let request = PluginRequest {
        id: id.text(),
        method: &method,
        path: "",
        query: None,
        headers: &headers,
        client: "",
        origin: Origin { kind: OriginKind::Http, peer: 0 },
    };
    let answer = call_plugin(plugin, call, request, timeout).await;
    let answer = answer.map_err(|failure| failure.text().to_owned())?;
    read(&answer.output.body)
}

pub(super) fn read(body: &[u8]) -> Result<PluginDescription, String> {
    let said: DescriptionJson = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let endpoints = said.endpoints.into_iter().map(|said| {
        let EndpointJson { path, methods, listener, description } = said;
        let methods = methods.iter().map(|name| name.parse().map_err(|_| format!("method {name}")));
        let methods = methods.collect::<Result<_, String>>()?;
        Ok(DeclaredEndpoint { path, methods, listener, description })
    });
    Ok(PluginDescription {
        endpoints: endpoints.collect::<Result<_, String>>()?,
        authorize: said.authorize,
    })
}

/// Yes, or no with status and words; nothing if it is neither.
pub(super) fn verdict(body: &[u8]) -> Option<Result<(), (u16, String)>> {
    let AuthorizationJson { allow, status, message } = serde_json::from_slice(body).ok()?;
    match (allow, status) {
        (true, _) => Some(Ok(())),
        (false, 400..=499) => Some(Err((status, message))),
        (false, _) => None,
    }
}
