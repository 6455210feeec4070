//! The jobs of an open folder: what the book decides, made durable.
//!
//! Between two steps of a job the book may have changed; every step looks again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::body_file::KeptKind;
use crate::book::{Added, JobBook};
use crate::config::JobsConfig;
use crate::counts::JobCounts;
use crate::error::JobError;
use crate::job::{JobId, JobOwner, JobRecord};
use crate::job_view::{DueWebhook, JobFilter, JobView, TakenJob};
use crate::kept_jobs::{EndedJob, KeptJobs};
use crate::message::UnreadMessage;
use crate::store::{JobChange, JobStore};
use crate::webhook::WebhookOutcome;
use crate::writer::JobWriter;

/// The jobs of an open folder.
pub(crate) struct FolderJobs {
    store: Arc<JobStore>,
    writer: JobWriter,
    book: Mutex<JobBook>,
    /// Told when there may be something to do.
    work: Notify,
    /// Told when a webhook may be due.
    webhooks: Notify,
}

impl FolderJobs {
    pub(crate) fn open(config: &JobsConfig) -> Result<Self, JobError> {
        let (store, kept) = JobStore::open(&config.folder)?;
        let (store, known) = (Arc::new(store), kept.len());
        let keep = u64::try_from(config.keep.as_millis()).unwrap_or(u64::MAX);
        let book = JobBook::new((config.count_max, config.bytes_max, keep), kept);
        let writer = JobWriter::start(Arc::clone(&store));
        let writer = writer.map_err(|error| JobError::folder(&config.folder, error))?;
        let folder = config.folder.display();
        tracing::info!(%folder, known, "jobs are kept");
        let (work, webhooks) = (Notify::new(), Notify::new());
        Ok(Self { store, writer, book: Mutex::new(book), work, webhooks })
    }

    fn book(&self) -> MutexGuard<'_, JobBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view of a job that somebody else is storing, once it is.
    async fn stored(&self, number: u64) -> Result<JobView, JobError> {
        loop {
            let changed = self.book().changed(number).ok_or(JobError::Ended)?;
            let change = changed.notified();
            if let Some(view) = self.book().view(number) {
                return Ok(view);
            }
            change.await;
        }
    }

    async fn remove_rows(&self, jobs: Vec<(u64, JobId)>) -> Result<(), JobError> {
        let numbers = jobs.iter().map(|(number, _)| *number).collect();
        self.writer.write(JobChange::Remove { numbers }).await?;
        for (_, id) in jobs {
            self.store.remove_body(id, KeptKind::Request);
            self.store.remove_body(id, KeptKind::Answer);
        }
        Ok(())
    }

    async fn write_body(
        &self,
        id: JobId,
        kind: KeptKind,
        message: UnreadMessage,
    ) -> Result<(), JobError> {
        let store = Arc::clone(&self.store);
        let writing = move || store.write_body(id, kind, &message.body);
        tokio::task::spawn_blocking(writing).await.unwrap_or(Err(JobError::Ended))
    }
}

#[async_trait]
impl KeptJobs for FolderJobs {
    async fn add(&self, record: JobRecord, request: UnreadMessage) -> Result<JobView, JobError> {
        let (written, large, id) = (request.write()?, request.is_large(), record.id);
        let record = JobRecord { bytes: kept_bytes(&written, &request), ..record };
        let row = record.write()?;
        let added = self.book().add(record)?;
        let number = match added {
            Added::Known(number) => return self.stored(number).await,
            Added::New(number) => number,
        };
        let stored = async {
            if large {
                self.write_body(id, KeptKind::Request, request).await?;
            }
            self.writer.write(JobChange::Add { number, record: row, request: written }).await
        };
        if let Err(error) = stored.await {
            self.book().remove(number);
            self.store.remove_body(id, KeptKind::Request);
            return Err(error);
        }
        self.book().stored(number);
        self.work.notify_one();
        self.book().view(number).ok_or(JobError::Unknown)
    }

    async fn take(&self, now: u64, parallel: usize) -> Option<TakenJob> {
        let mut book = self.book();
        if book.running() < parallel { book.take(now) } else { None }
    }

    async fn work(&self, now: u64, parallel: usize) {
        let next = self.book().next_time(parallel);
        told_or_due(&self.work, next, now).await;
    }

