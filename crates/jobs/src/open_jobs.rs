//! The jobs of a server as the rest of it uses them, wherever they are kept.
//!
//! Between two steps of a job it may have changed; every step looks again.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use crate::body_file::KeptKind;
use crate::config::JobsConfig;
use crate::counts::JobCounts;
use crate::error::JobError;
use crate::folder_jobs::FolderJobs;
use crate::job::{IdempotencyKey, JobId, JobOwner, JobRecord};
use crate::job_view::{DueWebhook, JobFilter, JobView, TakenJob};
use crate::kept_jobs::{EndedJob, KeptJobs};
use crate::message::{KeptAnswer, KeptMessage, KeptRequest};
use crate::postgres::PostgresJobs;
use crate::webhook::{JobWebhook, WebhookOutcome};

/// A job that is to be kept.
pub struct NewJob {
    /// Who makes it.
    pub owner: JobOwner,
    /// The model, or the workflow.
    pub model: String,
    /// By what its owner finds it again.
    pub idempotency: Option<IdempotencyKey>,
    /// What is to be answered.
    pub request: KeptRequest,
    /// Whether the request is kept beside the answer, so that it can be made again.
    pub again: bool,
    /// Where to tell of its end.
    pub webhook: Option<String>,
}

/// The jobs of a server.
pub struct OpenJobs(Arc<dyn KeptJobs>);

impl OpenJobs {
    pub(crate) async fn open(config: &JobsConfig) -> Result<Self, JobError> {
        if let Some(database) = &config.database {
            return Ok(Self(PostgresJobs::open(database, config).await?));
        }
        let config = config.clone();
        let opening = spawn_blocking(move || FolderJobs::open(&config)).await;
        Ok(Self(Arc::new(opening.unwrap_or(Err(JobError::Ended))?)))
    }

