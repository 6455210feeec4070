//! From a url to a file or a directory on this machine, by TorchServe's rules.
//!
//! Only the last element of a path matters, and it is looked up in the store; the exceptions are
//! `file://` urls that the allow-list matches, and directories. An archive behind a `file://` url is
//! brought into the store like one from another machine.
//!
//! The command line may name any path. A path that came over the management API has to lie below the
//! store when all its links are followed, or else the allow-list has to match it as a `file://` url.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use url::Url;

use super::allowance::Limits;
use super::download::Downloader;
use super::error::StoreError;
use super::fetch::FetchedFile;
use super::repository::ends_as_model;
use super::shown_url::ShownUrl;

/// Decides whether a url may be opened: `http(s)://`, `file://` or a bucket's, as its reader writes it.
/// A path that a client names outside the store is asked about as a `file://` url.
pub type UrlFilter = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What a store needs to know.
pub struct StoreConfig {
    /// Where names are looked up; without it only directories and `file://` urls are found.
    pub model_store: Option<PathBuf>,
    /// Unpacked models go to `models` below this directory.
    pub scratch: PathBuf,
    /// What is to outlive the server is kept below this directory where the model store is read-only.
    pub cache: Option<PathBuf>,
    /// How much one archive may unpack to.
    pub limits: Limits,
    /// The allow-list.
    pub url_allowed: UrlFilter,
    /// Who downloads; without it nothing remote can be had.
    pub remote: Option<Arc<dyn Downloader>>,
}

/// What a url names.
#[derive(Debug)]
pub enum ModelSource {
    /// A regular file: an archive of some kind.
    Archive(PathBuf),
    /// A directory to serve in place.
    Directory(PathBuf),
    /// A file on another machine, and where in the store it is to be kept.
    Remote(PathBuf),
    /// A file of this machine outside the store, and where in the store it is to be kept.
    Outside {
        /// Where it is.
        from: PathBuf,
        /// Where it goes.
        target: PathBuf,
    },
    /// A file that was on another machine, or outside the store.
    Fetched(FetchedFile),
}

impl ModelSource {
    /// The file or directory, once it is here.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Archive(_) | Self::Fetched(_) => self.file(),
            Self::Remote(_) | Self::Outside { .. } => None,
        }
    }

    /// The file; a directory is none.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Archive(path) | Self::Remote(path) => Some(path),
            Self::Outside { from, .. } => Some(from),
            Self::Fetched(fetched) => Some(fetched.path()),
            Self::Directory(_) => None,
        }
    }

    /// The download, if it was one.
    pub fn fetched(self) -> Option<FetchedFile> {
        if let Self::Fetched(fetched) = self { Some(fetched) } else { None }
    }
}

/// Finds what `url` names.
pub(super) fn locate(
    config: &StoreConfig,
    url: &str,
    at_startup: bool,
) -> Result<ModelSource, StoreError> {
    if url.is_empty() {
        return Err(StoreError::EmptyUrl);
    }
    if climbs(url) {
        return Err(StoreError::RelativePath(ShownUrl::of(url)));
    }
    let scheme = Scheme::of(url);
    if scheme == Scheme::Other {
        return local(config, url, at_startup);
    }
    let parsed = parse(url)?;
    let allowed = (config.url_allowed)(parsed.as_str());
    let not_allowed = || StoreError::NotAllowed(ShownUrl::of(url));
    match scheme {
        Scheme::Http | Scheme::Bucket if allowed => remote(config, url, &parsed, at_startup),
        Scheme::File if allowed => file(config, url, &parsed, at_startup),
        // TorchServe knows no buckets: to it the last element of such a url is a file of the store.
        Scheme::Bucket => local(config, url, at_startup).map_err(|_| not_allowed()),
        Scheme::Http | Scheme::File | Scheme::Other => Err(not_allowed()),
    }
}

