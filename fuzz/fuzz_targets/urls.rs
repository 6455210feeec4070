//! URLs of models: what the allow-list lets through is at the host that the pattern names.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[allow(dead_code)]
#[path = "../../crates/cli/src/url_rule.rs"]
mod url_rule;

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use reqwest::Url;
use url_rule::UrlRule;

static ANYTHING: LazyLock<UrlRule> =
    LazyLock::new(|| UrlRule::patterns(".*").ok().expect("a pattern"));
static EXAMPLE: LazyLock<UrlRule> = LazyLock::new(|| {
    UrlRule::patterns(r"https?://[^/]*\.example\.com/.*").ok().expect("a pattern")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(url) = jitney_store::fuzzing::urls(bytes) else { return };
    let read = Url::parse(&url).expect("it was read before");
    let host = read.host_str().unwrap_or_default();
    if EXAMPLE.allows(&url) {
        assert!(host.ends_with(".example.com"), "{url} is at {host}");
        assert!(["http", "https"].contains(&read.scheme()), "{url}");
        assert!(EXAMPLE.allows_redirect(&read));
    }
    if ANYTHING.allows(&url) && ["http", "https"].contains(&read.scheme()) {
        let v4 = host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_link_local());
        assert!(!v4 && !host.starts_with("[fe80:"), "{url} is link-local");
    }
});