    /// Does what must not be left halfway when whoever waits for it stops.
    async fn whole<T: Send + 'static, F>(
        &self,
        step: impl FnOnce(Arc<dyn KeptJobs>) -> F,
    ) -> Result<T, JobError>
    where
        F: Future<Output = Result<T, JobError>> + Send + 'static,
    {
        tokio::spawn(step(Arc::clone(&self.0))).await.unwrap_or(Err(JobError::Ended))
    }

    /// Keeps a job, or finds the one that its owner made before. When this returns, it survives a crash. Whoever stops
    /// waiting changes nothing.
    ///
    /// # Errors
    /// There is no room, it cannot be written, or its idempotency key belongs to another request.
    pub async fn submit(&self, new: NewJob, now: u64) -> Result<JobView, JobError> {
        let NewJob { owner, model, idempotency, request, again, webhook } = new;
        let record = JobRecord {
            id: JobId::fresh()?,
            owner,
            model,
            created: now,
            bytes: 0,
            idempotency,
            again,
            cancelled: false,
            ended: None,
            webhook: webhook.map(JobWebhook::new),
        };
        let request = request.unread()?;
        self.whole(|kept| async move { kept.add(record, request).await }).await
    }

    /// The job whose turn it is, unless as many run as may.
    pub async fn take(&self, now: u64, parallel: usize) -> Option<TakenJob> {
        self.0.take(now, parallel).await
    }

    /// Resolves when there may be something to do while so many may run.
    pub async fn work(&self, now: u64, parallel: usize) {
        self.0.work(now, parallel).await;
    }

    /// What a job asks for.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn request(&self, job: &TakenJob) -> Result<KeptRequest, JobError> {
        self.read((job.number, job.id), KeptKind::Request).await
    }

    /// Resolves when a job has gone, or has been answered.
    pub async fn over(&self, job: &TakenJob) {
        let TakenJob { number, id, owner, .. } = job;
        loop {
            let Some(changed) = self.0.changed(*number) else { return };
            let change = changed.notified();
            match self.0.find(owner, *id).await {
                Err(JobError::Unknown) => return,
                Ok((_, view)) if view.state.is_ended() => return,
                Ok(_) | Err(_) => self.change(change).await,
            }
        }
    }

    /// Resolves when a job may have changed.
    async fn change(&self, told: impl Future<Output = ()>) {
        match self.0.look_every() {
            None => told.await,
            Some(pause) => {
                let _ = tokio::time::timeout(pause, told).await;
            }
        }
    }

    /// Tries a job again at this time; an attempt that was `ours` to break off does not count.
    pub fn put_back(&self, number: u64, at: u64, ours: bool) {
        self.0.put_back(number, at, ours);
    }

    /// Keeps the answer of a job, as a rule in place of its request. One that was deleted or ended meanwhile stays so.
    ///
    /// # Errors
    /// There is no room for it, or it cannot be written; the job is as before.
    pub async fn end(&self, job: &TakenJob, answer: KeptAnswer, at: u64) -> Result<(), JobError> {
        self.0.end((job.number, job.id), ended(answer, at, false)?).await
    }

    /// Ends a job with an answer that says so, whether it waits or runs. Whoever stops waiting changes nothing.
    ///
    /// # Errors
    /// There is none of this owner, or that cannot be written.
    pub async fn cancel(
        &self,
        owner: &JobOwner,
        id: JobId,
        answer: KeptAnswer,
        now: u64,
    ) -> Result<JobView, JobError> {
        let number = self.0.find(owner, id).await?.0;
        let ended = ended(answer, now, true)?;
        let step = |kept: Arc<dyn KeptJobs>| async move {
            let ended = kept.end((number, id), ended).await;
            if ended.is_err() {
                kept.put_back(number, now, true);
            }
            ended
        };
        self.whole(step).await?;
        self.view(owner, id).await
    }

    /// How many jobs there are, and what became of others.
    pub fn counts(&self) -> JobCounts {
        self.0.counts()
    }

    /// What an owner sees of a job.
    ///
    /// # Errors
    /// There is none of this owner.
    pub async fn view(&self, owner: &JobOwner, id: JobId) -> Result<JobView, JobError> {
        Ok(self.0.find(owner, id).await?.1)
    }

    /// The same, once it was answered.
    ///
    /// # Errors
    /// There is none of this owner, or not any more.
    pub async fn ended(&self, owner: &JobOwner, id: JobId) -> Result<JobView, JobError> {
        self.once(owner, id, |view| view.state.is_ended()).await
    }

    /// The same, once it is not as it was seen.
    ///
    /// # Errors
    /// There is none of this owner, or not any more.
    pub async fn changed(
        &self,
        owner: &JobOwner,
        id: JobId,
        seen: &JobView,
    ) -> Result<JobView, JobError> {
        self.once(owner, id, |view| view != seen).await
    }

    async fn once(
        &self,
        owner: &JobOwner,
        id: JobId,
        wanted: impl Fn(&JobView) -> bool,
    ) -> Result<JobView, JobError> {
        let number = self.0.find(owner, id).await?.0;
        loop {
            let changed = self.0.changed(number).ok_or(JobError::Unknown)?;
            let change = changed.notified();
            let view = self.view(owner, id).await?;
            if wanted(&view) {
                return Ok(view);
            }
            self.change(change).await;
        }
    }

    /// The answer of a job that has one.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn answer(&self, owner: &JobOwner, id: JobId) -> Result<KeptAnswer, JobError> {
        let number = self.0.find(owner, id).await?.0;
        self.read((number, id), KeptKind::Answer).await
    }

    /// What a job asked for that has ended, where that is kept.
    ///
    /// # Errors
    /// There is no such job, or it cannot be read.
    pub async fn asked(&self, owner: &JobOwner, id: JobId) -> Result<KeptRequest, JobError> {
        let number = self.0.find(owner, id).await?.0;
        self.read((number, id), KeptKind::Request).await
    }

    /// Forgets a job. If it runs, its answer is not kept. Whoever stops waiting changes nothing.
    ///
    /// # Errors
    /// There is none of this owner, or that cannot be written.
    pub async fn delete(&self, owner: &JobOwner, id: JobId) -> Result<(), JobError> {
        let owner = owner.clone();
        self.whole(|kept| async move { kept.remove(&owner, id).await }).await
    }

    /// An owner's jobs, the youngest first, and the number to go on with where there may be more.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn list(
        &self,
        owner: &JobOwner,
        filter: &JobFilter,
    ) -> Result<(Vec<JobView>, Option<u64>), JobError> {
        self.0.list(owner, filter).await
    }

    /// Forgets answers that are too old, some at a time.
    ///
    /// # Errors
    /// That cannot be written.
    pub async fn expire(&self, now: u64) -> Result<(), JobError> {
        self.0.expire(now).await
    }

    /// The webhook whose turn it is, if there is one of a [`receiver`](crate::receiver) that is not busy. It is nobody
    /// else's until [`OpenJobs::webhook_sent`].
    pub async fn take_webhook(&self, now: u64, busy: &[String]) -> Option<DueWebhook> {
        self.0.take_webhook(now, busy).await
    }

    /// Resolves when a webhook may be due.
    pub async fn webhook_work(&self, now: u64, busy: &[String]) {
        self.0.webhook_work(now, busy).await;
    }

    /// Keeps what came of an attempt to send a webhook.
    ///
    /// # Errors
    /// That cannot be written: it may be sent once more.
    pub async fn webhook_sent(
        &self,
        webhook: &DueWebhook,
        outcome: WebhookOutcome,
    ) -> Result<(), JobError> {
        self.0.webhook_sent((webhook.number, webhook.job.id), outcome).await
    }

    async fn read<H: Serialize + DeserializeOwned>(
        &self,
        job: (u64, JobId),
        kind: KeptKind,
    ) -> Result<KeptMessage<H>, JobError> {
        KeptMessage::of_unread(self.0.message(job, kind).await?)
    }
}

fn ended(answer: KeptAnswer, at: u64, cancelled: bool) -> Result<EndedJob, JobError> {
    let status = answer.head.status;
    Ok(EndedJob { status, answer: answer.unread()?, at, cancelled })
}
