//! Where jobs are kept, how many and for how long, as plain values.

use std::path::PathBuf;
use std::time::Duration;

use crate::database::JobsDatabase;

/// Where jobs are kept, how many, and for how long.
#[derive(Clone, Debug)]
pub struct JobsConfig {
    /// The folder, which is made for the first job.
    pub folder: PathBuf,
    /// The database in place of a folder.
    pub database: Option<JobsDatabase>,
    /// The most jobs that are kept.
    pub count_max: usize,
    /// The most bytes of requests and answers that are kept.
    pub bytes_max: u64,
    /// How long an answer is kept, and how long a request waits for its turn.
    pub keep: Duration,
    /// How many jobs run at a time.
    pub parallel: usize,
}
