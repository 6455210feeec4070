//! Path and query of a request for the access log. On the paths of the management API a query names where
//! models come from, and may hold credentials: those are left out.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use http::Uri;
use jitney_engine::store::ShownUrl;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::query::pairs;
use crate::route;

/// What is not escaped in a value that was changed.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'/')
    .remove(b'?');

/// Parts of the names of fields that hold credentials: a signed URL that was not escaped becomes
/// several fields.
const SECRETS: [&str; 5] = ["signature", "credential", "security-token", "secret", "password"];

/// Path and query as they came, without credentials.
pub(crate) struct ShownUri<'a>(pub(crate) &'a Uri);

impl fmt::Display for ShownUri<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(uri) = self;
        let Some(query) = uri.query().filter(|_| names_models(uri.path())) else {
            return match uri.path_and_query() {
                Some(shown) if uri.authority().is_none() => formatter.write_str(shown.as_str()),
                _ => write!(formatter, "{uri}"),
            };
        };
        formatter.write_str(uri.path())?;
        for (index, field) in query.split('&').enumerate() {
            formatter.write_char(if index == 0 { '?' } else { '&' })?;
            formatter.write_str(&shown(field))?;
        }
        Ok(())
    }
}

fn names_models(path: &str) -> bool {
    let path = route::decode(path);
    let path = path.trim_start_matches('/');
    path.starts_with("models") || path.starts_with("workflows")
}

fn shown(field: &str) -> Cow<'_, str> {
    let Some((name, value)) = pairs(field.as_bytes()).next() else { return field.into() };
    let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
    let raw = field.split('=').next().unwrap_or_default();
    if name == "sig" || SECRETS.iter().any(|part| name.contains(part)) {
        return format!("{raw}=…").into();
    }
    let value = String::from_utf8_lossy(&value);
    let shown = ShownUrl::of(&value);
    if *shown == *value {
        return field.into();
    }
    format!("{raw}={}", utf8_percent_encode(&shown, PLAIN)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_model_urls_are_left_out() {
        for (uri, expected) in [
            ("/models?url=a.mar&model_name=m%20n", "/models?url=a.mar&model_name=m%20n"),
            ("/models?url=http%3A%2F%2Fh%2Fx.mar", "/models?url=http%3A%2F%2Fh%2Fx.mar"),
            (
                "/models?batch_size=2&%75rl=http://bob:hunter2@h/x.mar%3Fsig=SECRET&synchronous=true",
                "/models?batch_size=2&%75rl=http://h/x.mar?%E2%80%A6&synchronous=true",
            ),
            (
                "/%6dodels?url=https://h/x.mar?X-Amz-Credential=A&X-Amz-Signature=SECRET&sig=S",
                "/%6dodels?url=https://h/x.mar?%E2%80%A6&X-Amz-Signature=…&sig=…",
            ),
            ("/workflows?url=https://h/x.war?s", "/workflows?url=https://h/x.war?%E2%80%A6"),
            ("/predictions/m?url=https://h/a?b", "/predictions/m?url=https://h/a?b"),
            ("/models?next_page_token=2", "/models?next_page_token=2"),
        ] {
            assert_eq!(ShownUri(&uri.parse().unwrap()).to_string(), expected);
        }
    }
}
