//! Which URLs the store may open. TorchServe's rule is a list of patterns, each matching the whole
//! URL; `jitney serve` allows exactly what the command line named.
//!
//! URLs are compared as their reader writes them: in lower case where case does not matter, without the
//! scheme's own port, with numbers as addresses. Link-local addresses belong to the machine and its
//! cloud, whose metadata hold credentials: they are rejected unless a pattern has the host in its text.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{PoisonError, RwLock};

use jitney_engine::store::{ShownUrl, serialised};
use regex::Regex;
use reqwest::Url;

use crate::failure::Failure;

/// An allow-list.
#[derive(Debug)]
pub enum UrlRule {
    /// Any of these patterns.
    Patterns(Vec<UrlPattern>),
    /// Exactly these.
    Named(NamedUrls),
}

/// URLs that were named one by one.
#[derive(Debug, Default)]
pub struct NamedUrls {
    /// On the command line or in the configuration.
    fixed: BTreeSet<String>,
    /// In the shared list of models, as it is now.
    listed: RwLock<BTreeSet<String>>,
    /// Files of this machine that were fetched for one of those.
    fetched: RwLock<BTreeSet<String>>,
}

impl NamedUrls {
    fn any(&self, is_such: impl Fn(&str) -> bool) -> bool {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let fetched = self.fetched.read().unwrap_or_else(PoisonError::into_inner);
        self.fixed.iter().chain(listed.iter()).chain(fetched.iter()).any(|url| is_such(url))
    }
}

/// A pattern of the operator.
#[derive(Debug)]
pub struct UrlPattern {
    regex: Regex,
    /// Its text without escapes.
    text: String,
}

impl UrlPattern {
    fn new(text: &str) -> Result<Self, Failure> {
        let regex = whole("allowed_urls", &format!("(?i){text}"))?;
        Ok(Self { regex, text: text.replace('\\', "").to_ascii_lowercase() })
    }

    /// Whether the host stands in the pattern itself.
    fn names(&self, host: &str) -> bool {
        self.text.contains(&host.to_ascii_lowercase())
    }

    fn allows(&self, url: &str, link_local: Option<&str>) -> bool {
        self.regex.is_match(url) && link_local.is_none_or(|host| self.names(host))
    }
}

impl UrlRule {
    /// Reads `allowed_urls`: patterns separated by commas, without regard to case: `HTTPS://` is `https://`.
    pub fn patterns(text: &str) -> Result<Self, Failure> {
        let patterns = text.split(',').map(|one| UrlPattern::new(one.trim()));
        patterns.collect::<Result<_, _>>().map(Self::Patterns)
    }

    /// Exactly these URLs and absolute paths.
    pub fn named<'a>(urls: impl IntoIterator<Item = &'a str>) -> Self {
        let fixed = urls.into_iter().map(serialised).collect();
        Self::Named(NamedUrls { fixed, ..NamedUrls::default() })
    }

    /// Names these URLs and absolute paths too, in the place of those that were listed before. Patterns stay
    /// what they are.
    pub fn list(&self, urls: impl IntoIterator<Item = String>) {
        if let Self::Named(named) = self {
            let listed = urls.into_iter().map(|url| serialised(&url)).collect();
            *named.listed.write().unwrap_or_else(PoisonError::into_inner) = listed;
        }
    }

    /// Names what was fetched for one of these URLs as well. Patterns stay what they are.
    pub fn allow(&self, url: &str) {
        if let Self::Named(named) = self {
            named.fetched.write().unwrap_or_else(PoisonError::into_inner).insert(serialised(url));
        }
    }

    /// Whether an allowed URL may redirect to this one. Who named the URL on the command line trusts
    /// where it leads, except to link-local addresses; a pattern holds for every step.
    pub fn allows_redirect(&self, url: &Url) -> bool {
        match self {
            _ if !url.username().is_empty() || url.password().is_some() => false,
            Self::Patterns(_) => self.allows(url.as_str()),
            Self::Named(_) => link_local_host(url).is_none_or(|host| self.names_host(host)),
        }
    }

    /// Whether a URL may be opened.
    pub fn allows(&self, url: &str) -> bool {
        match self {
            Self::Patterns(patterns) => {
                let parsed = Url::parse(url).ok();
                let link_local = parsed.as_ref().and_then(link_local_host);
                patterns.iter().any(|pattern| pattern.allows(url, link_local))
            }
            Self::Named(urls) => urls.any(|named| named == url),
        }
    }

    /// The addresses of a host that may be connected to.
    pub fn permitted(
        &self,
        host: &str,
        found: impl Iterator<Item = SocketAddr>,
    ) -> Vec<SocketAddr> {
        let named = self.names_host(host);
        found.filter(|address| named || !is_link_local(address.ip())).collect()
    }

    fn names_host(&self, host: &str) -> bool {
        match self {
            Self::Patterns(patterns) => patterns.iter().any(|pattern| pattern.names(host)),
            Self::Named(urls) => urls.any(|url| {
                Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(|known| known == host))
            }),
        }
    }
}

/// The host of a URL, if it is a link-local address.
fn link_local_host(url: &Url) -> Option<&str> {
    let host = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https"))?;
    let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    is_link_local(address).then_some(host)
}

/// The address of Amazon's metadata in IPv6, which is not link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Link-local addresses, also inside IPv6 (mapped, compatible, NAT64), and metadata.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            let prefix = address.segments();
            let holds_v4 =
                matches!(prefix, [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..]);
            address.is_unicast_link_local()
                || address == METADATA
                || (holds_v4 && Ipv4Addr::new(a, b, c, d).is_link_local())
        }
    }
}

