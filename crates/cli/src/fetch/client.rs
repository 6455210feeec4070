//! The HTTP client of all downloads: which certificates it trusts and which redirects it follows.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder};
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use crate::url_rule::UrlRule;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const REDIRECTS_MAX: usize = 10;

/// Makes the client; the system's certificates are read here.
pub fn make(rule: Arc<UrlRule>) -> reqwest::Result<Client> {
    let named = Arc::clone(&rule);
    let resolver = GuardedResolver {
        permitted: Arc::new(move |host, found| named.permitted(host, found.into_iter())),
        rejection: "its address is link-local, and allowed_urls does not name its host",
    };
    let client = guarded(resolver).connect_timeout(CONNECT_TIMEOUT);
    client.redirect(Policy::custom(move |attempt| redirect(&rule, attempt))).build()
}

/// A client that connects only to addresses that the resolver permits. An address in the place of a name is not
/// resolved: whoever uses the client looks at those.
pub fn guarded(resolver: GuardedResolver) -> ClientBuilder {
    Client::builder()
        .dns_resolver(Arc::new(resolver))
        .user_agent(concat!("jitney/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured(tls_config(trusted_certificates()).with_no_client_auth())
}

/// The certificates that this machine trusts; `SSL_CERT_FILE` names others. A machine without any
/// can still fetch over plain http.
pub fn trusted_certificates() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        tracing::warn!("the system has no trusted certificates; https downloads will fail");
    }
    roots
}

/// TLS with the one crypto provider of this program; what the client shows of itself is still to be said.
pub fn tls_config(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    builder.expect("ring knows TLS 1.2 and 1.3").with_root_certificates(roots)
}

/// Chooses among the addresses of a host.
type AddressChoice = dyn Fn(&str, Vec<SocketAddr>) -> Vec<SocketAddr> + Send + Sync;

/// Resolves names to the addresses that an allow-list permits; those are then connected to.
pub struct GuardedResolver {
    /// Which they are.
    pub permitted: Arc<AddressChoice>,
    /// What is said where there is none.
    pub rejection: &'static str,
}

/// A name that leads to no permitted address.
#[derive(Debug)]
pub struct RejectedAddress(&'static str);

impl fmt::Display for RejectedAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl Error for RejectedAddress {}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (permitted, rejection) = (Arc::clone(&self.permitted), self.rejection);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted = permitted(name.as_str(), found.collect());
            if permitted.is_empty() {
                return Err(RejectedAddress(rejection).into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

fn redirect(rule: &UrlRule, attempt: Attempt<'_>) -> Action {
    let was_secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error("it redirects too often")
    } else if was_secure && attempt.url().scheme() != "https" {
        attempt.error("it redirects from https to http")
    } else if !rule.allows_redirect(attempt.url()) {
        attempt.error("it redirects to a URL that is not allowed")
    } else {
        attempt.follow()
    }
}

/// An error with all its causes, since the outermost one seldom tells what happened.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&more) {
            text += &format!(": {more}");
        }
        cause = error.source();
    }
    text
}

/// The innermost cause, which is what the system said.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_lowercase()
}
