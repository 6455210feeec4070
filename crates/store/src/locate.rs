//! From a url to a file or a directory on this machine, by TorchServe's rules.
//!
//! Only the last element of a path matters, and it is looked up in the store; the exceptions are
//! `file://` urls that the allow-list matches, and directories, which may lie anywhere. An archive
//! behind a `file://` url is brought into the store like one from another machine.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use super::{checksum::hex_pair, config::StoreConfig, error::StoreError, fetch::FetchedFile};

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
    if url.contains("..") {
        return Err(StoreError::RelativePath(url.to_owned()));
    }
    let not_allowed = || StoreError::NotAllowed(url.to_owned());
    match Scheme::of(url) {
        Scheme::Http | Scheme::File if !(config.url_allowed)(url) => Err(not_allowed()),
        Scheme::Http => remote(config, url, at_startup),
        Scheme::File => file(config, url, at_startup),
        Scheme::Bucket if (config.url_allowed)(url) => remote(config, url, at_startup),
        // TorchServe knows no buckets: to it the last element of such a url is a file of the store.
        Scheme::Bucket => local(config, url).map_err(|_| not_allowed()),
        Scheme::Other => local(config, url),
    }
}

/// The schemes that TorchServe takes for urls, and ours for buckets; all else is a path.
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

fn remote(config: &StoreConfig, url: &str, at_startup: bool) -> Result<ModelSource, StoreError> {
    let store = config.model_store.as_ref().ok_or(StoreError::NotConfigured)?;
    let file = file_name(url);
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

fn file(config: &StoreConfig, url: &str, at_startup: bool) -> Result<ModelSource, StoreError> {
    let not_found = || StoreError::download(url, "there is no such file");
    let path = url_path(url).filter(|path| path.starts_with('/')).ok_or_else(not_found)?;
    let decoded = percent_decoded(path);
    // The allow-list saw the url as it was written.
    if decoded.windows(2).any(|pair| pair == b"..") {
        return Err(StoreError::RelativePath(url.to_owned()));
    }
    let path = PathBuf::from(OsString::from_vec(decoded));
    let store = config.model_store.as_deref().filter(|_| !at_startup);
    match store.filter(|store| path.is_file() && !stays(&path, store)) {
        Some(store) => outside(path, store),
        None => archive(&path).or_else(|| directory(&path)).ok_or_else(not_found),
    }
}

/// What is in the store is there already, and an ONNX file may have others beside it.
fn stays(path: &Path, store: &Path) -> bool {
    let in_store = path.parent().is_some_and(|parent| is_same(parent, store));
    in_store || path.extension().is_some_and(|ending| ending == "onnx")
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

fn local(config: &StoreConfig, url: &str) -> Result<ModelSource, StoreError> {
    let name = file_name(url);
    let stored = config.model_store.as_ref().filter(|_| !name.is_empty());
    let stored = stored.map(|store| store.join(name));
    stored
        .as_deref()
        .and_then(archive)
        .or_else(|| directory(Path::new(url)))
        .or_else(|| stored.as_deref().and_then(directory))
        .ok_or_else(|| match config.model_store {
            Some(_) => StoreError::NotFound(url.to_owned()),
            None => StoreError::NotConfigured,
        })
}

fn archive(path: &Path) -> Option<ModelSource> {
    path.is_file().then(|| ModelSource::Archive(path.to_owned()))
}

/// Workers run in other directories, so the path becomes absolute.
fn directory(path: &Path) -> Option<ModelSource> {
    let is_named = !path.as_os_str().is_empty() && path.is_dir();
    is_named.then(|| std::path::absolute(path).ok()).flatten().map(ModelSource::Directory)
}

/// The last element of a url's path, or of a plain path; a slash at the end does not count.
fn file_name(url: &str) -> &str {
    let path = url_path(url).unwrap_or(url).trim_end_matches('/');
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// What stands between a url's host and its query, perhaps nothing; `None` if it is no url.
fn url_path(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let address = rest.split(['?', '#']).next()?;
    Some(address.find('/').map_or("", |slash| &address[slash..]))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| tail.first_chunk()).flatten().and_then(hex_pair);
        decoded.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    decoded
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
            assert_eq!(file_name(url), expected, "{url}");
        }
    }

    #[test]
    fn percent_escapes_are_decoded_and_broken_ones_kept() {
        for (text, expected) in
            [("/a%20b", "/a b"), ("/%C3%BC", "/ü"), ("/50%", "/50%"), ("/%zz%4", "/%zz%4")]
        {
            assert_eq!(percent_decoded(text), expected.as_bytes(), "{text}");
        }
    }
}
