//! Models from other machines, over HTTP: the store asks, this room speaks the protocol.
//!
//! Everything runs on the admin plane, whoever asks. Every redirect has to pass the allow-list again
//! and never leads from https to http. The usual proxy variables are honoured. Object stores (s3, gs,
//! azure) will come to stand beside this on the same HTTP client.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jitney_engine::store::{Download, Later, Remote};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Response};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::url_rule::UrlRule;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const REDIRECTS_MAX: usize = 10;

/// The web, as far as the allow-list goes.
pub struct Web {
    rule: Arc<UrlRule>,
    admin: Handle,
    /// Made for the first download: the system's certificates take a moment to read.
    client: OnceLock<Result<Client, String>>,
}

impl Web {
    /// Nothing is reached until a model is asked for.
    pub fn new(rule: Arc<UrlRule>, admin: Handle) -> Self {
        Self { rule, admin, client: OnceLock::new() }
    }

    fn client(&self) -> Result<Client, String> {
        let make = || client(Arc::clone(&self.rule)).map_err(|error| words(&error));
        self.client.get_or_init(make).clone()
    }
}

impl Remote for Web {
    fn open<'a>(&'a self, url: &'a str) -> Later<'a, Result<Box<dyn Download>, String>> {
        Box::pin(async move {
            let request = self.client()?.get(url);
            // A set of one: unlike a bare task it ends when the caller goes away.
            let mut asking = JoinSet::new();
            asking.spawn_on(async { request.send().await?.error_for_status() }, &self.admin);
            let asked = asking.join_next().await.ok_or("nobody asked")?;
            let response = asked.map_err(|panic| panic.to_string())?;
            let response = response.map_err(|error| words(&error.without_url()))?;
            Ok(Box::new(Body(response)) as Box<dyn Download>)
        })
    }
}

struct Body(Response);

impl Download for Body {
    fn bytes_total(&self) -> Option<u64> {
        self.0.content_length()
    }

    fn next(&mut self) -> Later<'_, Result<Option<Bytes>, String>> {
        Box::pin(async { self.0.chunk().await.map_err(|error| words(&error.without_url())) })
    }
}

fn client(rule: Arc<UrlRule>) -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(concat!("jitney/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::custom(move |attempt| redirect(&rule, attempt)))
        .tls_backend_preconfigured(trust())
        .build()
}

/// The certificates that this machine trusts; `SSL_CERT_FILE` names others. A machine without any
/// can still fetch over plain http.
fn trust() -> ClientConfig {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        tracing::warn!("this machine trusts no certificates; nothing can be fetched over https");
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    builder.expect("ring knows TLS 1.2 and 1.3").with_root_certificates(roots).with_no_client_auth()
}

fn redirect(rule: &UrlRule, attempt: Attempt<'_>) -> Action {
    let was_secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error("it redirects too often")
    } else if was_secure && attempt.url().scheme() != "https" {
        attempt.error("it redirects from https to http")
    } else if !rule.allows_redirect(attempt.url().as_str()) {
        attempt.error("it redirects to a URL that is not allowed")
    } else {
        attempt.follow()
    }
}

/// The error and everything below it, since the outermost one seldom says what happened.
fn words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        words += &format!(": {error}");
        below = error.source();
    }
    words
}

#[cfg(test)]
mod tests;
