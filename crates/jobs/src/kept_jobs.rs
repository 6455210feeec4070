//! What a store of jobs must do, whether one server has it or several share it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::body_file::KeptKind;
use crate::counts::JobCounts;
use crate::error::JobError;
use crate::job::{JobId, JobOwner, JobRecord};
use crate::job_view::{DueWebhook, JobFilter, JobView, TakenJob};
use crate::message::UnreadMessage;
use crate::webhook::WebhookOutcome;

/// Jobs that survive a crash. Nobody is told of a job or of an answer before it does.
#[async_trait]
pub(crate) trait KeptJobs: Send + Sync {
    /// Keeps a job, or finds the one that its owner made before.
    async fn add(&self, record: JobRecord, request: UnreadMessage) -> Result<JobView, JobError>;

    /// The job whose turn it is, unless as many run here as may.
    async fn take(&self, now: u64, parallel: usize) -> Option<TakenJob>;

    /// Resolves when there may be something to do while so many may run.
    async fn work(&self, now: u64, parallel: usize);

    /// Tries a job again at this time; an attempt that was `ours` to break off does not count.
    fn put_back(&self, number: u64, at: u64, ours: bool);

    /// Keeps an answer, as a rule in place of the request. One that was deleted or ended meanwhile stays so.
    async fn end(&self, job: (u64, JobId), ended: EndedJob) -> Result<(), JobError>;

    /// The number of an owner's job, and what they see of it.
    async fn find(&self, owner: &JobOwner, id: JobId) -> Result<(u64, JobView), JobError>;

    /// Told when a job changes by this server; none where it is gone.
    fn changed(&self, number: u64) -> Option<Arc<Notify>>;

    /// How often one who waits for a job looks at it, since another server may have changed it.
    fn look_every(&self) -> Option<Duration>;

    /// A request or an answer.
    async fn message(&self, job: (u64, JobId), kind: KeptKind) -> Result<UnreadMessage, JobError>;

    /// Forgets a job.
    async fn remove(&self, owner: &JobOwner, id: JobId) -> Result<(), JobError>;

    /// An owner's jobs, the youngest first, and the number to go on with where there may be more.
    async fn list(
        &self,
        owner: &JobOwner,
        filter: &JobFilter,
    ) -> Result<(Vec<JobView>, Option<u64>), JobError>;

    /// Forgets answers that are too old, some at a time.
    async fn expire(&self, now: u64) -> Result<(), JobError>;

    /// The webhook whose turn it is, of a receiver that is not busy; until it is told what came of it, nobody else gets
    /// it.
    async fn take_webhook(&self, now: u64, busy: &[String]) -> Option<DueWebhook>;

    /// Resolves when there may be such a webhook.
    async fn webhook_work(&self, now: u64, busy: &[String]);

    /// Keeps what came of an attempt.
    async fn webhook_sent(
        &self,
        job: (u64, JobId),
        outcome: WebhookOutcome,
    ) -> Result<(), JobError>;

    /// How many there are, and what became of others.
    fn counts(&self) -> JobCounts;
}

/// The answer of a job, and how it came to it.
pub(crate) struct EndedJob {
    pub(crate) status: u16,
    pub(crate) answer: UnreadMessage,
    /// In milliseconds of Unix time.
    pub(crate) at: u64,
    /// Whether its owner ended it.
    pub(crate) cancelled: bool,
}
