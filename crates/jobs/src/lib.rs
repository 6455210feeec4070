//! Jobs: requests that are kept until they are answered, and their answers until they are read (ADR 0041).
//!
//! [`KeptJobs`](kept_jobs) is what a store must do, and there are two. In a folder, [`JobBook`](book) decides and is
//! pure: which job is next, which is too old, whether there is room; [`JobStore`](store) keeps them through crashes, and
//! [`JobWriter`](writer) makes many changes durable at once. In PostgreSQL ([`postgres`]) several servers share them
//! (ADR 0044). The crate knows no protocol and no model: what a request and an answer mean is an affair of the server.

mod body_file;
mod book;
mod config;
mod counts;
mod database;
mod error;
mod folder_jobs;
mod job;
mod job_view;
mod kept_jobs;
mod limits;
mod message;
mod open_jobs;
mod postgres;
mod store;
mod webhook;
mod writer;

use std::sync::Arc;

use tokio::sync::{Notify, OnceCell};

pub use crate::config::JobsConfig;
pub use crate::counts::{JobCounts, JobTotals};
pub use crate::database::JobsDatabase;
pub use crate::error::JobError;
pub use crate::job::{IdempotencyKey, JobId, JobOwner};
pub use crate::job_view::{DueWebhook, JobFilter, JobState, JobView, TakenJob};
pub use crate::message::{KeptAnswer, KeptAnswerHead, KeptRequest, KeptRequestHead};
pub use crate::open_jobs::{NewJob, OpenJobs};
pub use crate::webhook::{WebhookOutcome, WebhookState, WebhookView, receiver};

/// The jobs of a server. Before the first one there is no file, no thread and no timer.
pub struct Jobs {
    config: JobsConfig,
    opened: OnceCell<Arc<OpenJobs>>,
    /// Told once, when they are open.
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

    /// Whether there may be jobs, of this server or of another one.
    pub fn exist(&self) -> bool {
        let kept = || self.config.database.is_some() || store::exists(&self.config.folder);
        self.opened.initialized() || kept()
    }

    /// How many there are, once they are open.
    pub fn counts(&self) -> Option<JobCounts> {
        self.opened.get().map(|open| open.counts())
    }

    /// Resolves when they are open.
    pub async fn begun(&self) -> &Arc<OpenJobs> {
        loop {
            let begun = self.begun.notified();
            if let Some(open) = self.opened.get() {
                return open;
            }
            begun.await;
        }
    }

    /// Opens the folder or the tables, and makes them where there are none. Only the first call takes a while.
    ///
    /// # Errors
    /// The folder cannot be written, another server has it, or the database is away.
    pub async fn open(&self) -> Result<&Arc<OpenJobs>, JobError> {
        let opening = || async { OpenJobs::open(&self.config).await.map(Arc::new) };
        let opened = self.opened.get_or_try_init(opening).await?;
        self.begun.notify_waiters();
        Ok(opened)
    }
}

#[cfg(test)]
mod tests;
