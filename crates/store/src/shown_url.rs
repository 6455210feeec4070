//! URLs of models as they are shown: without secrets.

use std::{fmt, ops::Deref};

use url::Url;

/// A URL or path as it may be shown: without user name and password, and with `?…` for a query, since
/// the query of a signed URL is a credential. Logs, answers and snapshots only ever get this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownUrl(String);

impl ShownUrl {
    /// Takes the secrets out of a URL; a path or a plain name stays as it is. The text is read as its
    /// clients read it, who pass over tabs, spaces around it and missing slashes.
    pub fn of(text: &str) -> Self {
        match Url::parse(text) {
            Ok(url) if url.has_host() && has_secrets(&url) => Self(without_secrets(url)),
            Ok(_) => Self(text.to_owned()),
            Err(_) => Self(unreadable(text)),
        }
    }
}

fn has_secrets(url: &Url) -> bool {
    let user = !url.username().is_empty() || url.password().is_some();
    user || url.query().is_some() || url.fragment().is_some()
}

fn without_secrets(mut url: Url) -> String {
    // Both fail only where there is no host, and then there is no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let cut = if url.query().or(url.fragment()).is_some() { "?…" } else { "" };
    url.set_query(None);
    url.set_fragment(None);
    format!("{url}{cut}")
}

/// Text that is no URL, but may have been meant as one.
fn unreadable(text: &str) -> String {
    let Some((scheme, rest)) = text
        .split_once(':')
        .filter(|(scheme, rest)| !scheme.contains(['/', '\\']) && rest.contains(['/', '\\']))
    else {
        return text.to_owned();
    };
    if rest.contains('@') {
        return format!("{scheme}://…");
    }
    match rest.find(['?', '#']) {
        Some(end) => format!("{scheme}:{}?…", &rest[..end]),
        None => text.to_owned(),
    }
}

impl Deref for ShownUrl {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShownUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_has_no_credentials() {
        for (text, expected) in [
            ("m.mar", "m.mar"),
            ("/a/b?c@d", "/a/b?c@d"),
            ("https://host/x@y.mar", "https://host/x@y.mar"),
            ("http://bob:hunter2@host/x.mar?sig=S", "http://host/x.mar?…"),
            ("http:/bob:hunter2@host/x.mar", "http://host/x.mar"),
            ("http:\\\\bob:hunter2@host\\x.mar", "http://host/x.mar"),
            ("http:bob:hunter2@host/x.mar", "http://host/x.mar"),
            (" http://bob:hunter2@host/x.mar", "http://host/x.mar"),
            ("ht\ttp://bob:hunter2@host/x.mar", "http://host/x.mar"),
            ("http:/\t/bob:hunter2@host/x.mar", "http://host/x.mar"),
            ("s3://id\\x:key@bucket/x.mar", "s3://bucket/x.mar"),
            ("http://ho st/x.mar?sig=S", "http://ho st/x.mar?…"),
            ("http://bob:hun/ter2@host/x.mar", "http://…"),
            ("http://bob:hunter?2@host/x.mar", "http://…"),
            ("s3://id:key@bucket/x.mar#frag", "s3://bucket/x.mar?…"),
            ("https://host/x.mar?X-Amz-Signature=1&b=/c@d", "https://host/x.mar?…"),
            ("app:model", "app:model"),
        ] {
            assert_eq!(&*ShownUrl::of(text), expected, "{text}");
        }
    }
}
