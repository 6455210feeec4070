//! URLs of models: read once, so that what is allowed is what is fetched.

use std::path::Path;

use url::Url;

use super::{error::StoreError, shown_url::ShownUrl};

/// Reads a URL. Text that other readers would read differently is rejected, and so are credentials.
pub(super) fn parse(text: &str) -> Result<Url, StoreError> {
    let bad = |why| Err(StoreError::BadUrl { url: ShownUrl::of(text), why });
    if text.contains('\\') {
        return bad("it has a backslash");
    }
    if text.contains(char::is_control) {
        return bad("it has a control character");
    }
    let url = Url::parse(text).map_err(|error| StoreError::download(text, error))?;
    if !url.username().is_empty() || url.password().is_some() {
        return bad("it has a user name or password; give the server a signed URL instead");
    }
    if url.scheme() == "file" && url.host().is_some() {
        return bad("a file:// URL has no host");
    }
    Ok(url)
}

/// A URL as the allow-list compares it: as its reader writes it. A path becomes a `file://` URL.
pub fn serialised(url: &str) -> String {
    let parsed = if url.contains("://") { Url::parse(url).ok() } else { None };
    parsed.map(String::from).or_else(|| file_url(Path::new(url))).unwrap_or_else(|| url.to_owned())
}

/// The URL of an absolute path.
pub(super) fn file_url(path: &Path) -> Option<String> {
    Url::from_file_path(path).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_readers_disagree_about_is_rejected() {
        for (text, part) in [
            ("http://127.0.0.1:1\\x.example.com/m.mar", "backslash"),
            ("http://ho\tst/m.mar", "control character"),
            ("http://host/m\n.mar", "control character"),
            ("http://good.example.com@127.0.0.1/m.mar", "user name"),
            ("http://:pw@host/m.mar", "user name"),
            ("file://elsewhere/m.mar", "has no host"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse("file://localhost/m.mar").is_ok());
    }

    #[test]
    fn the_allow_list_compares_what_the_reader_read() {
        for (text, expected) in [
            ("HTTP://Host:80/a/%2e/b.mar", "http://host/a/b.mar"),
            ("http://0xA9FEA9FE/", "http://169.254.169.254/"),
            ("/a b/c", "file:///a%20b/c"),
            ("file:///a%20b/c", "file:///a%20b/c"),
            ("app:model", "app:model"),
        ] {
            assert_eq!(serialised(text), expected);
        }
    }
}
