//! Which URLs may be told, and which addresses their names may lead to. Addresses that are not public are reached only
//! if the operator wrote them: in a URL, or as an address or a network of their own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jitney_net::Networks;
use jitney_server::WebhookRejection;
use reqwest::Url;

/// What is said of an address that nobody named.
pub const PRIVATE: &str =
    "its address is not public (loopback, private, link-local), and webhook_urls does not name it";
/// The longest URL.
const URL_BYTES_MAX: usize = 2048;

/// An allow-list.
#[derive(Debug)]
pub struct WebhookRule {
    /// What a URL begins with: scheme, host, port and path. The host may be `*`, or begin with `*.`.
    urls: Vec<Url>,
    /// Addresses that names may lead to although they are not public.
    addresses: Networks,
}

impl WebhookRule {
    /// Reads `webhook_urls`: URLs, and addresses or networks.
    pub fn read(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let (urls, addresses): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.contains("://"));
        let read = |entry: &str| match Url::parse(entry) {
            Ok(url) if is_plain(&url) && url.query().is_none() => Ok(url),
            _ => Err(format!("{entry:?} is no URL such as https://hooks.example.com/jobs/")),
        };
        let urls = urls.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let addresses = addresses.join(",").parse()?;
        if urls.is_empty() {
            return Err("it names no URL such as https://hooks.example.com/jobs/".to_owned());
        }
        Ok(Self { urls, addresses })
    }

    /// The URL that a client wants to be told.
    pub fn check(&self, text: &str) -> Result<Url, WebhookRejection> {
        let unreadable = |why: &str| WebhookRejection::Unreadable(why.to_owned());
        if text.len() > URL_BYTES_MAX {
            return Err(unreadable("it has more than 2,048 characters"));
        }
        let mut url = Url::parse(text).map_err(|error| unreadable(&error.to_string()))?;
        if !is_plain(&url) {
            return Err(unreadable("it must begin with https:// or http://, without a password"));
        }
        url.set_fragment(None);
        let not_allowed = |why: &str| Err(WebhookRejection::NotAllowed(why.to_owned()));
        let mut allowing = self.urls.iter().filter(|allowed| begins_with(&url, allowed)).peekable();
        if allowing.peek().is_none() {
            return not_allowed("webhook_urls of this server does not name it");
        }
        match address(&url) {
            Some(ip) if !allowing.any(|it| it.host() == url.host()) && !self.permits(ip) => {
                not_allowed(PRIVATE)
            }
            _ => Ok(url),
        }
    }

    /// Whether a name may lead here.
    pub fn permits(&self, address: IpAddr) -> bool {
        is_public(address) || self.addresses.contain(address)
    }
}

fn is_plain(url: &Url) -> bool {
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    let no_user = url.username().is_empty() && url.password().is_none();
    matches!(url.scheme(), "http" | "https") && has_host && no_user
}

/// The address that stands in the place of a name.
fn address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether scheme and port are the same, the host fits, and the path is the same or below.
fn begins_with(url: &Url, allowed: &Url) -> bool {
    let port = |url: &Url| url.port_or_known_default();
    let host = url.host_str().unwrap_or_default();
    let host_fits = match allowed.host_str().unwrap_or_default() {
        "*" => true,
        known => match known.strip_prefix('*') {
            Some(end) => host.len() > end.len() && host.ends_with(end),
            None => host == known,
        },
    };
    let same = url.scheme() == allowed.scheme() && port(url) == port(allowed);
    same && host_fits && is_below(url.path(), allowed.path().trim_end_matches('/'))
}

/// Whether a path is a folder or below it. An encoded slash may become one behind the receiver's door.
fn is_below(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    let lower = path.to_ascii_lowercase();
    let hides = !folder.is_empty() && (lower.contains("%2f") || lower.contains("%5c"));
    !hides && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether an address belongs to a machine of the public network, as IANA's registries of special addresses say.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation();
    let [a, b, c, _] = address.octets();
    // This network, carriers' networks, protocols, 6to4 relays, measurements, and what is reserved.
    let reserved = matches!(
        (a, b, c),
        (0 | 240..=255, ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _)
    );
    !special && !reserved
}

/// Only what is given out to machines, and there no addresses that hold others.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Teredo and protocols, documentation, 6to4.
    let special = matches!(segments, [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..])
        || matches!(segments, [0x3fff, 0..=0xfff, ..]);
    (segments[0] & 0xe000) == 0x2000 && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> WebhookRule {
        WebhookRule::read(text).expect("reads")
    }

    #[test]
    fn a_url_is_allowed_below_what_the_operator_named() {
        let rule =
            rule("https://hooks.example.com/jobs, http://10.1.2.3:9000, https://*.b.example");
        for (url, expected) in [
            ("https://hooks.example.com/jobs", true),
            ("https://hooks.example.com/jobs/a?b=c#d", true),
            ("HTTPS://Hooks.Example.com:443/jobs/", true),
            ("https://hooks.example.com/jobsx", false),
            ("https://hooks.example.com/jobs/../admin", false),
            ("https://hooks.example.com/jobs/%2e%2e/admin", false),
            ("https://hooks.example.com/jobs/..%2fadmin", false),
            ("https://hooks.example.com:444/jobs", false),
            ("http://hooks.example.com/jobs", false),
            ("https://hooks.example.com.evil/jobs", false),
            ("http://10.1.2.3:9000/any", true),
            ("http://167838211:9000/any", true),
            ("http://10.1.2.3/any", false),
            ("http://10.1.2.4:9000/any", false),
            ("https://a.b.example/x", true),
            ("https://.b.example/x", false),
            ("https://b.example/x", false),
            ("https://ab.example/x", false),
        ] {
            let checked = rule.check(url);
            assert_eq!(checked.is_ok(), expected, "{url}: {checked:?}");
        }
        for wrong in ["x", "ftp://h/", "https://a:b@hooks.example.com/jobs", "file:///etc/passwd"] {
            let refused = rule.check(wrong).expect_err(wrong);
            assert!(matches!(refused, WebhookRejection::Unreadable(_)), "{wrong}");
        }
    }

    #[test]
    fn only_named_addresses_are_not_public_ones() {
        let any = rule("https://*,http://*");
        for private in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:0:1::]",
            "2130706433",
            "0x7f.1",
        ] {
            let checked = any.check(&format!("http://{private}/"));
            assert_eq!(checked, Err(WebhookRejection::NotAllowed(PRIVATE.to_owned())), "{private}");
        }
        for public in ["93.184.215.14", "[2606:4700::1]", "name.example"] {
            assert!(any.check(&format!("https://{public}/")).is_ok(), "{public}");
        }
        let named = rule("https://receiver.internal,10.0.0.0/8,::1");
        let permitted =
            ["10.9.9.9", "::1", "192.168.0.1"].map(|ip| ip.parse().expect("an address"));
        assert_eq!(permitted.map(|ip| named.permits(ip)), [true, true, false]);
        let literal = rule("http://10.1.2.3/,https://*");
        assert!(!literal.permits("10.1.2.3".parse().expect("an address")), "names lead elsewhere");
    }

    #[test]
    fn what_is_no_list_is_said() {
        for wrong in [
            "",
            "10.0.0.0/8",
            "hooks.example.com",
            "https://",
            "https://a/?b",
            "https://a,10.0.0.0/99",
        ] {
            assert!(WebhookRule::read(wrong).is_err(), "{wrong}");
        }
    }
}
