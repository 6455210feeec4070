//! What must hold for every JPEG file, whatever its bytes. `fuzz/` looks for bytes for which it does not;
//! the tests try those of `fuzz/corpus` again.

use crate::{JpegError, JpegFile, JpegPlanes, ROWS, Strip, StripSource, Window};

/// Larger images only cost time.
const PIXELS_MAX: usize = 1 << 16;

/// Decodes a file whole and in part: an error both times, or the same samples where both have them.
pub fn jpegs(bytes: &[u8]) {
    let Ok(file) = JpegFile::open(bytes) else { return };
    let (width, height) = file.size();
    assert!(width > 0 && height > 0 && (1..=8).contains(&file.orientation()));
    if width * height > PIXELS_MAX {
        return;
    }
    let whole = Window { x: 0..width, y: 0..height };
    let middle =
        Window { x: (width / 4) & !1..width.div_ceil(2), y: height / 4..height.div_ceil(2) };
    let (Ok(whole), Ok(part)) = (samples(bytes, &whole, &middle), samples(bytes, &middle, &middle))
    else {
        return;
    };
    assert_eq!(whole, part, "a part is decoded as the whole is");
}

/// The samples of the rows and columns `shown` of a file that is decoded within a window.
fn samples(bytes: &[u8], window: &Window, shown: &Window) -> Result<Vec<u8>, JpegError> {
    let (mut file, mut planes) = (JpegFile::open(bytes)?, JpegPlanes::default());
    let image = file.decode(window, &mut planes)?;
    let (mut strip, mut all) = (Strip::default(), Vec::new());
    for at in shown.strips() {
        image.read(at, shown.x.clone(), &mut strip);
        for list in &strip[..image.channels()] {
            assert_eq!(list.len(), shown.x.len());
            let rows = (0..ROWS).filter(|row| shown.y.contains(&(at * ROWS + row)));
            all.extend(rows.flat_map(|row| list.iter().map(move |column| column[row])));
        }
    }
    Ok(all)
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/jpegs");
    for file in std::fs::read_dir(corpus).unwrap() {
        jpegs(&std::fs::read(file.unwrap().path()).unwrap());
    }
}

/// Damage in many places of the small files is an error or an image, never a panic.
#[cfg(test)]
#[test]
fn damaged_files_do_not_panic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/jpegs");
    for file in std::fs::read_dir(corpus).unwrap() {
        let good = std::fs::read(file.unwrap().path()).unwrap();
        for at in (0..good.len()).step_by(97) {
            let mut bad = good.clone();
            bad[at] ^= 0x5a;
            jpegs(&bad);
            jpegs(&good[..at]);
        }
    }
}
