//! What plugins say about themselves and about requests, read strictly: an answer in another form is
//! no answer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{Origin, OriginKind};
use serde::Deserialize;

use super::Listener;
use super::question::{Asker, Question, ask};
use crate::request_id::RequestId;

/// What a plugin offers.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) endpoints: Vec<Offered>,
    pub(super) authorize: bool,
}

/// A path that it answers.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) path: String,
    pub(super) methods: Vec<Method>,
    pub(super) listener: Listener,
    pub(super) description: String,
}

#[derive(Deserialize)]
struct Said {
    endpoints: Vec<SaidEndpoint>,
    authorize: bool,
}

#[derive(Deserialize)]
struct SaidEndpoint {
    path: String,
    methods: Vec<String>,
    listener: Listener,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Verdict {
    allow: bool,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    message: String,
}

/// Asks a plugin what it offers.
pub(super) async fn of(plugin: &Model, timeout: Duration) -> Result<Offer, String> {
    let question = Question {
        ask: "describe",
        endpoint: None,
        listener: Listener::Inference,
        body: Bytes::new(),
    };
    let (id, method, headers) = (RequestId::fresh(), Method::GET, HeaderMap::new());
    let asker = Asker {
        id: id.text(),
        method: &method,
        path: "",
        query: None,
        headers: &headers,
        client: "",
        origin: Origin { kind: OriginKind::Http, peer: 0 },
    };
    let answer = ask(plugin, question, asker, timeout).await;
    let answer = answer.map_err(|silence| silence.words().to_owned())?;
    read(&answer.output.body)
}

pub(super) fn read(body: &[u8]) -> Result<Offer, String> {
    let said: Said = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let endpoints = said.endpoints.into_iter().map(|said| {
        let SaidEndpoint { path, methods, listener, description } = said;
        let methods = methods.iter().map(|name| name.parse().map_err(|_| format!("method {name}")));
        let methods = methods.collect::<Result<_, String>>()?;
        Ok(Offered { path, methods, listener, description })
    });
    Ok(Offer { endpoints: endpoints.collect::<Result<_, String>>()?, authorize: said.authorize })
}

/// Yes, or no with status and words; nothing if it is neither.
pub(super) fn verdict(body: &[u8]) -> Option<Result<(), (u16, String)>> {
    let Verdict { allow, status, message } = serde_json::from_slice(body).ok()?;
    match (allow, status) {
        (true, _) => Some(Ok(())),
        (false, 400..=499) => Some(Err((status, message))),
        (false, _) => None,
    }
}