/// Like [`locate`] at start-up, but what is remote goes into a directory of its own: files of one name from
/// several places lie side by side, and no store is needed.
pub(super) fn locate_apart(
    config: &StoreConfig,
    url: &str,
    directory: &Path,
) -> Result<ModelSource, StoreError> {
    if climbs(url) || !is_remote(url) {
        return locate(config, url, true);
    }
    let parsed = parse(url)?;
    if !(config.url_allowed)(parsed.as_str()) {
        return Err(StoreError::NotAllowed(ShownUrl::of(url)));
    }
    match last_element(parsed.path()) {
        "" => Err(StoreError::download(url, "it names no file")),
        file => Ok(ModelSource::Remote(directory.join(file))),
    }
}

/// Whether two dots stand in a row, plainly or percent-encoded.
fn climbs(url: &str) -> bool {
    url.contains("..") || url.to_ascii_lowercase().replace("%2e", ".").contains("..")
}

/// The schemes that TorchServe takes for urls, and ours for buckets; all else is a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// A plain file on a web server.
    Http,
    File,
    /// An object in a bucket or container of a cloud.
    Bucket,
    Other,
}

impl Scheme {
    fn of(url: &str) -> Self {
        let Some((scheme, _)) = url.split_once("://") else { return Self::Other };
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => Self::Http,
            "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss" => Self::Bucket,
            "file" => Self::File,
            _ => Self::Other,
        }
    }
}

/// Whether a url leads to another machine; all other urls and paths are looked up on this one.
pub fn is_remote(url: &str) -> bool {
    matches!(Scheme::of(url), Scheme::Http | Scheme::Bucket)
}

fn remote(
    config: &StoreConfig,
    url: &str,
    parsed: &Url,
    at_startup: bool,
) -> Result<ModelSource, StoreError> {
    let store = config.model_store.as_ref().ok_or(StoreError::NotConfigured)?;
    let file = last_element(parsed.path());
    if file.is_empty() {
        return Err(StoreError::download(url, "it names no file"));
    }
    let target = store.join(file);
    if !target.exists() {
        return Ok(ModelSource::Remote(target));
    }
    archive(&target)
        .filter(|_| at_startup)
        .ok_or_else(|| StoreError::AlreadyExists(file.to_owned()))
}

fn file(
    config: &StoreConfig,
    url: &str,
    parsed: &Url,
    at_startup: bool,
) -> Result<ModelSource, StoreError> {
    let not_found = || StoreError::download(url, "there is no such file");
    let path = parsed.to_file_path().ok().filter(|path| path.parent().is_some());
    let path = path.ok_or_else(not_found)?;
    if path.as_os_str().as_bytes().windows(2).any(|pair| pair == b"..") {
        return Err(StoreError::RelativePath(ShownUrl::of(url)));
    }
    let store = config.model_store.as_deref().filter(|_| !at_startup);
    match store.filter(|store| path.is_file() && !stays(&path, store)) {
        Some(store) => outside(path, store),
        None => archive(&path).or_else(|| directory(&path)).ok_or_else(not_found),
    }
}

