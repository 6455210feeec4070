//! Downloads from a source that plays a script, on a clock that stands still until nobody moves.

use std::{fs, sync::Mutex, time::Duration};

use bytes::Bytes;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::download::{Download, DownloadError, DownloadFuture};

/// What the source does next.
#[derive(Clone)]
enum Act {
    Piece(&'static str),
    Break,
    Silence,
}

struct Script {
    total: Option<u64>,
    acts: Vec<Act>,
}

struct Playing {
    total: Option<u64>,
    acts: std::vec::IntoIter<Act>,
}

impl Downloader for Script {
    fn open<'a>(
        &'a self,
        _: DownloadRequest<'a>,
    ) -> DownloadFuture<'a, Result<Box<dyn Download>, DownloadError>> {
        let playing = Playing { total: self.total, acts: self.acts.clone().into_iter() };
        Box::pin(async move { Ok(Box::new(playing) as Box<dyn Download>) })
    }
}

impl Download for Playing {
    fn bytes_total(&self) -> Option<u64> {
        self.total
    }

    fn next(&mut self) -> DownloadFuture<'_, Result<Option<Bytes>, DownloadError>> {
        let act = self.acts.next();
        Box::pin(async move {
            match act {
                Some(Act::Piece(text)) => Ok(Some(Bytes::from_static(text.as_bytes()))),
                Some(Act::Break) => Err(DownloadError::transient("connection reset")),
                Some(Act::Silence) => std::future::pending().await,
                None => Ok(None),
            }
        })
    }
}

/// A source that cannot be reached.
struct Nowhere;

impl Downloader for Nowhere {
    fn open<'a>(
        &'a self,
        _: DownloadRequest<'a>,
    ) -> DownloadFuture<'a, Result<Box<dyn Download>, DownloadError>> {
        Box::pin(async { Err(DownloadError::transient("connection refused")) })
    }
}

const URL: &str = "http://host/m.mar";

