//! Downloads from a source that plays a script, on a clock that stands still until nobody moves.

use std::{fs, sync::Mutex};

use bytes::Bytes;
use tempfile::TempDir;

use super::super::remote::Later;
use super::*;

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

impl Remote for Script {
    fn open<'a>(&'a self, _: &'a str) -> Later<'a, Result<Box<dyn Download>, String>> {
        let playing = Playing { total: self.total, acts: self.acts.clone().into_iter() };
        Box::pin(async move { Ok(Box::new(playing) as Box<dyn Download>) })
    }
}

impl Download for Playing {
    fn bytes_total(&self) -> Option<u64> {
        self.total
    }

    fn next(&mut self) -> Later<'_, Result<Option<Bytes>, String>> {
        let act = self.acts.next();
        Box::pin(async move {
            match act {
                Some(Act::Piece(text)) => Ok(Some(Bytes::from_static(text.as_bytes()))),
                Some(Act::Break) => Err("connection reset".to_owned()),
                Some(Act::Silence) => std::future::pending().await,
                None => Ok(None),
            }
        })
    }
}

/// A source that cannot be reached.
struct Nowhere;

impl Remote for Nowhere {
    fn open<'a>(&'a self, _: &'a str) -> Later<'a, Result<Box<dyn Download>, String>> {
        Box::pin(async { Err("connection refused".to_owned()) })
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

async fn download(store: &TempDir, remote: &dyn Remote) -> Result<Fetched, StoreError> {
    fetch(remote, URL, store.path().join("m.mar"), 10).await
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
    fetched.settle();
    let path = fetched.path().to_owned();
    drop(fetched);
    assert!(path.exists());
    Fetched { path: path.clone(), settled: AtomicBool::new(true) }.remove();
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn every_failure_leaves_nothing_and_says_why() {
    use Act::{Break, Piece, Silence};
    for (total, acts, expected) in [
        (None, vec![Piece("hello"), Break], "connection reset"),
        (None, vec![Piece("hello"), Silence], "no word from the other side for 60 s"),
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
    impl Remote for Rival {
        fn open<'a>(&'a self, _: &'a str) -> Later<'a, Result<Box<dyn Download>, String>> {
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

#[test]
fn the_log_does_not_tell_passwords() {
    for (url, expected) in [
        ("https://host/a.mar?X-Amz-Signature=s#x", "https://host/a.mar"),
        ("https://user:secret@host/a.mar", "host/a.mar"),
        ("https://host/a@b.mar", "https://host/a@b.mar"),
        ("plain", "plain"),
    ] {
        assert_eq!(without_secrets(url), expected);
    }
}
