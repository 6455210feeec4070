//! Sends webhooks as Standard Webhooks says: a signed POST, to URLs and addresses that the operator named, and to no
//! others (ADR 0056). No redirect is followed, no answer is read, and no proxy stands between.

mod rule;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jitney_server::{
    WebhookFailure, WebhookMessage, WebhookRejection, WebhookSender, WebhookSending,
};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use ring::hmac;

use self::rule::WebhookRule;
use crate::failure::{Failure, cannot};
use crate::fetch::client::{self, GuardedResolver, RejectedAddress, error_chain};

/// How long one attempt may take in all.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest secret.
const SECRET_BYTES_MIN: usize = 24;
const HOW: &str = "echo \"whsec_$(openssl rand -base64 32)\" > webhook-secret";

/// Sends messages.
pub struct WebhookClient {
    rule: Arc<WebhookRule>,
    client: Client,
    secrets: PathBuf,
}

impl WebhookClient {
    /// One that tells these URLs, with signatures by the secrets of this file.
    pub fn new(urls: &str, secrets: Option<PathBuf>) -> Result<Self, Failure> {
        let wrong = |why| Failure::usage(format!("webhook_urls: {why}"));
        let rule = Arc::new(WebhookRule::read(urls).map_err(wrong)?);
        let secrets = secrets.ok_or_else(|| {
            let unsigned = Failure::usage("webhook_urls needs webhook_secret: webhooks are signed");
            unsigned.hint(format!("a file is made by: {HOW}"))
        })?;
        read_secrets(&secrets).map_err(|why| {
            let failure = Failure::usage(format!("webhook_secret {}: {why}", secrets.display()));
            failure.hint(format!("a file is made by: {HOW}"))
        })?;
        let named = Arc::clone(&rule);
        let resolver = GuardedResolver {
            permitted: Arc::new(move |_, mut found| {
                found.retain(|address| named.permits(address.ip()));
                found
            }),
            rejection: rule::PRIVATE,
        };
        let client = client::guarded(resolver).redirect(Policy::none()).no_proxy().timeout(TIMEOUT);
        let client = client.pool_max_idle_per_host(0).build();
        Ok(Self { rule, client: client.map_err(cannot("make an HTTP client"))?, secrets })
    }

    async fn post(&self, url: &str, message: WebhookMessage) -> Result<(), WebhookFailure> {
        let never = |why| WebhookFailure { why, again: false };
        let url = self.rule.check(url).map_err(|rejection| match rejection {
            WebhookRejection::Unreadable(why) | WebhookRejection::NotAllowed(why) => never(why),
        })?;
        let secrets = read_secrets(&self.secrets)
            .map_err(|why| WebhookFailure { why: format!("webhook_secret: {why}"), again: true })?;
        let WebhookMessage { id, body } = message;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = signature(&secrets, &id, now, &body);
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json");
        let request = request.header("webhook-id", id).header("webhook-timestamp", now);
        let sent = request.header("webhook-signature", signature).body(body).send().await;
        let status = sent.map_err(|error| failure(error.without_url()))?.status();
        if status.is_success() {
            return Ok(());
        }
        let again = !status.is_redirection() && status != StatusCode::GONE;
        let why = if status.is_redirection() { ", and redirects are not followed" } else { "" };
        Err(WebhookFailure { why: format!("the receiver answers {status}{why}"), again })
    }
}

impl WebhookSender for WebhookClient {
    fn check(&self, url: &str) -> Result<String, WebhookRejection> {
        self.rule.check(url).map(String::from)
    }

    fn send<'a>(&'a self, url: &'a str, message: WebhookMessage) -> WebhookSending<'a> {
        Box::pin(self.post(url, message))
    }
}

/// What kept a message from arriving. A name that leads to a private address does so the next time.
fn failure(error: reqwest::Error) -> WebhookFailure {
    let why = error_chain(&error);
    let mut cause = Some(&error as &dyn Error);
    while let Some(error) = cause {
        if error.is::<RejectedAddress>() {
            return WebhookFailure { why, again: false };
        }
        cause = error.source();
    }
    WebhookFailure { why, again: true }
}

/// The secrets of a file, one per line.
fn read_secrets(file: &Path) -> Result<Vec<hmac::Key>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let secrets: Option<Vec<_>> = lines.map(secret).collect();
    secrets.filter(|secrets| !secrets.is_empty()).ok_or_else(|| {
        format!("every line must be whsec_ and at least {SECRET_BYTES_MIN} bytes in base64")
    })
}

fn secret(line: &str) -> Option<hmac::Key> {
    let bytes = STANDARD.decode(line.strip_prefix("whsec_")?).ok()?;
    (bytes.len() >= SECRET_BYTES_MIN).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// One signature by each secret, so that receivers may change theirs one after the other.
fn signature(secrets: &[hmac::Key], id: &str, timestamp: u64, body: &[u8]) -> String {
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    let one = |secret| format!("v1,{}", STANDARD.encode(hmac::sign(secret, &signed)));
    secrets.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let known = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature(std::slice::from_ref(&secret), id, 1_614_265_330, body), known);
        let both = signature(&[secret.clone(), secret], id, 1_614_265_330, body);
        assert_eq!(both, format!("{known} {known}"));
    }

    #[test]
    fn a_short_secret_is_refused() {
        for wrong in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%"]
        {
            assert!(secret(wrong).is_none(), "{wrong}");
        }
    }
}
