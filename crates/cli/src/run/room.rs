//! Whether there is memory for one more model, where SageMaker loads and unloads models: on the answer 507 it
//! unloads others and asks again. What a model needs is guessed from its files.

use std::path::Path;

use jitney_server::RoomShortage;

use super::system::available_memory;
use crate::machine;

/// Files that are looked at; a model has fewer.
const FILES_MAX: usize = 100_000;

/// What is missing for what the path holds, if anything is.
pub fn check(path: &str) -> Option<RoomShortage> {
    let (limit, available) = machine::memory_here().zip(available_memory())?;
    let free = machine::memory_left().map_or(available, |left| left.min(available));
    short(free, limit, file_bytes(Path::new(path)))
}

/// A model takes a fifth more than its files, and a tenth of the memory stays free.
fn short(free: u64, limit: u64, files: u64) -> Option<RoomShortage> {
    let (needed, kept) = (files.saturating_add(files / 5), limit / 10);
    let fits = free.saturating_sub(needed) >= kept;
    (!fits).then_some(RoomShortage { needed, free, kept })
}

/// The bytes of all files below a folder, as they say it themselves; links are not followed.
fn file_bytes(folder: &Path) -> u64 {
    let (mut folders, mut bytes, mut seen) = (vec![folder.to_owned()], 0_u64, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > FILES_MAX {
                return bytes;
            }
            match entry.metadata() {
                Ok(about) if about.is_dir() => folders.push(entry.path()),
                Ok(about) => bytes = bytes.saturating_add(about.len()),
                Err(_) => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_fits_if_a_tenth_stays_free() {
        for (free, limit, files, fits) in [
            (1000, 1000, 700, true),
            (1000, 1000, 760, false),
            (90, 1000, 0, false),
            (5, 0, 99, true),
        ] {
            assert_eq!(short(free, limit, files).is_none(), fits, "{free} {limit} {files}");
        }
    }

    #[test]
    fn files_are_counted_below_folders() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir(dir.path().join("code")).expect("folder");
        std::fs::write(dir.path().join("code/a"), [0; 10]).expect("file");
        std::fs::write(dir.path().join("b"), [0; 7]).expect("file");
        assert_eq!(file_bytes(dir.path()), 17);
        assert_eq!(file_bytes(&dir.path().join("none")), 0);
    }
}
