//! Which URLs the store may open. TorchServe's rule is a list of patterns, each matching the whole
//! URL; `jitney serve` allows exactly what the command line named.

use std::collections::BTreeSet;

use regex::Regex;

use crate::failure::Failure;

/// An allow-list.
#[derive(Debug)]
pub enum UrlRule {
    /// Any of these patterns.
    Patterns(Vec<Regex>),
    /// Exactly these.
    Named(BTreeSet<String>),
}

impl UrlRule {
    /// Reads `allowed_urls`: patterns separated by commas, without regard to case: `HTTPS://` is `https://`.
    pub fn patterns(text: &str) -> Result<Self, Failure> {
        let patterns =
            text.split(',').map(|one| whole("allowed_urls", &format!("(?i){}", one.trim())));
        patterns.collect::<Result<_, _>>().map(Self::Patterns)
    }

    /// Whether an allowed URL may redirect to this one. Who named the URL on the command line trusts
    /// where it leads; a pattern holds for every step.
    pub fn allows_redirect(&self, url: &str) -> bool {
        match self {
            Self::Patterns(_) => self.allows(url),
            Self::Named(_) => true,
        }
    }

    /// Whether a URL may be opened.
    pub fn allows(&self, url: &str) -> bool {
        match self {
            Self::Patterns(patterns) => patterns.iter().any(|pattern| pattern.is_match(url)),
            Self::Named(urls) => urls.contains(url),
        }
    }
}

/// A pattern that matches the whole text, as Java's `matches` does.
pub fn whole(key: &str, pattern: &str) -> Result<Regex, Failure> {
    Regex::new(&format!("^(?:{pattern})$"))
        .map_err(|error| Failure::failed(format!("{key}: {pattern:?} is not a pattern: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_url() {
        let rule = UrlRule::patterns("https://good.example/.*, file://.*").expect("reads");
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

    #[test]
    fn a_broken_pattern_names_its_key() {
        let failure = UrlRule::patterns("(").expect_err("refused");
        assert!(failure.message.starts_with("allowed_urls"));
    }
}
