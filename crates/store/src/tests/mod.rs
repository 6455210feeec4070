//! The bench that the tests of the store work on: a store, a scratch directory, archives to order.

mod archives;
mod broken;
mod formats;
mod hostile;
mod noise;
mod settings;
mod urls;

use std::{collections::BTreeMap, fs, path::PathBuf};

use tempfile::TempDir;

use super::{Limits, Package, Store, StoreConfig, StoreError};

/// A store in a directory of its own. `outside` lies beside it and must never change.
struct Bench {
    root: TempDir,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["store", "outside"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::write(root.path().join("outside/secret"), "untouched").unwrap();
        let config = StoreConfig {
            model_store: Some(root.path().join("store")),
            scratch: root.path().join("scratch"),
            cache: None,
            limits,
            url_allowed: Box::new(|url| !url.contains("forbidden")),
            remote: None,
        };
        Self { root, store: Store::new(config) }
    }

    /// A path beside the store.
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Puts a file into the store, with the directories above it.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path("store").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn open(&self, url: &str) -> Result<Package, StoreError> {
        self.store.open(url, self.store.find(url, false)?)
    }

    /// Opens an archive that must be rejected, and checks that it leaves nothing behind.
    fn rejects(&self, name: &str, archive: impl AsRef<[u8]>) -> StoreError {
        self.put(name, archive);
        let before = self.outside();
        let error = self.open(name).expect_err("it should have been rejected");
        assert_eq!(self.unpacked(), 0, "left behind after: {error}");
        assert_eq!(self.outside(), before, "written outside after: {error}");
        error
    }

    /// How many unpacked models there are.
    fn unpacked(&self) -> usize {
        fs::read_dir(self.path("scratch/models")).map_or(0, Iterator::count)
    }

    /// Everything outside the scratch directory, with its content.
    fn outside(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut todo = vec![self.root.path().to_owned()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && path != self.path("scratch") {
                    todo.push(path.clone());
                }
                found.insert(path.clone(), fs::read(&path).unwrap_or_default());
            }
        }
        found.remove(&self.path("scratch"));
        found
    }
}

/// A file of an opened model.
fn text(package: &Package, name: &str) -> String {
    fs::read_to_string(package.dir.path().join(name)).unwrap()
}