/// A list of models as `--models` takes it, without the secrets of its URLs.
pub fn shown_models(list: &str) -> String {
    let shown = list.split(',').map(|one| match one.split_once('=') {
        Some((name, url)) if !name.contains(['/', ':', '?']) => {
            format!("{name}={}", ShownUrl::of(url))
        }
        _ => ShownUrl::of(one).to_string(),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// A pattern that matches the whole text, as Java's `matches` does.
pub fn whole(key: &str, pattern: &str) -> Result<Regex, Failure> {
    Regex::new(&format!("^(?:{pattern})$"))
        .map_err(|error| Failure::failed(format!("{key}: {pattern:?} is not a pattern: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = "file://.*|http(s)?://.*";

    fn rule(text: &str) -> UrlRule {
        UrlRule::patterns(text).expect("reads")
    }

    #[test]
    fn a_pattern_matches_the_whole_url() {
        let rule = rule("https://good.example/.*, file://.*");
        for (url, expected) in [
            ("https://good.example/a.mar", true),
            ("file:///x.mar", true),
            ("HTTPS://Good.Example/a.mar", true),
            ("http://good.example/a.mar", false),
            ("http://evil/?https://good.example/", false),
        ] {
            assert_eq!(rule.allows(url), expected, "{url}");
        }
    }

    /// As the fuzz target `urls` looks at any URL.
    #[test]
    fn what_a_pattern_allows_of_the_corpus_is_at_its_host() {
        let rule = rule(r"https?://[^/]*\.example\.com/.*");
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/urls");
        for file in std::fs::read_dir(corpus).expect("a corpus") {
            let text = std::fs::read(file.expect("a file").path()).expect("reads");
            let Ok(url) = Url::parse(&String::from_utf8_lossy(&text)) else { continue };
            let there = url.host_str().is_some_and(|host| host.ends_with(".example.com"));
            assert!(there || !rule.allows(url.as_str()), "{url}");
        }
    }

    #[test]
    fn what_the_command_line_named_is_compared_as_it_is_read() {
        let rule = UrlRule::named(["HTTPS://Host:443/a.mar", "/a b"]);
        assert!(rule.allows("https://host/a.mar") && rule.allows("file:///a%20b"));
        assert!(!rule.allows("https://host/b.mar") && !rule.allows("file:///a"));
        rule.list(["s3://b/m.mar".to_owned()]);
        assert!(rule.allows("https://host/a.mar") && rule.allows("s3://b/m.mar"));
        rule.list([]);
        assert!(!rule.allows("s3://b/m.mar"));
        rule.allow("/scratch/m.mar");
        assert!(rule.allows("file:///scratch/m.mar"));
    }

    #[test]
    fn link_local_hosts_have_to_be_named() {
        let metadata = "http://169.254.169.254/latest";
        for (text, url, expected) in [
            (DEFAULT, metadata, false),
            (".*", metadata, false),
            (".*", "http://[fe80::1]/", false),
            (".*", "http://[::ffff:169.254.169.254]/", false),
            (".*", "http://[fd00:ec2::254]/", false),
            (".*", "http://[64:ff9b::a9fe:a9fe]/", false),
            (".*", "http://127.0.0.1/", true),
            (r"http://169\.254\.169\.254/.*", metadata, true),
            (r".*,http://169\.254\.169\.254/other", metadata, false),
        ] {
            let serialised = serialised(url);
            assert_eq!(rule(text).allows(&serialised), expected, "{text} {url}");
        }
        assert!(!rule(".*").allows(&serialised("http://2852039166/")));
    }

    #[test]
    fn a_name_leads_to_no_link_local_address() {
        let found = ["169.254.169.254:0", "10.0.0.1:0", "[fe80::1]:0"]
            .map(|address| address.parse::<SocketAddr>().expect("an address"));
        let host = "metadata.example";
        let permitted = |rule: &UrlRule| rule.permitted(host, found.into_iter()).len();
        assert_eq!(permitted(&rule(DEFAULT)), 1);
        assert_eq!(permitted(&rule(r"http://metadata\.example/.*")), 3);
        assert_eq!(permitted(&UrlRule::named(["http://metadata.example/m.mar"])), 3);
    }

    #[test]
    fn a_redirect_brings_no_password_and_leads_to_no_link_local_address() {
        let named = UrlRule::named(["http://host/m.mar"]);
        for (url, expected) in [
            ("http://other/m.mar", true),
            ("http://bob:pw@other/m.mar", false),
            ("http://169.254.169.254/m.mar", false),
        ] {
            let url = Url::parse(url).expect("a url");
            assert_eq!(named.allows_redirect(&url), expected, "{url}");
            assert_eq!(rule(".*").allows_redirect(&url), expected, "{url}");
        }
    }

    #[test]
    fn a_list_of_models_is_shown_without_signatures() {
        let list = "a=https://h/a.mar?sig=S,b.mar,https://h/c.mar?x=1";
        assert_eq!(shown_models(list), "a=https://h/a.mar?…,b.mar,https://h/c.mar?…");
        assert_eq!(shown_models("all"), "all");
    }

    #[test]
    fn a_broken_pattern_names_its_key() {
        let failure = UrlRule::patterns("(").expect_err("refused");
        assert!(failure.message.starts_with("allowed_urls"));
    }
}
