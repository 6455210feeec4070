//! Jobs: requests that are kept in a folder until they are answered, and their answers until they are read (ADR 0041).
//!
//! [`JobBook`](book) decides and is pure: which job is next, which is too old, whether there is room. [`JobStore`](store)
//! keeps them through crashes, and [`JobWriter`](writer) makes many changes durable at once. The crate knows no
//! protocol and no model: what a request and an answer mean is an affair of the server.

mod body_file;
mod book;
mod config;
mod counts;
mod error;
mod job;
mod job_view;
mod message;
mod open_jobs;
mod store;
mod writer;

use std::sync::Arc;

use tokio::sync::{Notify, OnceCell};

pub use crate::config::JobsConfig;
pub use crate::counts::{JobCounts, JobTotals};
pub use crate::error::JobError;
pub use crate::job::{IdempotencyKey, JobId, JobOwner};
pub use crate::job_view::{JobFilter, JobState, JobView, TakenJob};
pub use crate::message::{KeptAnswer, KeptAnswerHead, KeptRequest, KeptRequestHead};
pub use crate::open_jobs::{NewJob, OpenJobs};

/// The jobs of a server. Before the first one there is no file, no thread and no timer.
pub struct Jobs {
    config: JobsConfig,
    opened: OnceCell<Arc<OpenJobs>>,
    /// Told once, when the folder is open.
    begun: Notify,
}

impl Jobs {
    /// Jobs in a folder that is not looked into yet.
    pub fn new(config: JobsConfig) -> Self {
        Self { config, opened: OnceCell::new(), begun: Notify::new() }
    }

    /// Where they are kept, how many, and for how long.
    pub fn config(&self) -> &JobsConfig {
        &self.config
    }

    /// Whether the folder has jobs, of this server or of one before it.
    pub fn exist(&self) -> bool {
        self.opened.initialized() || store::exists(&self.config.folder)
    }

    /// How many there are, once the folder is open.
    pub fn counts(&self) -> Option<JobCounts> {
        self.opened.get().map(|open| open.counts())
    }

    /// Resolves when the folder is open. For one who waits.
    pub async fn begun(&self) -> &Arc<OpenJobs> {
        loop {
            if let Some(open) = self.opened.get() {
                return open;
            }
            self.begun.notified().await;
        }
    }

    /// Opens the folder, and makes it where there is none. Only the first call takes a while.
    ///
    /// # Errors
    /// The folder cannot be written, or another server has it.
    pub async fn open(&self) -> Result<&Arc<OpenJobs>, JobError> {
        let config = self.config.clone();
        let opened = self.opened.get_or_try_init(|| async {
            let opening =
                tokio::task::spawn_blocking(move || OpenJobs::open(&config).map(Arc::new));
            opening.await.map_err(|_| JobError::Ended)?
        });
        let opened = opened.await?;
        self.begun.notify_one();
        Ok(opened)
    }
}

#[cfg(test)]
mod tests;
