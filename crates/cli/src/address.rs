//! An address to listen on, as TorchServe writes it: `http://host[:port]`, `https://…`, `unix:/path`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use jitney_net::Bind;

use crate::failure::Failure;

/// The ports that an address without one means.
#[derive(Clone, Copy, Debug)]
pub struct Omitted {
    /// After `http://`.
    pub http: u16,
    /// After `https://`.
    pub https: u16,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp {
        /// As written, without brackets.
        host: String,
        /// Zero lets the system choose.
        port: u16,
        /// Whether it speaks TLS.
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// An address of `jitney serve`: host and port are already apart.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp { host: host.trim_matches(['[', ']']).to_owned(), port, tls: false }
    }

    /// The same address, speaking TLS if asked to; a Unix socket never does.
    pub fn secured(self, secure: bool) -> Self {
        match self {
            Self::Tcp { host, port, .. } => Self::Tcp { host, port, tls: secure },
            Self::Unix(path) => Self::Unix(path),
        }
    }

    /// Reads the value of `key`; `omitted` is what an address without a port means there.
    pub fn parse(key: &str, text: &str, omitted: Omitted) -> Result<Self, Failure> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let (tls, rest) = strip_scheme(text).ok_or_else(|| invalid(key, text))?;
        let (host, port) =
            split_port(rest.trim_end_matches('/')).ok_or_else(|| invalid(key, text))?;
        let omitted = if tls { omitted.https } else { omitted.http };
        Ok(Self::tcp(host, port.unwrap_or(omitted)).secured(tls))
    }

    /// What the server listens on; a name is looked up here.
    pub fn bind(&self) -> Result<Bind, Failure> {
        match self {
            Self::Unix(path) => Ok(Bind::Unix(path.clone())),
            Self::Tcp { host, port, tls: false } => look_up(host, *port).map(Bind::Tcp),
            Self::Tcp { host, port, tls: true } => look_up(host, *port).map(Bind::Tls),
        }
    }

    /// The host, unless it is a Unix socket.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(_) => None,
        }
    }

    /// Whether it speaks TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }

    /// Whether only this machine can reach it. A name that is not `localhost` counts as reachable.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port, tls } => {
                let scheme = if *tls { "https" } else { "http" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{scheme}://{open}{host}{close}:{port}")
            }
        }
    }
}

fn look_up(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| Failure::failed(format!("cannot look up {host}: {error}")))?;
    found.next().ok_or_else(|| Failure::failed(format!("{host} has no address")))
}

/// Whether the scheme is `https`, and what follows it.
fn strip_scheme(text: &str) -> Option<(bool, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some((false, rest)),
        "https" => Some((true, rest)),
        _ => None,
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let after_host = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match text[after_host..].rfind(':') {
        Some(colon) => {
            (&text[..after_host + colon], Some(text[after_host + colon + 1..].parse().ok()?))
        }
        None => (text, None),
    };
    let plain = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
    plain.then_some((host, port))
}

fn invalid(key: &str, text: &str) -> Failure {
    Failure::failed(format!("Invalid binding address {text} for {key}"))
        .hint("write it like http://127.0.0.1:8080, https://0.0.0.0:8443 or unix:/tmp/jitney.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, Failure> {
        Address::parse("inference_address", text, Omitted { http: 80, https: 443 })
    }

    #[test]
    fn addresses_are_read_as_torchserve_writes_them() {
        for (text, host, port) in [
            ("http://127.0.0.1:8080", "127.0.0.1", 8080),
            ("http://0.0.0.0", "0.0.0.0", 80),
            ("HTTP://localhost:1/", "localhost", 1),
            ("http://[::1]:8085", "::1", 8085),
            ("http://[::1]", "::1", 80),
        ] {
            assert_eq!(parse(text).ok(), Some(Address::tcp(host, port)), "{text}");
        }
        for (text, shown) in [
            ("https://127.0.0.1:8443", "https://127.0.0.1:8443"),
            ("HTTPS://[::1]", "https://[::1]:443"),
        ] {
            let address = parse(text).ok().filter(Address::is_secure);
            assert_eq!(address.map(|address| address.to_string()).as_deref(), Some(shown));
        }
        assert_eq!(parse("unix:/tmp/x.sock").ok(), Some(Address::Unix("/tmp/x.sock".into())));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [
            "",
            "8080",
            "http://",
            "http://host:port",
            "http://host:70000",
            "ftp://x",
            "http://a/b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_loopback_and_sockets_are_local() {
        for text in [
            "http://127.0.0.1:1",
            "http://127.8.8.8:1",
            "http://[::1]:1",
            "unix:/x",
            "http://localhost",
        ] {
            assert!(parse(text).is_ok_and(|address| address.is_local()), "{text}");
        }
        for text in ["http://0.0.0.0:1", "http://10.0.0.1", "http://[::]:1", "http://example.org"] {
            assert!(parse(text).is_ok_and(|address| !address.is_local()), "{text}");
        }
    }
}
