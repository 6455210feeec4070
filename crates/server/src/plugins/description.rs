//! What plugins answer about themselves and about requests, read strictly: an answer in another form is
//! an error.

use std::time::Duration;

use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{Origin, OriginKind};
use jitney_net::request_id::XRequestId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::call::{ApiKind, PluginCall, PluginRequest, call_plugin};
use crate::request_options::is_tenant;

/// What a plugin offers.
#[derive(Debug, Deserialize)]
pub(super) struct PluginDescription {
    pub(super) endpoints: Vec<DeclaredEndpoint>,
    pub(super) authorize: bool,
}

/// A path that it answers.
#[derive(Debug, Deserialize)]
pub(super) struct DeclaredEndpoint {
    pub(super) path: String,
    #[serde(deserialize_with = "methods")]
    pub(super) methods: Vec<Method>,
    pub(super) listener: ApiKind,
    #[serde(default)]
    pub(super) description: String,
}

fn methods<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<Method>, D::Error> {
    let names = Vec::<String>::deserialize(names)?;
    let method =
        |name: &String| name.parse().map_err(|_| D::Error::custom(format!("method {name}")));
    names.iter().map(method).collect()
}

#[derive(Deserialize)]
struct AuthorizationJson {
    allow: bool,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    tenant: Option<Box<str>>,
}

/// Asks a plugin what it offers.
pub(super) async fn describe(
    plugin: &Model,
    timeout: Duration,
) -> Result<PluginDescription, String> {
    let (id, method, headers) = (XRequestId::fresh(), Method::GET, HeaderMap::new());
    let request = PluginRequest {
        id: id.text(),
        method: &method,
        path: "",
        query: None,
        headers: &headers,
        client: "",
        origin: Origin { kind: OriginKind::Http, peer: 0 },
    };
    let call = PluginCall::new("describe");
    let answer = call_plugin(plugin, call, request, timeout).await;
    let answer = answer.map_err(|failure| failure.text().to_owned())?;
    read(&answer.output.body)
}

pub(super) fn read(body: &[u8]) -> Result<PluginDescription, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Allowed, perhaps for a tenant, or denied with status and message.
pub(super) type Verdict = Result<Option<Box<str>>, (u16, String)>;

/// What a plugin decided; nothing if that is not clear.
pub(super) fn verdict(body: &[u8]) -> Option<Verdict> {
    let AuthorizationJson { allow, status, message, tenant } = serde_json::from_slice(body).ok()?;
    if tenant.as_ref().is_some_and(|tenant| !is_tenant(tenant)) {
        return None;
    }
    match (allow, status) {
        (true, _) => Some(Ok(tenant)),
        (false, 400..=499) => Some(Err((status, message))),
        (false, _) => None,
    }
}
