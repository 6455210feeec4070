//! What can go wrong with jobs.

use std::path::{Path, PathBuf};

/// Why something cannot be done with a job.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JobError {
    /// The folder cannot be used.
    #[error("the folder of jobs {} cannot be used: {why}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
    /// Another server has the folder open.
    #[error("another server uses the folder of jobs {}", .folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// There are as many jobs as may be kept.
    #[error("{count} jobs are kept, the most that jobs_count allows")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// One key has as many jobs as it may.
    #[error(
        "{count} jobs of this key are kept, and a key may have half of jobs_count and half of jobs_size"
    )]
    TooManyOfKey {
        /// How many there are.
        count: usize,
    },
    /// The jobs take as many bytes as may be kept.
    #[error("the jobs that are kept leave no room for {bytes} bytes more (jobs_size)")]
    TooLarge {
        /// How many more were to be kept.
        bytes: u64,
    },
    /// The idempotency key belongs to another request.
    #[error("the Idempotency-Key belongs to a job with another request")]
    OtherRequest,
    /// There is no such job of this owner.
    #[error("there is no such job")]
    Unknown,
    /// What is kept cannot be read or written.
    #[error("jobs cannot be kept: {0}")]
    Store(String),
    /// The database does not answer, or refuses.
    #[error("the database of jobs cannot be used: {0}")]
    Away(String),
    /// A body is larger than the database takes.
    #[error("a body of {bytes} bytes is larger than a job in PostgreSQL may have ({most})")]
    BodyTooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        most: usize,
    },
    /// The server gives no randomness for an id.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// The server is ending.
    #[error("the server is ending")]
    Ended,
}

impl JobError {
    pub(crate) fn folder(folder: &Path, why: impl ToString) -> Self {
        Self::Folder { folder: folder.to_owned(), why: why.to_string() }
    }

    pub(crate) fn store(error: impl ToString) -> Self {
        Self::Store(error.to_string())
    }
}
