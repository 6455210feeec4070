//! Keeps web pages away from management. A page in somebody's browser can send requests to any address
//! that the browser reaches, this machine's loopback included; it cannot hide that it did.
//!
//! Three headers tell: `Origin` and `Sec-Fetch-Site`, which pages cannot set, and `Host`, which names the
//! page's own host when that was made to resolve to this machine. Other clients send none of them, or an
//! honest `Host`. Only management looks at them.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use jitney_net::listen::Bind;

use crate::errors::{ErrorCode, Problem};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What the address of a listener says about the browsers that may reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrowserRule {
    scheme: &'static str,
    /// Whether only this machine reaches it, so that no other name than localhost leads here.
    loopback: bool,
}

impl BrowserRule {
    pub(crate) fn of(bind: &Bind) -> Self {
        match bind {
            Bind::Tcp(address) => Self::new("http", address.ip()),
            Bind::Tls(address) => Self::new("https", address.ip()),
            Bind::Unix(_) => Self { scheme: "http", loopback: false },
        }
    }

    fn new(scheme: &'static str, ip: IpAddr) -> Self {
        Self { scheme, loopback: ip.to_canonical().is_loopback() }
    }

    /// Checks a management request before its body is read. `allowed` has the origins that the operator
    /// named; a star names none.
    ///
    /// # Errors
    /// A page of another site sent it.
    pub(crate) fn check(
        self,
        headers: &HeaderMap,
        changes: bool,
        allowed: Option<&str>,
    ) -> Result<(), Problem> {
        let host = headers.get(HOST).map_or(&b""[..], HeaderValue::as_bytes);
        if self.loopback && !is_local(host) && !named(allowed).any(|it| same(it.1, host)) {
            return Err(foreign(
                "The Host header names another host than localhost or an IP address. Ask this address \
                 for management as localhost.",
            ));
        }
        if !changes || self.is_own_page(headers, host, allowed) {
            return Ok(());
        }
        Err(foreign(
            "A web page of another site may not change anything here. The operator can name its origin \
             in cors_allowed_origin.",
        ))
    }

    /// Whether no page sent it, or one of this server, or one that the operator named.
    fn is_own_page(self, headers: &HeaderMap, host: &[u8], allowed: Option<&str>) -> bool {
        let Some(origin) = headers.get(ORIGIN) else {
            let site = headers.get(SEC_FETCH_SITE).map_or(&b""[..], HeaderValue::as_bytes);
            return !site.eq_ignore_ascii_case(b"cross-site")
                && !site.eq_ignore_ascii_case(b"same-site");
        };
        let Some((scheme, authority)) = origin.to_str().ok().and_then(split) else { return false };
        scheme.eq_ignore_ascii_case(self.scheme) && same(authority, host)
            || named(allowed)
                .any(|it| scheme.eq_ignore_ascii_case(it.0) && it.1.eq_ignore_ascii_case(authority))
    }
}

/// The origins of `cors_allowed_origin`, each as scheme and authority.
fn named(allowed: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    allowed.unwrap_or_default().split([',', ' ']).filter_map(split)
}

fn split(origin: &str) -> Option<(&str, &str)> {
    origin.split_once("://").filter(|(_, authority)| !authority.is_empty())
}

fn same(authority: &str, host: &[u8]) -> bool {
    authority.as_bytes().eq_ignore_ascii_case(host)
}

/// Whether a Host header names this machine, or nothing, which no browser does.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.split_once(']').filter(|(_, port)| is_port(port));
        return address.is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
    }
    let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
    let known =
        name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    known && is_port(port)
}

/// Whether it is nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|it| it.is_ascii_digit()))
}

fn foreign(message: &str) -> Problem {
    Problem::new(ErrorCode::ForeignOrigin, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(bind: &str, headers: &[(&'static str, &str)], changes: bool) -> bool {
        asked_of(bind, headers, changes, None)
    }

    fn asked_of(
        bind: &str,
        headers: &[(&'static str, &str)],
        changes: bool,
        allowed: Option<&str>,
    ) -> bool {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers = headers.iter().map(header).collect();
        let passed = BrowserRule::of(&bind.parse().unwrap()).check(&headers, changes, allowed);
        let code = passed.as_ref().map_err(|problem| (problem.status, problem.code));
        assert!(code.is_ok() || code == Err((403, ErrorCode::ForeignOrigin)));
        passed.is_ok()
    }

    #[test]
    fn on_loopback_only_this_machine_is_a_host() {
        for host in
            ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "10.1.2.3", "[::1]:8081", "[::1]", ""]
        {
            assert!(asked("127.0.0.1:8081", &[("host", host)], false), "{host}");
            assert!(asked("[::1]:8081", &[("host", host)], true), "{host}");
        }
        for host in [
            "attacker.example:8081",
            "localhost.attacker.example",
            "127.0.0.1.attacker.example",
            "localhost:8081.attacker.example",
            "[::1].attacker.example",
            "[attacker.example]",
            "x",
        ] {
            assert!(!asked("127.0.0.1:8081", &[("host", host)], false), "{host}");
            assert!(!asked("https://[::1]:8081", &[("host", host)], true), "{host}");
            assert!(asked("0.0.0.0:8081", &[("host", host)], true), "others have names: {host}");
            assert!(asked("unix:/tmp/a", &[("host", host)], true), "no browser comes: {host}");
        }
        assert!(asked("127.0.0.1:8081", &[], true), "HTTP/1.0 has none");
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let here = ("host", "10.0.0.1:8081");
        for (headers, passes) in [
            (&[here][..], true),
            (&[here, ("origin", "http://10.0.0.1:8081")], true),
            (&[here, ("origin", "HTTP://10.0.0.1:8081")], true),
            (&[here, ("origin", "https://10.0.0.1:8081")], false),
            (&[here, ("origin", "http://10.0.0.1:8080")], false),
            (&[here, ("origin", "https://attacker.example")], false),
            (&[here, ("origin", "null")], false),
            (&[here, ("origin", "")], false),
            (&[here, ("sec-fetch-site", "cross-site")], false),
            (&[here, ("sec-fetch-site", "same-site")], false),
            (&[here, ("sec-fetch-site", "same-origin")], true),
            (&[here, ("sec-fetch-site", "none")], true),
        ] {
            assert_eq!(asked("0.0.0.0:8081", headers, true), passes, "{headers:?}");
            assert_eq!(asked("127.0.0.1:8081", headers, true), passes, "{headers:?}");
            assert!(asked("0.0.0.0:8081", headers, false), "reading: {headers:?}");
        }
        let secure = [here, ("origin", "https://10.0.0.1:8081")];
        assert!(asked("https://0.0.0.0:8081", &secure, true));
    }

    #[test]
    fn an_origin_that_the_operator_named_is_not_foreign() {
        let page = [
            ("host", "localhost:8081"),
            ("origin", "https://ops.example"),
            ("sec-fetch-site", "cross-site"),
        ];
        let proxied = [("host", "ops.example"), ("origin", "https://ops.example")];
        for (allowed, passes) in [
            ("https://ops.example", true),
            ("https://a.example, https://OPS.example", true),
            ("http://ops.example", false),
            ("https://ops.example.org", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(asked_of("127.0.0.1:1", &page, true, Some(allowed)), passes, "{allowed}");
            let same_host = allowed.to_lowercase().ends_with("ops.example");
            assert_eq!(asked_of("127.0.0.1:1", &proxied, false, Some(allowed)), same_host);
            assert_eq!(asked_of("127.0.0.1:1", &proxied, true, Some(allowed)), passes);
        }
    }
}
