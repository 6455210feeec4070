//! Which url leads where, and what is said when it leads nowhere.

use std::fs;

use super::super::models_in;
use super::{
    super::{DownloadRequest, Limits, ModelSource, Store, StoreConfig},
    Bench,
    archives::{model, zip},
};

fn check(bench: &Bench, url: &str, expected: &str) {
    let error = bench.open(url).expect_err(url);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn unusable_urls_are_rejected_with_their_reason() {
    let bench = Bench::new();
    bench.put("here.mar", "");
    for (url, expected) in [
        ("", "empty url"),
        ("absent.mar", "Model not found at: absent.mar"),
        ("a\0b", "Model not found at: a\0b"),
        ("../up.mar", "Relative path is not allowed in url: ../up.mar"),
        ("http://host/../a.mar", "Relative path is not allowed in url: http://host/../a.mar"),
        ("ftp://127.0.0.1/a.mar", "Model not found at: ftp://127.0.0.1/a.mar"),
        ("http://forbidden/a", "Given URL http://forbidden/a does not match any allowed URL(s)"),
        ("FILE:///forbidden", "Given URL FILE:///forbidden does not match any allowed URL(s)"),
        ("https://host/here.mar?x=1", "Model file already exists here.mar"),
        ("http://host/far.mar", "Failed to download archive from: http://host/far.mar"),
        ("http://", "Failed to download archive from: http://"),
        ("file:///absent.mar", "Failed to download archive from: file:///absent.mar"),
        ("file://", "Failed to download archive from: file://"),
        ("file:///a/%2e%2E/b", "Relative path is not allowed in url: file:///a/%2e%2E/b"),
        ("http://bob:pw@h\\x/a?s=1", "Invalid url http://h/x/a?…: it has a backslash."),
        (
            "http://forbidden/a?sig=S",
            "Given URL http://forbidden/a?… does not match any allowed URL(s)",
        ),
    ] {
        check(&bench, url, expected);
    }
    assert_eq!(bench.unpacked(), 0);
}

#[test]
fn at_start_up_a_remote_file_that_is_in_the_store_is_not_fetched_again() {
    let bench = Bench::new();
    bench.put("here.mar", zip(&model("here", "")));
    let found = bench.store.find("https://host/here.mar", true).unwrap();
    let package = bench.store.open("https://host/here.mar", found).unwrap();
    assert!(package.downloaded.is_none(), "it was there before and stays");
}

#[test]
fn only_the_last_element_is_looked_up_in_the_store() {
    let bench = Bench::new();
    bench.put("m.mar", zip(&model("m", "")));
    for url in ["m.mar", "/somewhere/else/m.mar", "dir/m.mar"] {
        assert_eq!(&*bench.open(url).unwrap().url, url);
    }
    fs::write(bench.path("outside/n.mar"), zip(&model("n", ""))).unwrap();
    let url = bench.path("outside/n.mar").to_str().unwrap().to_owned();
    check(&bench, &url, &format!("Model not found at: {url}"));
}

#[tokio::test]
async fn file_urls_lead_to_files_anywhere_with_their_escapes_and_leave_a_copy() {
    let bench = Bench::new();
    fs::write(bench.path("outside/my model.mar"), zip(&model("m", ""))).unwrap();
    let (store, outside) = (&bench.store, bench.path("outside"));
    for host in ["", "localhost"] {
        let url = format!("file://{host}{}/my%20model.mar", outside.display());
        let ask = DownloadRequest { url: &url, signed: false, resume: None };
        let found = store.fetch(ask, store.find(&url, false).unwrap()).await.unwrap();
        let package = store.open(&url, found).unwrap();
        assert_eq!(package.manifest.model_name.as_deref(), Some("m"));
        assert!(bench.path("store/my model.mar").exists(), "for the next start");
        assert!(
            store.find(&url, true).unwrap().fetched().is_none(),
            "at start-up it is used in place"
        );
        check(&bench, &url, "Model file already exists my model.mar");
        let inside = format!("file://{host}{}/my%20model.mar", bench.path("store").display());
        assert!(matches!(store.find(&inside, false), Ok(ModelSource::Archive(_))));
        drop(package);
        assert!(!bench.path("store/my model.mar").exists(), "no model kept it");
    }
    assert!(bench.path("outside/my model.mar").exists());
}

/// A store whose allow-list names nothing but `named`, as `jitney serve` has it.
fn strict(bench: &Bench, named: Option<&str>) -> Store {
    let named = named.map(super::super::serialised);
    Store::new(StoreConfig {
        model_store: Some(bench.path("store")),
        scratch: bench.path("scratch"),
        cache: None,
        limits: Limits::default(),
        url_allowed: Box::new(move |url| named.as_deref() == Some(url)),
        remote: None,
    })
}

#[test]
fn clients_name_paths_below_the_store_only() {
    let bench = Bench::new();
    bench.put("in/model/handler.py", "");
    bench.put("m.mar", zip(&model("m", "")));
    fs::create_dir(bench.path("outside/model")).unwrap();
    fs::write(bench.path("outside/n.mar"), zip(&model("n", ""))).unwrap();
    let link = |to: &str, from: &str| {
        std::os::unix::fs::symlink(bench.path(to), bench.path(from)).unwrap();
    };
    link("outside/model", "store/out");
    link("outside/n.mar", "store/n.mar");
    link("store/in/model", "outside/back");
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let store = strict(&bench, None);
    for url in ["m.mar", "in", &at("store/in/model"), &at("outside/back")] {
        assert!(store.find(url, false).is_ok(), "{url}");
    }
    let closed =
        ["outside/model", "outside/none", "outside/model/", "store/out", "", "store"].map(at);
    for url in closed.iter().map(String::as_str).chain(["out", "n.mar", "/", "/etc"]) {
        let error = store.find(url, false).expect_err(url).to_string();
        let expected = format!(
            "Model not found at: {url}. Put it below the model store {}, or name it on the command \
             line or in allowed_urls.",
            at("store")
        );
        assert_eq!(error, expected);
    }
    let outside = at("outside/model");
    assert!(store.find(&outside, true).is_ok(), "the command line may name any");
    let named = strict(&bench, Some(&outside));
    for url in [&outside, "out"] {
        let found = named.find(url, false).unwrap();
        assert!(
            matches!(found, ModelSource::Directory(path) if path == bench.path("outside/model"))
        );
    }
}

#[tokio::test]
async fn a_file_url_tells_nothing_about_files_that_are_no_archives() {
    let bench = Bench::new();
    let fetch = async |url: &str| {
        let found = bench.store.find(url, false)?;
        bench.store.fetch(DownloadRequest { url, ..DownloadRequest::default() }, found).await
    };
    for name in ["secret", "absent"] {
        let url = format!("file://{}", bench.path("outside").join(name).display());
        let error = fetch(&url).await.unwrap_err();
        assert_eq!(error.to_string(), format!("Failed to download archive from: {url}"));
    }
    fs::write(bench.path("outside/m.mar"), zip(&model("m", ""))).unwrap();
    let url = format!("file://{}", bench.path("outside/m.mar").display());
    let fetched = fetch(&url).await.unwrap();
    let mode = fs::metadata(fetched.file().unwrap()).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

#[tokio::test]
async fn only_so_many_archives_are_unpacked_at_a_time() {
    let bench = Bench::new();
    let archive = ModelSource::Archive("m.mar".into());
    let turns = (bench.store.turn(&archive).await, bench.store.turn(&archive).await);
    let directory = ModelSource::Directory("m".into());
    drop(bench.store.turn(&directory).await);
    let mut third = std::pin::pin!(bench.store.turn(&archive));
    assert!(
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(third.as_mut().poll(context).is_pending())
        })
        .await
    );
    drop(turns);
    drop(third.await);
}

