//! URLs of models as they are shown: without secrets.

use std::{fmt, ops::Deref};

use url::Url;

/// A URL or path as it may be shown: without user name and password, and with `?…` for a query, since
/// the query of a signed URL is a credential. Logs, answers and snapshots only ever get this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownUrl(String);

impl ShownUrl {
    /// Takes the secrets out of a URL; a path or a plain name stays as it is.
    pub fn of(text: &str) -> Self {
        let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, rest)| {
            let named =
                scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            named && rest.starts_with(['/', '\\'])
        }) else {
            return Self(text.to_owned());
        };
        if rest.contains('@') && Url::parse(text).is_err() {
            return Self(format!("{scheme}://…"));
        }
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        let (address, cut) = (&rest[..end], if end < rest.len() { "?…" } else { "" });
        let host = address.trim_start_matches(['/', '\\']);
        let slashes = &address[..address.len() - host.len()];
        let host_end = host.find(['/', '\\']).unwrap_or(host.len());
        let host = host[..host_end].rfind('@').map_or(host, |at| &host[at + 1..]);
        Self(format!("{scheme}:{slashes}{host}{cut}"))
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
            ("http:/bob:hunter2@host/x.mar", "http:/host/x.mar"),
            ("http:\\\\bob:hunter2@host\\x.mar", "http:\\\\host\\x.mar"),
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
