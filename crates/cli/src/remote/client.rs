//! The HTTP client of all commands against a running server: where it is, which key it gets, and how
//! its answers become sentences.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::document;
use super::events::EventReader;
use super::no_answer::no_answer;
use super::server_api::ServerApi;
use super::target::ModelTarget;
use super::token;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::fetch::client::{root_cause, tls_config, trusted_certificates};
use crate::flags::remote::ServerFlags;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For answers that need no waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Clone)]
pub struct RemoteClient {
    api: ServerApi,
    client: Client,
    base: Url,
    socket: Option<PathBuf>,
    token: Option<String>,
}

/// An error body of Jitney and TorchServe.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorAnswer {
    #[serde(rename = "type")]
    kind: String,
    message: String,
    /// What a port that only speaks HTTPS says.
    status: String,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It needs no waiting.
    Short,
    /// The server waits for workers and has timeouts of its own.
    Unlimited,
}

impl RemoteClient {
    /// Makes the client of the management API that flags and environment ask for. Nothing is sent yet.
    pub fn new(flags: &ServerFlags, env: &Env) -> Result<Self, Failure> {
        Self::of(ServerApi::Management, flags, env)
    }

    /// The same for one of a server's addresses.
    pub fn of(api: ServerApi, flags: &ServerFlags, env: &Env) -> Result<Self, Failure> {
        let given = flags.url.as_deref().or_else(|| env.text(api.variable()));
        let given = given.filter(|url| !url.is_empty());
        let given = given.map_or_else(|| api.usual(env), str::to_owned);
        let (base, socket) = parse(&given)?;
        let local = socket.is_some() || is_loopback(&base);
        let mut builder = Client::builder()
            .user_agent(concat!("jitney/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none());
        if let Some(path) = &socket {
            builder = builder.unix_socket(path.clone());
        }
        if local {
            builder = builder.no_proxy();
        }
        // Reading the system's certificates takes a while, and plain http needs none.
        let secure = base.scheme() == "https";
        let roots = if secure { trusted_certificates() } else { RootCertStore::empty() };
        let own = flags.client_cert.clone().or_else(|| env.path("JITNEY_CLIENT_CERT"));
        builder = builder.tls_backend_preconfigured(showing(tls_config(roots), own)?);
        let client = builder.build().map_err(cannot("make an HTTP client"))?;
        Ok(Self { api, client, base, socket, token: token::find(api, flags, local, env)? })
    }

    /// The address as a user would type it.
    pub fn address(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix:{}", path.display()),
            None => self.base.as_str().trim_end_matches('/').to_owned(),
        }
    }

    /// A document, as it is.
    pub async fn document(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Failure> {
        let response = self.send(Method::GET, path, query, None, Patience::Short).await?;
        let text = self.text(response).await?;
        serde_json::from_str(&text).map_err(|_| self.foreign())
    }

    /// A document, in its type.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        let document = self.document(path, &[]).await?;
        document::read(document).map_err(cannot("read the server's answer"))
    }

    /// A change; the answer says what was done.
    pub async fn change(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Value, Failure> {
        let response = self.send(method, path, query, None, Patience::Unlimited).await?;
        let text = self.text(response).await?;
        serde_json::from_str(&text).map_err(|_| self.foreign())
    }

    /// Another document in the place of one; the answer is the one that is in force.
    pub async fn put(&self, path: &[&str], document: &Value) -> Result<Value, Failure> {
        let response = self.send(Method::PUT, path, &[], Some(document), Patience::Short).await?;
        let text = self.text(response).await?;
        serde_json::from_str(&text).map_err(|_| self.foreign())
    }

    /// A stream of events.
    pub async fn events(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<EventReader, Failure> {
        let request = self.request(Method::GET, path, query, Patience::Unlimited);
        let response = self.ask(request.header(ACCEPT, "text/event-stream"), path).await?;
        Ok(EventReader::new(response))
    }

    /// A request with a body of its own; the answer is a document.
    pub async fn post(
        &self,
        path: &[&str],
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Value, Failure> {
        let request = self.request(Method::POST, path, &[], Patience::Unlimited);
        let response = self.ask(request.headers(headers).body(body), path).await?;
        let text = self.text(response).await?;
        serde_json::from_str(&text).map_err(|_| self.foreign())
    }

    /// What the server answers, whether it is a failure or not.
    pub async fn answer(&self, path: &[&str]) -> Result<(StatusCode, Vec<u8>), Failure> {
        let request = self.request(Method::GET, path, &[], Patience::Unlimited);
        let response = request.send().await.map_err(|error| self.no_answer(error))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.no_answer(error))?;
        Ok((status, body.into()))
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
        patience: Patience,
    ) -> Result<Response, Failure> {
        let mut request = self.request(method, path, query, patience);
        if let Some(body) = body {
            request = request.body(body.to_string()).header(CONTENT_TYPE, "application/json");
        }
        self.ask(request.header(ACCEPT, "application/json"), path).await
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        patience: Patience,
    ) -> RequestBuilder {
        let mut request = self.client.request(method, self.url(path, query));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        match patience {
            Patience::Short => request.timeout(ANSWER_TIMEOUT),
            Patience::Unlimited => request,
        }
    }

    async fn ask(&self, request: RequestBuilder, path: &[&str]) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| self.no_answer(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = self.text(response).await?;
        Err(self.failure_of(status, &text, path))
    }

    /// Names of models are put in as they are: what is special in a URL is escaped.
    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn text(&self, response: Response) -> Result<String, Failure> {
        response.text().await.map_err(|error| self.no_answer(error))
    }

    fn no_answer(&self, error: reqwest::Error) -> Failure {
        let address = self.address();
        let (connecting, slow) = (error.is_connect(), error.is_timeout());
        let reason = root_cause(&error.without_url());
        if slow {
            return Failure::unreachable(format!("{address} does not answer in time"))
                .hint("the machine may be overloaded, or a firewall drops the packets");
        }
        no_answer((self.api, &address), &reason, connecting)
    }

    /// The server's own sentence, with the name of the error.
    fn failure_of(&self, status: StatusCode, text: &str, path: &[&str]) -> Failure {
        let answer: ErrorAnswer = serde_json::from_str(text).unwrap_or_default();
        let ErrorAnswer { kind, message, status: notice } = answer;
        if !notice.is_empty() && message.is_empty() {
            return Failure::unreachable(format!("{}: {notice}", self.address()));
        }
        let code = status.as_u16();
        let named = if kind.is_empty() { String::new() } else { format!(" {kind}") };
        let message = if message.is_empty() { format!("{status}") } else { message };
        if code == 401 || kind == "InvalidKeyException" {
            let wrong =
                if self.token.is_some() { "does not take this token" } else { "wants a token" };
            return Failure::no_permission(format!("{} {wrong}: {message}", self.address()))
                .hint(self.api.key_hint());
        }
        let route_missing =
            matches!(path.first(), Some(&("overview" | "logs"))) && (code == 404 || code == 405);
        if route_missing {
            return self.foreign();
        }
        let failure = match code {
            403 => Failure::no_permission(format!("{message} ({code}{named})")),
            _ => return Failure::failed(format!("{message} ({code}{named})")),
        };
        failure.hint(self.api.key_hint())
    }

    /// Something else listens there.
    fn foreign(&self) -> Failure {
        let (address, word) = (self.address(), self.api.word());
        let other = match self.api {
            ServerApi::Management => "the inference port",
            ServerApi::Inference => "the management port",
        };
        Failure::unreachable(format!("{address} is no {word} address of a Jitney server")).hint(
            format!(
                "it may be {other}, another program, or an older server; {}",
                self.api.port_hint()
            ),
        )
    }
}

/// The client's own certificate, where it has one.
fn showing(
    config: ConfigBuilder<ClientConfig, WantsClientCert>,
    file: Option<PathBuf>,
) -> Result<ClientConfig, Failure> {
    let Some(file) = file else { return Ok(config.with_no_client_auth()) };
    let wrong = |error: &dyn Display| Failure::usage(format!("{}: {error}", file.display()));
    let pem = std::fs::read(&file).map_err(|error| Failure::file("read", &file, &error))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|error| wrong(&error))?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong(&error))?;
    config.with_client_auth_cert(chain, key).map_err(|error| wrong(&error))
}

/// `/models/NAME[/VERSION]`.
pub fn model_path(target: &ModelTarget) -> Vec<&str> {
    let mut path = vec!["models", target.model.as_str()];
    path.extend(target.version.as_deref());
    path
}

/// A URL, or the path of a socket; `host:port` alone means http.
fn parse(text: &str) -> Result<(Url, Option<PathBuf>), Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.trim_start_matches("//");
        let base = Url::parse("http://localhost").map_err(cannot("read the address"))?;
        return Ok((base, Some(PathBuf::from(path))));
    }
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    match Url::parse(&full) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok((url, None)),
        Ok(_) | Err(_) => Err(Failure::usage(format!("{text} is not an address of a server"))
            .hint("use http://HOST:PORT, https://HOST:PORT or unix:/PATH")),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> RemoteClient {
        let flags = ServerFlags { url: Some(url.to_owned()), ..ServerFlags::default() };
        RemoteClient::new(&flags, &Env::default()).expect("an address")
    }

    #[test]
    fn addresses_are_read_as_people_type_them() {
        for (given, address, loopback) in [
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081", true),
            ("localhost:9001", "http://localhost:9001", true),
            ("https://gpu-box:8444/", "https://gpu-box:8444", false),
            ("http://[::1]:8081", "http://[::1]:8081", true),
            ("unix:/run/jitney.sock", "unix:/run/jitney.sock", true),
            ("https://ops.example.org/jitney", "https://ops.example.org/jitney", false),
        ] {
            let client = client(given);
            assert_eq!(client.address(), address, "{given}");
            assert_eq!(is_loopback(&client.base), loopback, "{given}");
        }
        assert!(parse("ftp://host").is_err() && parse("").is_err());
    }

    #[test]
    fn without_an_address_the_server_of_this_environment_is_meant() {
        let address = |env: Env| {
            RemoteClient::new(&ServerFlags::default(), &env).expect("an address").address()
        };
        assert_eq!(address(Env::default()), "http://127.0.0.1:8081");
        let port = Env::from([("JITNEY_MANAGEMENT_PORT", "9001")]);
        assert_eq!(address(port.clone()), "http://127.0.0.1:9001");
        assert_eq!(address(port.with("JITNEY_URL", "gpu-box:1")), "http://gpu-box:1");
    }

    #[test]
    fn names_are_escaped_and_a_prefix_is_kept() {
        let url = client("http://host/jitney/").url(&["models", "a/b?"], &[("url", "x y&z")]);
        assert_eq!(url.as_str(), "http://host/jitney/models/a%2Fb%3F?url=x+y%26z");
    }

    #[test]
    fn the_servers_sentence_is_shown_and_a_missing_token_explained() {
        let client = client("http://host:1");
        let body =
            r#"{"code": 404, "type": "ModelNotFoundException", "message": "Model not found: m"}"#;
        let failure = client.failure_of(StatusCode::NOT_FOUND, body, &["models", "m"]);
        assert_eq!(failure.message, "Model not found: m (404 ModelNotFoundException)");
        let body = r#"{"code": 400, "type": "InvalidKeyException", "message": "Token Authorization failed."}"#;
        let failure = client.failure_of(StatusCode::BAD_REQUEST, body, &["models"]);
        assert_eq!(failure.code, crate::failure::NO_PERMISSION);
        assert!(failure.to_string().contains("--key-file"), "{failure}");
        let body = r#"{"code": 403, "type": "DeniedException", "message": "The key watch may not do this."}"#;
        let failure = client.failure_of(StatusCode::FORBIDDEN, body, &["models"]);
        assert_eq!(failure.code, crate::failure::NO_PERMISSION);
        assert!(failure.to_string().contains("scope manage"), "{failure}");
        let body = r#"{"status": "This port speaks HTTPS only."}"#;
        let failure = client.failure_of(StatusCode::FORBIDDEN, body, &["overview"]);
        assert_eq!(failure.message, "http://host:1: This port speaks HTTPS only.");
        let failure = client.failure_of(StatusCode::NOT_FOUND, "{}", &["overview"]);
        assert!(failure.message.contains("no management address"), "{failure}");
    }
}