#[test]
fn a_directory_may_lie_anywhere() {
    let bench = Bench::new();
    fs::create_dir(bench.path("outside/model")).unwrap();
    for url in [bench.path("outside/model"), bench.path("outside/model/")] {
        let package = bench.open(url.to_str().unwrap()).unwrap();
        assert_eq!(package.dir.path(), bench.path("outside/model"));
    }
    let url = format!("file://{}", bench.path("outside/model").display());
    assert_eq!(bench.open(&url).unwrap().dir.path(), bench.path("outside/model"));
    assert!(bench.path("outside/model").exists());
}

#[test]
fn an_archive_of_the_store_comes_before_a_directory_of_the_same_name_elsewhere() {
    let bench = Bench::new();
    bench.put("model", zip(&model("m", "")));
    fs::create_dir(bench.path("outside/model")).unwrap();
    let package = bench.open(bench.path("outside/model").to_str().unwrap()).unwrap();
    assert_eq!(package.manifest.model_name.as_deref(), Some("m"));
}

#[test]
fn without_a_store_only_directories_and_file_urls_are_found() {
    let bench = Bench::new();
    let store = Store::new(StoreConfig {
        model_store: None,
        scratch: bench.path("scratch"),
        cache: None,
        limits: Limits::default(),
        url_allowed: Box::new(|_| true),
        remote: None,
    });
    fs::write(bench.path("outside/m.mar"), zip(&model("m", ""))).unwrap();
    for url in ["m.mar", "http://host/m.mar"] {
        let error = store.find(url, false).unwrap_err();
        assert_eq!(error.to_string(), "Model store has not been configured.");
    }
    assert!(store.find(bench.path("outside").to_str().unwrap(), false).is_ok());
    assert!(
        store.find(&format!("file://{}/m.mar", bench.path("outside").display()), false).is_ok()
    );
}

#[test]
fn the_list_has_archives_and_directories_in_order() {
    let bench = Bench::new();
    for name in ["b.mar", "a.tar.gz", "c.tgz", "dir/handler.py", "notes.txt", ".hidden.mar"] {
        bench.put(name, "");
    }
    bench.put(".git/config", "");
    assert_eq!(models_in(&bench.path("store")), ["a.tar.gz", "b.mar", "c.tgz", "dir"]);
}
