//! Archives that mean harm. Each is rejected for its own reason and leaves nothing
//! behind; [`Bench::rejects`] checks the latter.

use tar::EntryType;

use super::{
    super::{Breach, Excess, Limits, StoreError},
    Bench,
    archives::{Member, gz, patched, tar, zip, zip_of, zip_with},
};

fn breach(error: StoreError) -> Breach {
    let StoreError::Hostile { breach, .. } = error else { panic!("for another reason: {error}") };
    breach
}

fn excess(error: StoreError) -> Excess {
    let StoreError::TooLarge { excess, .. } = error else { panic!("for another reason: {error}") };
    excess
}

fn check_zip(archive: Vec<u8>, expected: fn(&Breach) -> bool) {
    let error = Bench::new().rejects("m.mar", archive);
    let said = error.to_string();
    let breach = breach(error);
    assert_eq!(said, format!("Failed to save model: m.mar: {breach}"));
    assert!(expected(&breach), "{breach}");
}

fn check_tar(members: &[Member<'_>], expected: fn(&Breach) -> bool) {
    let breach = breach(Bench::new().rejects("m.tar.gz", gz(&tar(members))));
    assert!(expected(&breach), "{breach}");
}

#[test]
fn absolute_names_are_rejected() {
    check_zip(zip_of("/tmp/evil", "evil"), |breach| matches!(breach, Breach::Absolute { .. }));
    let members = [Member::file("/tmp/evil", "evil")];
    check_tar(&members, |breach| matches!(breach, Breach::Absolute { .. }));
}

#[test]
fn names_that_climb_are_rejected_even_when_they_come_back() {
    for name in ["../../../outside/evil", "a/../../evil", "a/../b"] {
        check_zip(zip_of(name, "evil"), |breach| matches!(breach, Breach::Escapes { .. }));
        let members = [Member::file("top/ok", ""), Member::file(name, "evil")];
        check_tar(&members, |breach| matches!(breach, Breach::Escapes { .. }));
    }
}

#[test]
fn names_with_a_nul_are_rejected() {
    let is_bad = |breach: &Breach| matches!(breach, Breach::BadName { .. });
    check_zip(patched(zip_of("handlerX.py", ""), b"handlerX", b"handler\0"), is_bad);
    let long = Member { content: b"top/a\0b\0", ..Member::of(EntryType::GNULongName, "long", "") };
    check_tar(&[long, Member::file("top/a", "")], is_bad);
}

#[test]
fn links_that_lead_outside_or_nowhere_are_rejected() {
    let targets = ["/etc/passwd", "../../../outside/secret", "..", "missing", "self", ""];
    for target in targets {
        let link = Member::of(EntryType::Symlink, "top/self", target);
        let members = [Member::file("top/ok", ""), link];
        check_tar(&members, |breach| matches!(breach, Breach::Link { .. }));
    }
    let zip = zip_with(|zip, options| zip.add_symlink("link", "/etc", options).unwrap());
    check_zip(zip, |breach| matches!(breach, Breach::Link { .. }));
}

#[test]
fn a_link_to_what_is_around_the_leading_directory_is_rejected() {
    // Inside while it is unpacked, outside once the leading directory is taken away.
    for target in ["..", "../._litter", "../top/ok"] {
        let link = Member::of(EntryType::Symlink, "top/link", target);
        check_tar(&[Member::file("._litter", ""), Member::file("top/ok", ""), link], |breach| {
            matches!(breach, Breach::Link { .. })
        });
    }
}

#[test]
fn a_link_that_leaves_by_way_of_another_link_is_rejected() {
    let members = [
        Member::file("top/a/b/c/file", ""),
        Member::of(EntryType::Symlink, "top/a/b/c/up", "../../.."),
        Member::of(EntryType::Symlink, "top/out", "a/b/c/up/../../.."),
    ];
    check_tar(&members, |breach| matches!(breach, Breach::Link { .. }));
}

#[test]
fn nothing_is_written_through_a_link() {
    let link = || Member::of(EntryType::Symlink, "top/link", "../../../../outside");
    let collides = |breach: &Breach| matches!(breach, Breach::Collides { .. });
    check_tar(&[link(), Member::file("top/link/evil", "evil")], collides);
    check_tar(&[link(), Member::of(EntryType::Symlink, "top/link/evil", "x")], |breach| {
        matches!(breach, Breach::Collides { .. } | Breach::Link { .. })
    });
    let zip = zip_with(|zip, options| {
        zip.add_symlink("link", "../../../outside", options).unwrap();
        zip.start_file("link/evil", options).unwrap();
    });
    check_zip(zip, collides);
}

#[test]
fn hard_links_only_join_files_of_the_archive() {
    for (target, expected) in [
        (
            "/etc/passwd",
            (|breach| matches!(breach, Breach::Absolute { .. })) as fn(&Breach) -> bool,
        ),
        ("../outside/secret", |breach| matches!(breach, Breach::Escapes { .. })),
        ("top/missing", |breach| matches!(breach, Breach::Link { .. })),
        ("top/dir", |breach| matches!(breach, Breach::Link { .. })),
    ] {
        let directory = Member::of(EntryType::Directory, "top/dir", "");
        check_tar(&[directory, Member::of(EntryType::Link, "top/hard", target)], expected);
    }
}

#[test]
fn devices_pipes_and_unknown_kinds_are_rejected() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::new(b'Z')] {
        let members = [Member::of(kind, "top/device", "")];
        check_tar(&members, |breach| matches!(breach, Breach::Special { .. }));
    }
}

