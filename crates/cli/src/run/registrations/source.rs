//! Where the shared list is read from: a file, a directory of files (a ConfigMap that is mounted), a web
//! server or a bucket. A file that changed is read until it stands still: it may be on its way.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jitney_engine::store::ShownUrl;

use super::document::ListDocument;
use crate::fetch::RemoteFetcher;

/// Between two readings of a file that changed.
const STILL: Duration = Duration::from_millis(100);
/// Readings of a file that goes on changing.
const READINGS_MAX: usize = 20;
/// The longest list.
const BYTES_MAX: u64 = 4 << 20;
/// How long another machine may take.
const REMOTE_TIME: Duration = Duration::from_secs(30);

/// Where the list is.
pub struct DocumentSource {
    address: ListAddress,
    /// What was read last.
    last: Option<ListDocument>,
}

enum ListAddress {
    Path(PathBuf),
    Url {
        url: String,
        fetcher: RemoteFetcher,
        /// What the other side called what was read last.
        tag: Option<String>,
    },
}

impl DocumentSource {
    /// A path, or a URL.
    pub fn new(text: &str, fetcher: RemoteFetcher) -> Self {
        let address = if text.contains("://") {
            ListAddress::Url { url: text.to_owned(), fetcher, tag: None }
        } else {
            ListAddress::Path(PathBuf::from(text))
        };
        Self { address, last: None }
    }

    /// As it may be shown.
    pub fn shown(&self) -> String {
        match &self.address {
            ListAddress::Path(path) => path.display().to_string(),
            ListAddress::Url { url, .. } => ShownUrl::of(url).to_string(),
        }
    }

    /// The list, if it is not what was read last.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn read(&mut self) -> Result<Option<ListDocument>, String> {
        let read = match &mut self.address {
            ListAddress::Path(path) => Some(still(path.clone(), self.last.as_ref()).await?),
            ListAddress::Url { url, fetcher, tag } => {
                let asked = fetcher.document(url, tag.as_deref(), BYTES_MAX);
                let silent = |_| format!("no answer within {} s", REMOTE_TIME.as_secs());
                let answer = tokio::time::timeout(REMOTE_TIME, asked).await.map_err(silent)?;
                match answer.map_err(|error| error.why)? {
                    None => None,
                    Some((bytes, new)) => {
                        *tag = new;
                        let shown = ShownUrl::of(url).to_string();
                        let text = String::from_utf8(bytes).map_err(|_| "it is no text")?;
                        Some(ListDocument { files: vec![(shown, text)] })
                    }
                }
            }
        };
        let changed = read.filter(|read| self.last.as_ref() != Some(read));
        if changed.is_some() {
            self.last.clone_from(&changed);
        }
        Ok(changed)
    }
}

/// Reads a path; where it is not what it was, until two readings are the same.
async fn still(path: PathBuf, last: Option<&ListDocument>) -> Result<ListDocument, String> {
    let mut read = once(path.clone()).await?;
    if last == Some(&read) {
        return Ok(read);
    }
    for _ in 0..READINGS_MAX {
        tokio::time::sleep(STILL).await;
        let again = once(path.clone()).await?;
        if again == read {
            return Ok(read);
        }
        read = again;
    }
    Err("it goes on changing".to_owned())
}

async fn once(path: PathBuf) -> Result<ListDocument, String> {
    let reading = tokio::task::spawn_blocking(move || at(&path).map_err(|error| error.to_string()));
    reading.await.map_err(|panic| panic.to_string())?
}

/// Links are followed anew each time, so that whoever swaps one swaps all. Hidden files are not looked at:
/// Kubernetes keeps its own beside those of a ConfigMap.
fn at(path: &Path) -> io::Result<ListDocument> {
    if !path.is_dir() {
        return Ok(ListDocument { files: vec![file(path)?] });
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let listed = name.ends_with(".yaml") || name.ends_with(".yml");
        if listed && !name.starts_with('.') {
            files.push(file(&entry.path())?);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(io::Error::other("the directory has no .yaml file"));
    }
    Ok(ListDocument { files })
}

fn file(path: &Path) -> io::Result<(String, String)> {
    if path.metadata()?.len() > BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {BYTES_MAX} bytes")));
    }
    Ok((path.to_string_lossy().into_owned(), std::fs::read_to_string(path)?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use tokio::runtime::Handle;

    use super::*;
    use crate::env::Env;
    use crate::url_rule::UrlRule;

    fn source(path: &Path) -> DocumentSource {
        let urls = Arc::new(UrlRule::named([]));
        let fetcher = RemoteFetcher::new(urls, &Env::default(), Handle::current());
        DocumentSource::new(&path.to_string_lossy(), fetcher)
    }

    fn texts(read: Option<ListDocument>) -> Vec<String> {
        read.unwrap_or_default().files.into_iter().map(|(_, text)| text).collect()
    }

    /// What the kubelet does: the files are links through `..data`, which it swaps.
    #[tokio::test]
    async fn a_config_map_that_is_swapped_has_changed() {
        let directory = tempfile::tempdir().expect("directory");
        let root = directory.path();
        let mount = |version: &str, text: &str| {
            std::fs::create_dir(root.join(version)).expect("directory");
            std::fs::write(root.join(version).join("a.yaml"), text).expect("file");
            symlink(version, root.join("..new")).expect("link");
            std::fs::rename(root.join("..new"), root.join("..data")).expect("swap");
        };
        mount("..one", "first");
        symlink("..data/a.yaml", root.join("a.yaml")).expect("link");
        for place in [root.to_owned(), root.join("a.yaml")] {
            let mut source = source(&place);
            assert_eq!(texts(source.read().await.expect("reads")), ["first"]);
            assert_eq!(source.read().await.expect("reads"), None, "nothing changed");
        }
        let mut source = source(root);
        source.read().await.expect("reads");
        mount("..two", "second");
        assert_eq!(texts(source.read().await.expect("reads")), ["second"]);
        std::fs::remove_file(root.join("a.yaml")).expect("removes");
        let error = source.read().await.expect_err("nothing there");
        assert_eq!(error, "the directory has no .yaml file");
    }
}
