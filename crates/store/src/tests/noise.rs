//! Properties: whatever the bytes, opening never panics, never writes outside the scratch
//! directory, and leaves nothing behind when it fails.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*, sample::select};
use tar::EntryType;

use super::{
    super::Limits,
    Bench,
    archives::{Member, gz, model, tar, tgz_of, zip},
};

/// Opens an archive and checks what must hold for every archive.
fn check(name: &str, archive: &[u8]) {
    let bench = Bench::with_limits(Limits {
        unpacked_bytes_max: Some(1 << 20),
        files_max: 100,
        ..Limits::default()
    });
    bench.put(name, archive);
    let before = bench.outside();
    match bench.open(name) {
        Ok(package) => assert_inside(package.dir.path(), package.dir.path()),
        Err(_) => assert_eq!(bench.unpacked(), 0),
    }
    assert_eq!(bench.outside(), before);
    assert_eq!(bench.unpacked(), 0);
}

/// Every path of an unpacked model ends inside it, links followed.
fn assert_inside(root: &Path, dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let end = entry.path().canonicalize().unwrap();
        assert!(end.starts_with(root.canonicalize().unwrap()), "{end:?} is outside {root:?}");
        if entry.file_type().unwrap().is_dir() {
            assert_inside(root, &entry.path());
        }
    }
}

fn damage(mut archive: Vec<u8>, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at.index(archive.len());
        archive[at] = *byte;
    }
    archive
}

/// A path of parts that mean mischief together.
fn path() -> impl Strategy<Value = String> {
    let part = select(vec!["a", "b", "c", "..", ".", "", "outside", "evil"]);
    vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn kind() -> impl Strategy<Value = EntryType> {
    select(vec![
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Symlink,
        EntryType::Link,
    ])
}

fn tar_below(prefix: &str, members: &[(EntryType, String, String)]) -> Vec<u8> {
    let names = members.iter().map(|(_, name, _)| format!("{prefix}{name}")).collect::<Vec<_>>();
    let members = members.iter().zip(&names).map(|((kind, _, target), name)| Member {
        content: if *kind == EntryType::Regular { b"evil" } else { b"" },
        ..Member::of(*kind, name, target)
    });
    tar(&members.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..2000), kind in 0..4usize) {
        let magic: [&[u8]; 4] = [b"", b"PK\x03\x04", b"PK\x05\x06", &[0x1f, 0x8b, 8, 0]];
        for name in ["m.mar", "m.tar.gz"] {
            check(name, &[magic[kind], &bytes].concat());
        }
    }

    #[test]
    fn damaged_archives_do_no_harm(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        check("m.mar", &damage(zip(&model("m", "")), &changes));
        check("m.tgz", &damage(tgz_of(&model("m", "top/")), &changes));
        let members = [Member::file("top/a", "x"), Member::of(EntryType::Symlink, "top/b", "a")];
        check("m.tgz", &gz(&damage(tar(&members), &changes)));
        check("m.tar", &damage(tar(&members), &changes));
    }

    #[test]
    fn links_and_names_in_any_order_do_no_harm(
        members in vec((kind(), path(), path()), 1..8)
    ) {
        for prefix in ["", "top/"] {
            check("m.tar", &tar_below(prefix, &members));
        }
    }
}
