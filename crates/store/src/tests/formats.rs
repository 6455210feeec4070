//! Every form in which a model can come, and how it goes again.

use std::{fs, os::unix::fs::PermissionsExt};

use tar::EntryType;

use super::{
    super::StoreError,
    Bench,
    archives::{Member, gz, model, tar, tgz_of, zip, zip_of, zip_with},
    text,
};

/// Puts an archive into the store and opens it: it must be the model `m`, whole.
fn check(name: &str, archive: Vec<u8>) {
    let bench = Bench::new();
    bench.put(name, archive);
    let package = bench.open(name).unwrap();
    assert_eq!(&*package.url, name);
    assert_eq!(package.manifest.model_name.as_deref(), Some("m"), "{name}");
    assert_eq!(package.manifest_json["model"]["handler"], "handler.py");
    assert_eq!(text(&package, "data/words.txt"), "ride".repeat(100));
    assert!(package.downloaded.is_none());
}

#[test]
fn a_zip_is_unpacked_as_it_is() {
    check("m.mar", zip(&model("m", "")));
}

#[test]
fn a_tar_loses_its_leading_directory_compressed_or_not() {
    check("m.tar.gz", tgz_of(&model("m", "top/")));
    check("m.tgz", tgz_of(&model("m", "./top/")));
    check(
        "m.tar",
        tar(&[
            Member::file("top/MAR-INF/MANIFEST.json", &super::archives::manifest("m")),
            Member::file("top/handler.py", ""),
            Member::file("top/data/words.txt", &"ride".repeat(100)),
        ]),
    );
}

#[test]
fn a_tar_without_a_leading_directory_is_served_too() {
    check("m.tar.gz", tgz_of(&model("m", "")));
    check("m.tgz", tgz_of(&model("m", "./")));
}

#[test]
fn what_finder_strews_about_does_not_hide_the_leading_directory() {
    let mut members = model("m", "top/");
    members.insert(0, ("._top".to_owned(), "litter".to_owned()));
    check("m.tgz", tgz_of(&members));
}

#[test]
fn the_first_bytes_say_what_an_archive_is_not_its_name() {
    check("m.mar", tgz_of(&model("m", "top/")));
    check("m.tar.gz", zip(&model("m", "")));
    check("m", zip(&model("m", "")));
}

#[test]
fn an_unpacked_copy_has_a_private_name_and_leaves_with_its_package() {
    let bench = Bench::new();
    bench.put("m.tgz", tgz_of(&model("m", "top/")));
    let (one, two) = (bench.open("m.tgz").unwrap(), bench.open("m.tgz").unwrap());
    let path = one.dir.path().to_owned();
    assert_eq!(path.parent().unwrap(), bench.path("scratch/models"));
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(bench.unpacked(), 2);
    drop(one);
    assert!(!path.exists());
    drop(two);
    assert_eq!(bench.unpacked(), 0);
}

#[test]
fn unpacked_files_have_sane_permissions() {
    let bench = Bench::new();
    let plain = Member { mode: 0o7000, ..Member::file("top/plain", "") };
    let program = Member { mode: 0o100, ..Member::file("top/program", "") };
    bench.put("m.tgz", gz(&tar(&[plain, program])));
    let package = bench.open("m.tgz").unwrap();
    let mode = |name: &str| {
        let path = package.dir.path().join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    };
    // The umask of whoever runs the test may take rights away, never add some.
    assert_eq!(mode("."), 0o700);
    assert_eq!((mode("plain") | 0o044, mode("program") | 0o055), (0o644, 0o755));
}

#[test]
fn links_inside_an_archive_are_kept() {
    let bench = Bench::new();
    let archive = tar(&[
        Member::of(EntryType::Symlink, "top/snapshots/words", "../blobs/1"),
        Member::of(EntryType::Link, "top/twin", "top/blobs/1"),
        Member::of(EntryType::Symlink, "top/latest", "snapshots"),
        Member::file("top/blobs/1", "ride"),
    ]);
    bench.put("m.tgz", gz(&archive));
    let package = bench.open("m.tgz").unwrap();
    for name in ["blobs/1", "twin", "snapshots/words", "latest/words"] {
        assert_eq!(text(&package, name), "ride", "{name}");
    }
}

#[test]
fn a_readable_archive_without_a_manifest_gets_the_default_one() {
    let bench = Bench::new();
    bench.put("m.mar", zip_of("handler.py", ""));
    bench.put("empty.mar", zip(&[]));
    for name in ["m.mar", "empty.mar"] {
        let package = bench.open(name).unwrap();
        assert_eq!(
            (package.manifest.version(), package.manifest.model_name.as_ref()),
            ("1.0", None)
        );
        assert_eq!(package.manifest_json, serde_json::json!({}));
    }
}

#[test]
fn a_manifest_that_is_no_json_is_rejected() {
    let bench = Bench::new();
    for content in ["", "{", "[]", "\u{1}"] {
        let error = bench.rejects("m.mar", zip_of("MAR-INF/MANIFEST.json", content));
        assert!(matches!(error, StoreError::InvalidManifest { .. }), "{content:?}: {error}");
    }
    let directory = zip_with(|zip, options| {
        zip.add_directory("MAR-INF/MANIFEST.json", options).unwrap();
    });
    assert!(matches!(bench.rejects("m.mar", directory), StoreError::InvalidManifest { .. }));
}

#[test]
fn a_directory_is_served_in_place_and_never_touched() {
    let bench = Bench::new();
    for (name, content) in model("m", "m/") {
        bench.put(&name, content);
    }
    let before = bench.outside();
    let package = bench.open("m").unwrap();
    assert_eq!(package.dir.path(), bench.path("store/m"));
    assert_eq!(package.manifest.model_name.as_deref(), Some("m"));
    drop(package);
    assert_eq!((bench.outside(), bench.unpacked()), (before, 0));
}

#[test]
fn a_directory_around_one_directory_is_its_wrapping() {
    let bench = Bench::new();
    bench.put("wrapped/inner/handler.py", "");
    bench.put("manifest/MAR-INF/MANIFEST.json", "{}");
    bench.put("two/a/handler.py", "");
    bench.put("two/b/handler.py", "");
    bench.put("beside/a/handler.py", "");
    bench.put("beside/readme", "");
    for (url, expected) in [
        ("wrapped", "store/wrapped/inner"),
        ("manifest", "store/manifest"),
        ("two", "store/two"),
        ("beside", "store/beside"),
    ] {
        assert_eq!(bench.open(url).unwrap().dir.path(), bench.path(expected), "{url}");
    }
}