#[test]
fn members_that_take_the_place_of_others_are_rejected() {
    let collides = |breach: &Breach| matches!(breach, Breach::Collides { .. });
    check_tar(&[Member::file("top/a", "1"), Member::file("top/./a", "2")], collides);
    check_tar(&[Member::file("top/a", "1"), Member::file("top/a/b", "2")], collides);
    check_tar(&[Member::file("top/a/b", "1"), Member::file("top/a", "2")], collides);
    let members = [("a".to_owned(), "1".to_owned()), ("a/b".to_owned(), "2".to_owned())];
    check_zip(zip(&members), collides);
    let members = [("aa".to_owned(), "1".to_owned()), ("ab".to_owned(), "2".to_owned())];
    check_zip(patched(zip(&members), b"ab", b"aa"), |breach| *breach == Breach::Repeated);
}

#[test]
fn a_bomb_ends_at_the_limit_whatever_its_headers_say() {
    let max = 1 << 20;
    let bench = Bench::with_limits(Limits { unpacked_bytes_max: Some(max), ..Limits::default() });
    let zeros = "\0".repeat(4 << 20);
    let zip = zip_of("weights", &zeros);
    // The header says that there are four bytes; there are four million.
    let lying = patched(zip.clone(), &(4u32 << 20).to_le_bytes(), &4u32.to_le_bytes());
    let tar = gz(&tar(&[Member::file("top/weights", &zeros)]));
    for archive in [zip, tar] {
        assert_eq!(excess(bench.rejects("m.mar", archive)), Excess::Bytes(max));
    }
    let error = bench.rejects("m.mar", lying);
    assert!(matches!(error, StoreError::TooLarge { .. } | StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn several_files_share_one_limit() {
    let limits = Limits { unpacked_bytes_max: Some(1000), ..Limits::default() };
    let files =
        |size: usize| zip(&[("a".to_owned(), "x".repeat(500)), ("b".to_owned(), "x".repeat(size))]);
    let bench = Bench::with_limits(limits);
    assert!(matches!(bench.rejects("m.mar", files(501)), StoreError::TooLarge { .. }));
    bench.put("m.mar", files(500));
    assert!(bench.open("m.mar").is_ok());
}

#[test]
fn files_directories_and_links_are_counted() {
    let bench = Bench::with_limits(Limits { files_max: 10, ..Limits::default() });
    let many = zip_with(|zip, options| {
        (0..11).for_each(|n| zip.start_file(format!("f{n}"), options).unwrap());
    });
    let deep = zip_of("a/b/c/d/e/f/g/h/i/j/file", "");
    let links = (0..11).map(|n| format!("l{n}")).collect::<Vec<_>>();
    let links = links.iter().map(|name| Member::of(EntryType::Symlink, name, "."));
    for archive in [many, deep, gz(&tar(&links.collect::<Vec<_>>()))] {
        assert_eq!(excess(bench.rejects("m.mar", archive)), Excess::Files(10));
    }
}

#[test]
fn headers_of_a_tar_cannot_fill_the_memory() {
    let name = vec![b'x'; 8 << 20];
    let long = Member { content: &name, ..Member::of(EntryType::GNULongName, "long", "") };
    let error = Bench::new().rejects("m.tgz", gz(&tar(&[long, Member::file("a", "")])));
    assert!(matches!(error, StoreError::TooLarge { excess: Excess::Headers { .. }, .. }));
    let mut padded = tar(&[Member::file("a", "")]);
    padded.resize(20 << 20, 0);
    let error = Bench::new().rejects("m.tgz", gz(&padded));
    assert!(matches!(error, StoreError::TooLarge { excess: Excess::Headers { .. }, .. }));
}

#[test]
fn sparse_files_are_rejected() {
    let mut archive = tar(&[Member::of(EntryType::GNUSparse, "top/hole", "")]);
    // Where GNU tar keeps, in octal: the offset and length of the first block, and the real size.
    for (at, field) in [(386, b"77777777777"), (398, b"00000000000"), (483, b"77777777777")] {
        archive[at..at + field.len()].copy_from_slice(field);
    }
    let sum = archive[..512].iter().enumerate();
    let sum = sum.map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) });
    let sum = format!("{:06o}\0 ", sum.sum::<u32>());
    archive[148..156].copy_from_slice(sum.as_bytes());
    let sparse = breach(Bench::new().rejects("m.tgz", gz(&archive)));
    assert_eq!(sparse, Breach::Sparse("top/hole".to_owned()));
    let header =
        Member { content: b"22 GNU.sparse.major=1\n", ..Member::of(EntryType::XHeader, "x", "") };
    check_tar(&[header, Member::file("top/hole", "1\n")], |breach| {
        matches!(breach, Breach::Sparse { .. })
    });
}

#[test]
fn an_archive_cannot_become_many_times_its_size() {
    let limits = Limits { expansion_max: 100, expansion_exempt: 1 << 20, ..Limits::default() };
    let bench = Bench::with_limits(limits);
    let zeros = "\0".repeat(4 << 20);
    for archive in [zip_of("weights", &zeros), gz(&tar(&[Member::file("top/weights", &zeros)]))] {
        assert_eq!(excess(bench.rejects("m.mar", archive)), Excess::Expansion(100));
    }
    bench.put("m.mar", zip_of("weights", &zeros[..1 << 20]));
    assert!(bench.open("m.mar").is_ok(), "a small one may");
}
