//! How many jobs there may be, and how many of one key.

use crate::error::JobError;
use crate::job::{JobOwner, JobRecord};

/// The part of all jobs that one key may have, so that the others find room.
const KEY_SHARE: u64 = 2;

/// The bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobLimits {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

/// How many jobs there are, and what is kept of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeptSum {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl JobLimits {
    /// Whether one more fits beside all others, and beside those of its owner.
    pub(crate) fn check(
        self,
        all: KeptSum,
        owned: KeptSum,
        record: &JobRecord,
    ) -> Result<(), JobError> {
        if all.count >= self.count {
            return Err(JobError::TooMany { count: all.count });
        }
        let fits = owned.count < self.count.div_ceil(KEY_SHARE as usize)
            && owned.bytes.saturating_add(record.bytes) <= self.bytes.div_ceil(KEY_SHARE);
        // Who is nobody in particular has no share: there are no others. And who has nothing may have one.
        if !fits && owned.count > 0 && record.owner != JobOwner::default() {
            return Err(JobError::TooManyOfKey { count: owned.count });
        }
        self.check_room(all.bytes, record.bytes)
    }

    /// Whether there is room for so many bytes more.
    pub(crate) fn check_room(self, kept: u64, bytes: u64) -> Result<(), JobError> {
        let fits = kept.saturating_add(bytes) <= self.bytes;
        if fits { Ok(()) } else { Err(JobError::TooLarge { bytes }) }
    }
}
