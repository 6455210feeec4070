//! Brings a folder of a bucket to this machine: what is below it is listed, checked and fetched file by file, each with
//! the limits, pauses and second attempts of any other download.
//!
//! Names come from the other side: one that would leave the folder fails the whole of it, before anything is fetched.

use std::path::{Component, Path, PathBuf};

use super::allowance::{Limits, bytes_max, free_bytes};
use super::download::{DownloadRequest, Downloader, RemoteFile};
use super::error::StoreError;
use super::fetch;
use super::shown_url::ShownUrl;

/// Whether a url names a folder of a bucket: it ends with a slash.
pub fn is_remote_folder(url: &str) -> bool {
    let bucket = url.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https")
    });
    bucket && url.ends_with('/') && super::locate::is_remote(url)
}

/// Fetches everything below the folder that `url` names into `target`, which must not exist yet.
///
/// # Errors
/// If it is empty or too large, has names that are no paths, or cannot be had.
pub async fn fetch_folder(
    remote: &dyn Downloader,
    url: &str,
    target: &Path,
    limits: &Limits,
) -> Result<(), StoreError> {
    let failed = |why: String| StoreError::download(url, why);
    let disk = |path: &Path| {
        let (url, path) = (ShownUrl::of(url), path.to_owned());
        move |source| StoreError::Io { url, path, source }
    };
    let listed = remote.list(url, limits.files_max).await.map_err(|error| failed(error.why))?;
    let files = placed(&listed).map_err(failed)?;
    std::fs::create_dir_all(target).map_err(disk(target))?;
    let most = bytes_max(limits.fetched_bytes_max, free_bytes(target).unwrap_or(u64::MAX));
    let mut left = most;
    for (path, file) in files {
        let over = || failed(format!("its files are larger than {most} bytes together"));
        left = left.checked_sub(file.bytes).ok_or_else(over)?;
        let place = target.join(path);
        let parent = place.parent().unwrap_or(target);
        std::fs::create_dir_all(parent).map_err(disk(parent))?;
        let ask = DownloadRequest { url: &file.url, ..DownloadRequest::default() };
        fetch::fetch(remote, ask, place, file.bytes).await?.keep();
    }
    Ok(())
}

/// Where each file goes below the folder. Empty objects that stand for folders are none.
fn placed(listed: &[RemoteFile]) -> Result<Vec<(PathBuf, &RemoteFile)>, String> {
    let mut files = Vec::new();
    for file in listed {
        let below = format!("{}/", file.path.trim_end_matches('/'));
        let is_folder = file.bytes == 0
            && (below == "/" || listed.iter().any(|other| other.path.starts_with(&below)));
        if is_folder {
            continue;
        }
        let path = Path::new(&file.path);
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || file.path.is_empty() || file.path.contains(['\\', '\0']) {
            return Err(format!("it holds {:?}, which is no path below it", file.path));
        }
        files.push((path.to_owned(), file));
    }
    if files.is_empty() {
        return Err("there is nothing below it".to_owned());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, bytes: u64) -> RemoteFile {
        RemoteFile { path: path.to_owned(), url: String::new(), bytes }
    }

    #[test]
    fn files_lie_below_the_folder_and_nowhere_else() {
        let listed = [file("", 0), file("sub", 0), file("sub/a.bin", 3), file("empty", 0)];
        let files = placed(&listed).expect("paths");
        let paths: Vec<_> = files.iter().map(|(path, _)| path.to_string_lossy()).collect();
        assert_eq!(paths, ["sub/a.bin", "empty"]);
        for bad in ["../a", "/etc/passwd", "a/../../b", "a\\b", "./a"] {
            let why = placed(&[file(bad, 1)]).expect_err(bad);
            assert!(why.contains("no path below it"), "{why}");
        }
        assert!(placed(&[file("", 0)]).is_err_and(|why| why.contains("nothing below")));
    }

    #[test]
    fn a_slash_at_the_end_names_a_folder_of_a_bucket() {
        assert!(is_remote_folder("gs://bucket/models/bert/") && is_remote_folder("S3://b/"));
        for other in ["gs://bucket/m.mar", "https://host/a/", "/a/b/", "file:///a/"] {
            assert!(!is_remote_folder(other), "{other}");
        }
    }
}
