//! What must hold for every archive, whatever its bytes. `fuzz/` looks for bytes for which it does not;
//! the tests try those of `fuzz/corpus` again.

use std::{collections::BTreeMap, fs, path::Path};

use super::{config::Limits, unpack::unpack};

const LIMITS: Limits =
    Limits { unpacked_bytes_max: 1 << 16, files_max: 64, fetched_bytes_max: 1 << 20 };

/// Unpacks the bytes as an archive: nothing is written outside of its directory, its limits hold, and
/// what fails leaves nothing behind. The first byte decides what the file is called.
pub fn archives(bytes: &[u8]) {
    let Some((first, archive)) = bytes.split_first() else { return };
    let root = tempfile::tempdir().expect("a directory");
    let name = ["a.mar", "a.tar.gz"][usize::from(first % 2)];
    let file = root.path().join(name);
    fs::write(&file, archive).expect("a file");
    fs::write(root.path().join("secret"), "untouched").expect("a file");
    let models = root.path().join("models");
    match unpack(&file, &models, LIMITS) {
        Ok(dir) => {
            let home = dir.path().canonicalize().expect("the directory is there");
            assert_eq!(fs::read_dir(&models).expect("a directory").count(), 1);
            let mut total = Total::default();
            total.add(&home, &home);
            assert!(total.files <= LIMITS.files_max, "{} files", total.files);
            assert!(total.bytes <= LIMITS.unpacked_bytes_max, "{} bytes", total.bytes);
        }
        Err(_) => {}
    }
    let left = fs::read_dir(&models).map_or(0, Iterator::count);
    assert_eq!(left, 0, "something is left behind");
    let outside: BTreeMap<_, _> = fs::read_dir(root.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| *path != models)
        .map(|path| (path.clone(), fs::read(path).unwrap_or_default()))
        .collect();
    let expected =
        [(file, archive.to_vec()), (root.path().join("secret"), b"untouched".to_vec())].into();
    assert_eq!(outside, expected, "something was written outside");
}

/// What an archive made.
#[derive(Default)]
struct Total {
    files: u64,
    bytes: u64,
}

impl Total {
    /// Counts a directory; every path in it ends inside `home`, links followed.
    fn add(&mut self, home: &Path, dir: &Path) {
        for entry in fs::read_dir(dir).expect("a directory") {
            let entry = entry.expect("an entry");
            let end = entry.path().canonicalize().expect("no link leads nowhere");
            assert!(end.starts_with(home), "{end:?} is outside {home:?}");
            let kind = entry.file_type().expect("a type");
            assert!(kind.is_dir() || kind.is_file() || kind.is_symlink(), "{kind:?}");
            self.files += 1;
            if kind.is_dir() {
                self.add(home, &entry.path());
            } else if kind.is_file() && std::os::unix::fs::MetadataExt::nlink(&meta(&entry)) == 1 {
                self.bytes += meta(&entry).len();
            }
        }
    }
}

fn meta(entry: &fs::DirEntry) -> fs::Metadata {
    entry.metadata().expect("a file")
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/archives");
    for file in fs::read_dir(corpus).unwrap() {
        archives(&fs::read(file.unwrap().path()).unwrap());
    }
}
