//! Whether there is memory for one more model, where SageMaker loads and unloads models: on the answer 507 it
//! unloads others and asks again. What a model needs is guessed from its files, and known better once it was here.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use jitney_server::{ModelRoom, RoomShortage};

use super::system::available_memory;
use crate::machine;

/// Files that are looked at; a model has fewer.
const FILES_MAX: usize = 100_000;
/// Models whose memory is remembered; an endpoint that has seen more begins anew.
const MODELS_MAX: usize = 10_000;

/// What models took when they were here last, by their paths.
#[derive(Default)]
pub struct Room {
    taken: Mutex<HashMap<String, u64>>,
}

impl ModelRoom for Room {
    fn shortage(&self, path: &str) -> Option<RoomShortage> {
        let (limit, available) = machine::memory_here().zip(available_memory())?;
        let free = machine::memory_left().map_or(available, |left| left.min(available));
        short(free, limit, self.needed(path))
    }

    fn note(&self, path: &str, bytes: u64) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() >= MODELS_MAX {
            taken.clear();
        }
        taken.insert(path.to_owned(), bytes);
    }
}

impl Room {
    /// A model takes a fifth more than its files, or what it took the last time, whichever is more.
    fn needed(&self, path: &str) -> u64 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied();
        let files = file_bytes(Path::new(path));
        files.saturating_add(files / 5).max(taken.unwrap_or_default())
    }
}

/// A tenth of the memory stays free.
fn short(free: u64, limit: u64, needed: u64) -> Option<RoomShortage> {
    let kept = limit / 10;
    let fits = free.saturating_sub(needed) >= kept;
    (!fits).then_some(RoomShortage { needed, free, kept })
}

/// The bytes of all files below a folder, as they say it themselves. Links are followed, since weights may lie in a
/// cache elsewhere; what is reached twice counts once.
fn file_bytes(folder: &Path) -> u64 {
    let (mut folders, mut bytes, mut seen) = (vec![folder.to_owned()], 0_u64, HashSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = std::fs::metadata(entry.path()) else { continue };
            if seen.len() >= FILES_MAX {
                return bytes;
            }
            if !seen.insert((about.dev(), about.ino())) {
                continue;
            }
            if about.is_dir() {
                folders.push(entry.path());
            } else {
                bytes = bytes.saturating_add(about.len());
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
        for (free, limit, needed, fits) in [
            (1000, 1000, 900, true),
            (1000, 1000, 901, false),
            (90, 1000, 0, false),
            (5, 0, 99, true),
        ] {
            assert_eq!(short(free, limit, needed).is_none(), fits, "{free} {limit} {needed}");
        }
    }

    #[test]
    fn what_a_model_took_counts_if_it_is_more_than_its_files() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("a"), [0; 10]).expect("file");
        let (room, path) = (Room::default(), dir.path().to_string_lossy().into_owned());
        assert_eq!(room.needed(&path), 12);
        room.note(&path, 1000);
        assert_eq!(room.needed(&path), 1000);
        room.note(&path, 5);
        assert_eq!(room.needed(&path), 12);
        assert_eq!(room.needed("/none"), 0);
    }

    #[test]
    fn files_are_counted_below_folders() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir(dir.path().join("code")).expect("folder");
        std::fs::write(dir.path().join("code/a"), [0; 10]).expect("file");
        std::fs::write(dir.path().join("b"), [0; 7]).expect("file");
        assert_eq!(file_bytes(dir.path()), 17);
        let elsewhere = tempfile::tempdir().expect("directory");
        std::fs::write(elsewhere.path().join("weights"), [0; 100]).expect("file");
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, dir.path().join(name)).expect("link");
        };
        link(&elsewhere.path().join("weights"), "weights");
        link(&elsewhere.path().join("weights"), "again");
        link(dir.path(), "code/circle");
        assert_eq!(file_bytes(dir.path()), 117);
        assert_eq!(file_bytes(&dir.path().join("none")), 0);
    }
}