    fn put_back(&self, number: u64, at: u64, ours: bool) {
        self.book().put_back(number, at, ours);
        self.work.notify_one();
    }

    async fn end(&self, (number, id): (u64, JobId), ended: EndedJob) -> Result<(), JobError> {
        let EndedJob { status, answer, at, cancelled } = ended;
        let (written, large) = (answer.write()?, answer.is_large());
        let kept = (status, kept_bytes(&written, &answer));
        let Some(record) = self.book().answered(number, at, kept, cancelled) else {
            return Ok(());
        };
        let record = record?;
        let keeps_request = record.again;
        let stored = async {
            let row = record.write()?;
            if large {
                self.write_body(id, KeptKind::Answer, answer).await?;
            }
            let answer = written;
            self.writer.write(JobChange::End { number, record: row, answer, keeps_request }).await
        };
        if let Err(error) = stored.await {
            self.book().unanswered(number);
            return Err(error);
        }
        let known = self.book().end(number, record);
        self.work.notify_one();
        self.webhooks.notify_one();
        if !keeps_request {
            self.store.remove_body(id, KeptKind::Request);
        }
        if !known {
            self.remove_rows(vec![(number, id)]).await?;
        }
        Ok(())
    }

    async fn find(&self, owner: &JobOwner, id: JobId) -> Result<(u64, JobView), JobError> {
        let book = self.book();
        let number = book.find(owner, id);
        number.and_then(|number| Some((number, book.view(number)?))).ok_or(JobError::Unknown)
    }

    fn changed(&self, number: u64) -> Option<Arc<Notify>> {
        self.book().changed(number)
    }

    fn look_every(&self) -> Option<Duration> {
        None
    }

    async fn message(
        &self,
        (number, id): (u64, JobId),
        kind: KeptKind,
    ) -> Result<UnreadMessage, JobError> {
        let store = Arc::clone(&self.store);
        let reading = move || store.message(number, id, kind);
        tokio::task::spawn_blocking(reading).await.unwrap_or(Err(JobError::Ended))
    }

    async fn remove(&self, owner: &JobOwner, id: JobId) -> Result<(), JobError> {
        let number = {
            let mut book = self.book();
            let number = book.find(owner, id).ok_or(JobError::Unknown)?;
            book.remove(number);
            number
        };
        self.work.notify_one();
        self.remove_rows(vec![(number, id)]).await
    }

    async fn list(
        &self,
        owner: &JobOwner,
        filter: &JobFilter,
    ) -> Result<(Vec<JobView>, Option<u64>), JobError> {
        Ok(self.book().list(owner, filter))
    }

    async fn expire(&self, now: u64) -> Result<(), JobError> {
        let old = self.book().expire(now);
        if old.is_empty() { Ok(()) } else { self.remove_rows(old).await }
    }

    async fn take_webhook(&self, now: u64, busy: &[String]) -> Option<DueWebhook> {
        self.book().take_webhook(now, busy)
    }

    async fn webhook_work(&self, now: u64, busy: &[String]) {
        let next = self.book().webhook_time(busy);
        told_or_due(&self.webhooks, next, now).await;
    }

    async fn webhook_sent(
        &self,
        (number, id): (u64, JobId),
        outcome: WebhookOutcome,
    ) -> Result<(), JobError> {
        let Some(record) = self.book().webhook_sent(number, outcome) else { return Ok(()) };
        let record = record.write()?;
        self.writer.write(JobChange::Note { number, record }).await?;
        let known = self.book().has(number);
        if known { Ok(()) } else { self.remove_rows(vec![(number, id)]).await }
    }

    fn counts(&self) -> JobCounts {
        self.book().counts()
    }
}

/// Resolves when this is told, or at this time.
async fn told_or_due(told: &Notify, next: Option<u64>, now: u64) {
    match next {
        None => told.notified().await,
        Some(at) => {
            let pause = Duration::from_millis(at.saturating_sub(now));
            let _ = tokio::time::timeout(pause, told.notified()).await;
        }
    }
}

/// What a message takes of the disk.
fn kept_bytes(written: &[u8], message: &UnreadMessage) -> u64 {
    let beside = if message.is_large() { message.body.len() } else { 0 };
    (written.len() + beside) as u64
}