/// What is in the store is there already, and a model's file may have others beside it that belong to it.
fn stays(path: &Path, store: &Path) -> bool {
    let in_store = path.parent().is_some_and(|parent| is_same(parent, store));
    in_store || path.extension().is_some_and(|ending| ending == "onnx") || ends_as_model(path)
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// At start-up a file stays where it is, so that no copy that is out of date is served.
fn outside(from: PathBuf, store: &Path) -> Result<ModelSource, StoreError> {
    let name = from.file_name().unwrap_or_default();
    let target = store.join(name);
    if target.exists() {
        return Err(StoreError::AlreadyExists(name.to_string_lossy().into_owned()));
    }
    Ok(ModelSource::Outside { from, target })
}

fn local(config: &StoreConfig, url: &str, at_startup: bool) -> Result<ModelSource, StoreError> {
    let path = url_path(url).unwrap_or(url);
    let name = last_element(path);
    let stored = config.model_store.as_ref().filter(|_| !name.is_empty());
    let stored = stored.map(|store| store.join(name));
    let may = |found| if at_startup { Some(found) } else { open_to_clients(config, found) };
    stored
        .as_deref()
        .and_then(archive)
        .and_then(may)
        .or_else(|| directory(Path::new(url)).and_then(may))
        .or_else(|| stored.as_deref().and_then(directory).and_then(may))
        .ok_or_else(|| not_found(config, url, stored, at_startup))
}

/// A source that a client may name, with the links in a directory's path followed for good: a link that
/// is changed later leads nowhere else.
fn open_to_clients(config: &StoreConfig, found: ModelSource) -> Option<ModelSource> {
    match found {
        ModelSource::Directory(path) => {
            let end = path.canonicalize().ok().filter(|end| is_open(config, end))?;
            Some(ModelSource::Directory(end))
        }
        ModelSource::Archive(path) => {
            let end = path.canonicalize().ok()?;
            is_open(config, &end).then_some(ModelSource::Archive(path))
        }
        other
        @ (ModelSource::Remote(_) | ModelSource::Outside { .. } | ModelSource::Fetched(_)) => {
            Some(other)
        }
    }
}

/// Whether clients may name this path, which has no links.
fn is_open(config: &StoreConfig, path: &Path) -> bool {
    let store = config.model_store.as_deref().and_then(|store| store.canonicalize().ok());
    let is_below = store.is_some_and(|store| path != store && path.starts_with(store));
    is_below || file_url(path).is_some_and(|url| (config.url_allowed)(&url))
}

/// A path that clients may not name is rejected in the same words whether or not something is there.
fn not_found(
    config: &StoreConfig,
    url: &str,
    stored: Option<PathBuf>,
    at_startup: bool,
) -> StoreError {
    let shown = ShownUrl::of(url);
    let is_path = url.contains('/') && !url.contains("://");
    let named = is_path.then(|| std::path::absolute(url).ok()).flatten();
    let is_closed = |path: &PathBuf| !is_open(config, path);
    let leads_out = |path: PathBuf| path.canonicalize().is_ok_and(|end| is_closed(&end));
    let closed = named.is_some_and(|path| is_closed(&path) || leads_out(path));
    if !at_startup && (closed || stored.is_some_and(leads_out)) {
        return StoreError::OutsideStore { url: shown, store: config.model_store.clone() };
    }
    match config.model_store {
        Some(_) => StoreError::NotFound(shown),
        None => StoreError::NotConfigured,
    }
}

fn archive(path: &Path) -> Option<ModelSource> {
    path.is_file().then(|| ModelSource::Archive(path.to_owned()))
}

/// Workers run in other directories, so the path becomes absolute.
fn directory(path: &Path) -> Option<ModelSource> {
    let is_named = !path.as_os_str().is_empty() && path.is_dir();
    is_named.then(|| std::path::absolute(path).ok()).flatten().map(ModelSource::Directory)
}

/// The last element of a path; a slash at the end does not count.
fn last_element(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// What stands between a url's host and its query, perhaps nothing; `None` if it is no url.
fn url_path(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let address = rest.split(['?', '#']).next()?;
    Some(address.find('/').map_or("", |slash| &address[slash..]))
}

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
fn file_url(path: &Path) -> Option<String> {
    Url::from_file_path(path).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_is_the_last_element_of_the_path() {
        for (url, expected) in [
            ("a.mar", "a.mar"),
            ("/abs/dir/a.mar", "a.mar"),
            ("http://host:80/x/a.mar?sig=a/b#c", "a.mar"),
            ("s3://bucket/a.mar", "a.mar"),
            ("http://host", ""),
            ("http://host?a=/b.mar", ""),
            ("dir/name/", "name"),
            ("/", ""),
            ("C:\\x\\a.mar", "a.mar"),
        ] {
            assert_eq!(last_element(url_path(url).unwrap_or(url)), expected, "{url}");
        }
    }

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
