//! How much an archive may unpack to: what is configured, what its own size makes plausible, and what
//! the disk has room for.

use std::io;
use std::path::{Path, PathBuf};

use jitney_settings::server::MAX_UNPACKED_FILES;

use super::error::{Excess, UnpackError};

/// The limits of one archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together; without it 64 GiB, or half of what the disk has free if that is less.
    pub unpacked_bytes_max: Option<u64>,
    /// Files, directories and links together. By default so many that a model with its
    /// whole virtual environment fits.
    pub files_max: u64,
    /// Bytes of a file that is downloaded, packed as it is; without it as for unpacked bytes.
    pub fetched_bytes_max: Option<u64>,
    /// How many times its own size an archive may unpack to. Trained weights hardly compress, text
    /// and padded tables by less than 100; deflate itself ends at 1032, which only zeros reach.
    pub expansion_max: u64,
    /// What any archive may unpack to, however small it is: dummies whose weights are zeros.
    pub expansion_exempt: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unpacked_bytes_max: None,
            files_max: MAX_UNPACKED_FILES.default_value(),
            fetched_bytes_max: None,
            expansion_max: 200,
            expansion_exempt: 1 << 30,
        }
    }
}

/// The most without a configured limit: the largest models that are shipped in archives fit.
const BYTES_MAX: u64 = 64 << 30;

/// How often the disk is looked at while it fills.
const LOOK_EVERY: u64 = 64 << 20;

/// Bytes that may be downloaded or unpacked onto a disk with so much room: as configured, else half of
/// what is free, since others need room too.
pub(super) fn bytes_max(configured: Option<u64>, free: u64) -> u64 {
    configured.unwrap_or(BYTES_MAX.min(free / 2))
}

/// Free bytes of the file system around a path, for users without privileges.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The bytes that one archive may still write.
pub(super) struct Allowance {
    root: PathBuf,
    used: u64,
    max: u64,
    /// What is said when more is wanted.
    excess: Excess,
    /// Free bytes that are left to everyone else.
    reserve: u64,
    /// When to look at the disk again.
    look_at: u64,
}

impl Allowance {
    /// For an archive of `packed` bytes that is unpacked into `root`.
    pub(super) fn new(root: PathBuf, packed: u64, limits: &Limits) -> io::Result<Self> {
        let free = free_bytes(&root)?;
        Ok(Self::on_disk(root, free, packed, limits))
    }

    fn on_disk(root: PathBuf, free: u64, packed: u64, limits: &Limits) -> Self {
        let (times, exempt) = (limits.expansion_max, limits.expansion_exempt);
        let configured = limits.unpacked_bytes_max.unwrap_or(BYTES_MAX);
        let by_disk = bytes_max(limits.unpacked_bytes_max, free);
        let by_size = packed.saturating_mul(times).max(exempt);
        let max = by_disk.min(by_size);
        let excess = match max {
            _ if max == configured => Excess::Bytes(max),
            _ if max == by_size => Excess::Expansion(times),
            _ => Excess::Disk,
        };
        Self { root, used: 0, max, excess, reserve: free / 16, look_at: LOOK_EVERY }
    }

    /// Whether so many bytes more are too many. Headers that say so are believed, since their archive
    /// would only fail later; those that say less are not.
    pub(super) fn check(&self, bytes: u64) -> Result<(), UnpackError> {
        let fits = self.used.saturating_add(bytes) <= self.max;
        if fits { Ok(()) } else { Err(UnpackError::TooLarge(self.excess)) }
    }

    /// Counts what is about to be written.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), UnpackError> {
        self.check(bytes)?;
        self.used += bytes;
        if self.used > self.look_at {
            self.look_at = self.used + LOOK_EVERY;
            self.look()?;
        }
        Ok(())
    }

    fn look(&self) -> Result<(), UnpackError> {
        let free =
            free_bytes(&self.root).map_err(|error| UnpackError::Io(self.root.clone(), error))?;
        if free < self.reserve { Err(UnpackError::TooLarge(Excess::Disk)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn most(configured: Option<u64>, free: u64, packed: u64) -> (u64, Excess) {
        let limits = Limits { unpacked_bytes_max: configured, ..Limits::default() };
        let Allowance { max, excess, .. } =
            Allowance::on_disk(PathBuf::new(), free, packed, &limits);
        (max, excess)
    }

    #[test]
    fn the_tightest_limit_counts() {
        for (configured, free, packed, expected) in [
            (None, 1000 * GIB, GIB, (64 * GIB, Excess::Bytes(64 * GIB))),
            (None, 20 * GIB, GIB, (10 * GIB, Excess::Disk)),
            (Some(15 * GIB), 20 * GIB, GIB, (15 * GIB, Excess::Bytes(15 * GIB))),
            (None, 1000 * GIB, 98, (GIB, Excess::Expansion(200))),
            (None, 1000 * GIB, GIB / 50, (GIB / 50 * 200, Excess::Expansion(200))),
        ] {
            assert_eq!(most(configured, free, packed), expected, "{configured:?} {free} {packed}");
        }
    }

    #[test]
    fn the_disk_is_looked_at_while_it_fills() {
        let mut allowance = Allowance::on_disk(PathBuf::from("/"), 0, GIB, &Limits::default());
        (allowance.max, allowance.reserve) = (GIB, u64::MAX);
        assert!(allowance.take(LOOK_EVERY).is_ok(), "not yet");
        let error = allowance.take(1).unwrap_err();
        assert!(matches!(error, UnpackError::TooLarge(Excess::Disk)), "{error:?}");
    }
}