fn store() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn names(store: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(store.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn download(store: &TempDir, remote: &dyn Downloader) -> Result<FetchedFile, StoreError> {
    fetch(
        remote,
        DownloadRequest { url: URL, ..DownloadRequest::default() },
        store.path().join("m.mar"),
        10,
    )
    .await
}

async fn why(total: Option<u64>, acts: &[Act]) -> String {
    let store = store();
    let error = download(&store, &Script { total, acts: acts.to_vec() }).await.unwrap_err();
    assert_eq!(names(&store), [""; 0], "left behind after: {error}");
    assert_eq!(error.to_string(), format!("Failed to download archive from: {URL}"));
    error.detail().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_complete_download_takes_its_name_and_leaves_with_its_owner() {
    let store = store();
    let acts = vec![Act::Piece("hello"), Act::Piece("world")];
    let fetched = download(&store, &Script { total: Some(10), acts }).await.unwrap();
    assert_eq!(names(&store), ["m.mar"]);
    assert_eq!(fs::read(fetched.path()).unwrap(), b"helloworld");
    drop(fetched);
    assert_eq!(names(&store), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_settled_download_stays_until_it_is_removed() {
    let store = store();
    let script = Script { total: None, acts: vec![Act::Piece("x")] };
    let fetched = download(&store, &script).await.unwrap();
    fetched.keep();
    let path = fetched.path().to_owned();
    drop(fetched);
    assert!(path.exists());
    FetchedFile { path: path.clone(), kept: AtomicBool::new(true) }.remove();
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn every_failure_leaves_nothing_and_says_why() {
    use Act::{Break, Piece, Silence};
    for (total, acts, expected) in [
        (None, vec![Piece("hello"), Break], "connection reset"),
        (None, vec![Piece("hello"), Silence], "the server sent nothing for 60 s"),
        (None, vec![Piece("hello"), Piece("hello!")], "it is larger than 10 bytes"),
        (Some(11), vec![], "it is larger than 10 bytes"),
        (Some(9), vec![Piece("hello")], "it ended after 5 bytes"),
    ] {
        assert_eq!(why(total, &acts).await, expected);
    }
    let error = download(&store(), &Nowhere).await.unwrap_err();
    assert_eq!(error.detail().as_deref(), Some("connection refused"));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_appeared_meanwhile_is_not_overwritten() {
    /// Puts the file there while it is being downloaded.
    struct Rival(Mutex<PathBuf>);
    impl Downloader for Rival {
        fn open<'a>(
            &'a self,
            _: DownloadRequest<'a>,
        ) -> DownloadFuture<'a, Result<Box<dyn Download>, DownloadError>> {
            fs::write(&*self.0.lock().unwrap(), "first").unwrap();
            let acts = vec![Act::Piece("second")].into_iter();
            Box::pin(async { Ok(Box::new(Playing { total: None, acts }) as Box<dyn Download>) })
        }
    }
    let store = store();
    let path = store.path().join("m.mar");
    let error = download(&store, &Rival(Mutex::new(path.clone()))).await.unwrap_err();
    assert_eq!(error.to_string(), "Model file already exists m.mar");
    assert_eq!(fs::read(path).unwrap(), b"first");
    assert_eq!(names(&store), ["m.mar"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_takes_the_download_along() {
    let store = store();
    let script = Script { total: None, acts: vec![Act::Piece("x"), Act::Silence] };
    let cut = timeout(Duration::from_secs(1), download(&store, &script)).await;
    assert!(cut.is_err());
    assert_eq!(names(&store), [""; 0]);
}

/// A file of ten bytes whose connections break after so many pieces each, and which may change.
struct Flaky {
    /// Pieces of one byte before each break; the last connection gives all the rest.
    breaks: Vec<usize>,
    /// The tag, by connection; none where the list is too short.
    tags: Vec<&'static str>,
    /// What was asked for: where to begin, if not at the beginning.
    asked: Mutex<Vec<Option<u64>>>,
}

struct Part {
    begins_at: u64,
    tag: Option<&'static str>,
    bytes: Vec<u8>,
    left: usize,
}

impl Downloader for Flaky {
    fn open<'a>(
        &'a self,
        ask: DownloadRequest<'a>,
    ) -> DownloadFuture<'a, Result<Box<dyn Download>, DownloadError>> {
        let mut asked = self.asked.lock().unwrap();
        let turn = asked.len();
        asked.push(ask.resume.map(|resume| resume.bytes));
        let tag = self.tags.get(turn).copied();
        let same = ask.resume.filter(|resume| Some(resume.tag) == tag);
        let begins_at = same.map_or(0, |resume| resume.bytes);
        let letter = if tag == Some("new") { b'b' } else { b'a' };
        let bytes = vec![letter; 10 - begins_at as usize];
        let left = self.breaks.get(turn).copied().unwrap_or(10);
        Box::pin(
            async move { Ok(Box::new(Part { begins_at, tag, bytes, left }) as Box<dyn Download>) },
        )
    }
}

impl Download for Part {
    fn bytes_total(&self) -> Option<u64> {
        Some(10)
    }

    fn begins_at(&self) -> u64 {
        self.begins_at
    }

    fn tag(&self) -> Option<&str> {
        self.tag
    }

    fn next(&mut self) -> DownloadFuture<'_, Result<Option<Bytes>, DownloadError>> {
        Box::pin(async {
            let byte = self.bytes.pop();
            self.left =
                self.left.checked_sub(1).ok_or_else(|| DownloadError::transient("reset"))?;
            Ok(byte.map(|byte| Bytes::from(vec![byte])))
        })
    }
}

async fn flaky(breaks: &[usize], tags: &[&'static str]) -> (Vec<Option<u64>>, Option<Vec<u8>>) {
    let remote = Flaky { breaks: breaks.to_vec(), tags: tags.to_vec(), asked: Mutex::default() };
    let store = store();
    let fetched = download(&store, &remote).await;
    let bytes = fetched.ok().map(|fetched| fs::read(fetched.path()).unwrap());
    assert_eq!(names(&store), [""; 0]);
    (remote.asked.into_inner().unwrap(), bytes)
}

#[tokio::test(start_paused = true)]
async fn a_download_goes_on_where_it_broke_off() {
    let (asked, bytes) = flaky(&[4, 3], &["x", "x", "x"]).await;
    assert_eq!(asked, [None, Some(4), Some(7)]);
    assert_eq!(bytes.as_deref(), Some(&b"aaaaaaaaaa"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changed_or_has_no_tag_begins_anew() {
    let (asked, bytes) = flaky(&[4], &["old", "new"]).await;
    assert_eq!(asked, [None, Some(4)]);
    assert_eq!(bytes.as_deref(), Some(&b"bbbbbbbbbb"[..]));
    let (asked, bytes) = flaky(&[4], &[]).await;
    assert_eq!(asked, [None, None]);
    assert_eq!(bytes.as_deref(), Some(&b"aaaaaaaaaa"[..]));
}

#[tokio::test(start_paused = true)]
async fn the_tries_are_bounded() {
    let (asked, bytes) = flaky(&[1; 20], &["x"; 20]).await;
    assert_eq!(asked, [None, Some(1), Some(2), Some(3), Some(4), Some(5)]);
    assert_eq!(bytes, None);
}
