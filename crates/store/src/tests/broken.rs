//! Archives that mean no harm but cannot be read: cut short, damaged, or no archives at all.

use std::io::Write;

use zip::write::SimpleFileOptions;

use super::{
    super::StoreError,
    Bench,
    archives::{Member, gz, model, patched, tar, tgz_of, zip, zip_with},
};

fn check_corrupt(name: &str, archive: &[u8]) {
    let error = Bench::new().rejects(name, archive);
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[test]
fn archives_cut_short_are_corrupt() {
    let zip = zip(&model("m", ""));
    let tgz = tgz_of(&model("m", "top/"));
    let tar = tar(&[Member::file("top/a", &"x".repeat(5000))]);
    for part in 1..10 {
        check_corrupt("m.mar", &zip[..zip.len() * part / 10]);
        check_corrupt("m.tar.gz", &tgz[..tgz.len() * part / 10]);
        check_corrupt("m.tar", &tar[..5500 * part / 10]);
    }
    check_corrupt("m.tar.gz", &tgz[..tgz.len() - 1]);
}

#[test]
fn things_that_are_no_archive_are_corrupt() {
    for name in ["m.mar", "m.tar.gz", "m.tgz", "m"] {
        check_corrupt(name, b"");
        check_corrupt(name, b"not an archive at all");
        check_corrupt(name, &[0xff; 2000]);
        check_corrupt(name, b"PK\x03\x04 but then nothing");
        check_corrupt(name, &gz(b"compressed, but no tar, and long enough").repeat(20));
    }
}

#[test]
fn a_damaged_member_is_corrupt() {
    let stored = zip_with(|zip, options| {
        let options: SimpleFileOptions = options.compression_method(zip::CompressionMethod::Stored);
        zip.start_file("weights", options).unwrap();
        zip.write_all(b"the right weights").unwrap();
    });
    check_corrupt("m.mar", &patched(stored, b"right", b"wrong"));
    let mut tgz = tgz_of(&model("m", "top/"));
    let end = tgz.len() - 8;
    tgz[end] ^= 1;
    check_corrupt("m.tgz", &tgz);
}
