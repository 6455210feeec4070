//! The address of the server: what is spoken, where, and the path.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use http::Uri;

use crate::dial::LoadProtocol;

/// The port of gRPC, as TorchServe has it.
const GRPC_PORT: u16 = 7070;

/// A URL, such as `http://127.0.0.1:8080/predictions/m` or `grpc://127.0.0.1:7070/m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadUrl {
    /// What is spoken: HTTP/1.1 unless the scheme says something else.
    pub protocol: LoadProtocol,
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path with its query; `/` if there is none.
    pub path: String,
    secure: bool,
}

impl LoadUrl {
    /// Whether TLS is spoken.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The addresses of the host.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl FromStr for LoadUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "{text:?} {why}; write it like http://127.0.0.1:8080/predictions/MODEL or grpc://127.0.0.1:7070/MODEL"
            )
        };
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|_| wrong("is not a URL"))?;
        let (protocol, secure, port) = match uri.scheme_str() {
            Some("http") => (LoadProtocol::Http1, false, 80),
            Some("https") => (LoadProtocol::Http1, true, 443),
            Some("grpc") => (LoadProtocol::Grpc, false, GRPC_PORT),
            Some("grpcs") => (LoadProtocol::Grpc, true, GRPC_PORT),
            _ => return Err(wrong("has a scheme other than http, https, grpc and grpcs")),
        };
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { protocol, host, port: uri.port_u16().unwrap_or(port), path, secure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_is_spoken_and_where() {
        for (text, protocol, secure, authority, path) in [
            (
                "http://h:8080/predictions/m?a=1",
                LoadProtocol::Http1,
                false,
                "h:8080",
                "/predictions/m?a=1",
            ),
            ("127.0.0.1:9/x", LoadProtocol::Http1, false, "127.0.0.1:9", "/x"),
            ("https://h", LoadProtocol::Http1, true, "h:443", "/"),
            ("grpc://[::1]/m", LoadProtocol::Grpc, false, "[::1]:7070", "/m"),
            ("grpcs://h:1/m", LoadProtocol::Grpc, true, "h:1", "/m"),
            ("http://h?x=1", LoadProtocol::Http1, false, "h:80", "/?x=1"),
        ] {
            let url: LoadUrl = text.parse().expect(text);
            let found = (url.protocol, url.is_secure(), url.authority(), url.path.clone());
            assert_eq!(found, (protocol, secure, authority.to_owned(), path.to_owned()), "{text}");
        }
        for wrong in ["", "ftp://h/", "http://", "http:// x/"] {
            assert!(wrong.parse::<LoadUrl>().is_err(), "{wrong:?}");
        }
    }
}
