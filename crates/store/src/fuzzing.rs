//! What must hold for every archive, whatever its bytes. `fuzz/` looks for bytes for which it does not;
//! the tests try those of `fuzz/corpus` again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::allowance::Limits;
use super::jail::stays_inside;
use super::locate;
use super::manifest::Manifest;
use super::package::parse_yaml;
use super::shown_url::ShownUrl;
use super::unpack::unpack;

const BYTES_MAX: u64 = 1 << 16;

const LIMITS: Limits = Limits {
    unpacked_bytes_max: Some(BYTES_MAX),
    files_max: 64,
    fetched_bytes_max: Some(1 << 20),
    expansion_max: 20,
    expansion_exempt: 1 << 12,
};

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
    if let Ok(dir) = unpack(&file, &models, LIMITS) {
        let home = dir.path().canonicalize().expect("the directory is there");
        assert_eq!(fs::read_dir(&models).expect("a directory").count(), 1);
        let mut total = Total::default();
        total.add(&home, &home);
        assert!(total.files <= LIMITS.files_max, "{} files", total.files);
        let ratio = LIMITS.expansion_max * archive.len() as u64;
        let most = BYTES_MAX.min(ratio.max(LIMITS.expansion_exempt));
        assert!(total.bytes <= most, "{} bytes, at most {most}", total.bytes);
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

/// Reads the text as `model-config.yaml` and as a manifest.
pub fn documents(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(map) = parse_yaml(text) {
        let source = jitney_settings::SettingSource::Archive("m.mar".to_owned());
        let (values, warnings) = jitney_settings::from_archive(&map, &source);
        assert!(warnings.len() <= 4 * jitney_settings::model::SETTINGS.len());
        let record = jitney_settings::to_record(&values);
        let again = jitney_settings::from_record(&record, &source, true);
        assert_eq!(jitney_settings::to_record(&again), record, "settings survive a snapshot");
        // Numbers with a fraction are not read to the last digit, and YAML takes no unprintable letters.
        let json = Value::Object(map.clone()).to_string();
        if json.is_ascii() && !json.contains(['.', 'e', 'E', '\x7f']) {
            assert_eq!(parse_yaml(&json).ok(), Some(map), "JSON is YAML: {json}");
        }
    }
    if let Ok(document) = serde_json::from_str(text)
        && let Ok(manifest) = Manifest::from_json(&document)
    {
        let handler = manifest.handler.as_deref();
        let handler = handler.map(|name| name.split(':').next().unwrap_or(name));
        let files = [
            handler,
            manifest.serialized_file.as_deref(),
            manifest.model_file.as_deref(),
            manifest.requirements_file.as_deref(),
            manifest.config_file.as_deref(),
        ];
        for file in files.into_iter().flatten() {
            let leaves = Path::new(file).components().any(|part| {
                !matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir)
            });
            assert!(stays_inside(file) && !leaves, "{file:?}");
        }
    }
}

/// Reads the text as the URL of a model; gives what the allow-list compares, if it is one. What is
/// shown of it has no secret.
pub fn urls(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let shown = ShownUrl::of(text);
    assert_eq!(ShownUrl::of(&shown), shown, "what is shown can be shown again: {text:?}");
    if let Ok(url) = url::Url::parse(text) {
        let secrets = [Some(url.username()), url.password(), url.query(), url.fragment()];
        let has_secret = |part: &str| part.to_ascii_uppercase().contains(SECRET);
        let elsewhere = [url.scheme(), url.path(), url.host_str().unwrap_or_default()];
        let elsewhere = elsewhere.into_iter().any(has_secret);
        if url.has_host() && !elsewhere && secrets.into_iter().flatten().any(has_secret) {
            assert!(!has_secret(&shown), "{text:?} is shown as {:?}", &*shown);
        }
    }
    let url = locate::parse(text).ok()?;
    assert!(url.username().is_empty() && url.password().is_none());
    assert_eq!(url::Url::parse(url.as_str()).as_ref(), Ok(&url), "it reads as it is written");
    if text.contains("://") {
        assert_eq!(locate::serialised(text), url.as_str(), "one reading for all");
    }
    Some(url.into())
}

pub use super::repository::fuzzing::configs;

/// What a secret looks like in the corpus.
const SECRET: &str = "SECRET";

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    for (target, check) in [
        ("archives", archives as fn(&[u8])),
        ("documents", documents),
        ("urls", |bytes| drop(urls(bytes))),
        ("configs", configs),
    ] {
        for file in fs::read_dir(format!("{corpus}/{target}")).unwrap() {
            check(&fs::read(file.unwrap().path()).unwrap());
        }
    }
}
