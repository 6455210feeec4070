//! How much an archive may unpack to, and the tally that holds it to that.
//!
//! All of it is counted while writing; what headers promise is never believed, so a bomb ends when
//! it reaches the limit, whatever its ratio.

use super::{error::Excess, unpack::UnpackError};

/// The limits of one archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together. 64 GiB unless told otherwise: the largest models that are
    /// shipped in archives fit, a runaway archive does not fill a data-centre disk.
    pub unpacked_bytes_max: u64,
    /// Files, directories and links together. 200,000 unless told otherwise: a model with its
    /// whole virtual environment fits.
    pub files_max: u64,
    /// Bytes of a file that is downloaded, packed as it is. 64 GiB unless told otherwise.
    pub fetched_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unpacked_bytes_max: 64 << 30, files_max: 200_000, fetched_bytes_max: 64 << 30 }
    }
}

/// What one archive has used up so far.
pub(super) struct Tally {
    limits: Limits,
    bytes: u64,
    files: u64,
}

impl Tally {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, bytes: 0, files: 0 }
    }

    /// Counts bytes that are about to be written.
    pub(super) fn bytes(&mut self, count: usize) -> Result<(), UnpackError> {
        let max = self.limits.unpacked_bytes_max;
        self.bytes = self.bytes.saturating_add(count as u64);
        if self.bytes > max { Err(UnpackError::TooLarge(Excess::Bytes { max })) } else { Ok(()) }
    }

    /// Counts a file, directory or link that is about to be made.
    pub(super) fn file(&mut self) -> Result<(), UnpackError> {
        let max = self.limits.files_max;
        self.files = self.files.saturating_add(1);
        if self.files > max { Err(UnpackError::TooLarge(Excess::Files { max })) } else { Ok(()) }
    }
}
