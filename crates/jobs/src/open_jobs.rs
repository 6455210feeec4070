//! The jobs of an open folder: what the book decides, made durable.
//!
//! Nobody is told of a job or of an answer before it survives a crash. Between two steps of a job the book may have
//! changed; every step looks again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::body_file::KeptKind;
use crate::book::{Added, JobBook};
use crate::config::JobsConfig;
use crate::counts::JobCounts;
use crate::error::JobError;
use crate::job::{IdempotencyKey, JobId, JobOwner, JobRecord};
use crate::job_view::{JobFilter, JobView, TakenJob};
use crate::message::{KeptAnswer, KeptMessage, KeptRequest};
use crate::store::{JobChange, JobStore};
use crate::writer::JobWriter;

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
}

/// The jobs of an open folder.
pub struct OpenJobs {
    store: Arc<JobStore>,
    writer: JobWriter,
    book: Mutex<JobBook>,
    /// Told when there may be something to do.
    work: Notify,
}

impl OpenJobs {
    pub(crate) fn open(config: &JobsConfig) -> Result<Self, JobError> {
        let (store, kept) = JobStore::open(&config.folder)?;
        let (store, known) = (Arc::new(store), kept.len());
        let keep = u64::try_from(config.keep.as_millis()).unwrap_or(u64::MAX);
        let book = JobBook::new((config.count_max, config.bytes_max, keep), kept);
        let writer = JobWriter::start(Arc::clone(&store));
        let writer = writer.map_err(|error| JobError::folder(&config.folder, error))?;
        let folder = config.folder.display();
        tracing::info!(%folder, known, "jobs are kept");
        Ok(Self { store, writer, book: Mutex::new(book), work: Notify::new() })
    }

    fn book(&self) -> MutexGuard<'_, JobBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a job, or finds the one that its owner made before. When this returns, it survives a crash. Whoever stops
    /// waiting changes nothing.
    ///
    /// # Errors
    /// There is no room, it cannot be written, or its idempotency key belongs to another request.
    pub async fn submit(self: &Arc<Self>, new: NewJob, now: u64) -> Result<JobView, JobError> {
        let jobs = Arc::clone(self);
        let kept = tokio::spawn(async move { jobs.keep(new, now).await });
        kept.await.unwrap_or(Err(JobError::Ended))
    }

    async fn keep(&self, new: NewJob, now: u64) -> Result<JobView, JobError> {
        let NewJob { owner, model, idempotency, request, again } = new;
        let (written, large, id) = (request.write()?, request.is_large(), JobId::fresh()?);
        let bytes = kept_bytes(&written, &request);
        let (created, cancelled, ended) = (now, false, None);
        let record =
            JobRecord { id, owner, model, created, bytes, idempotency, again, cancelled, ended };
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

    /// The job whose turn it is, unless as many run as may.
    pub fn take(&self, now: u64, parallel: usize) -> Option<TakenJob> {
        let mut book = self.book();
        if book.running() < parallel { book.take(now) } else { None }
    }

    /// Resolves when there may be something to do while so many may run; `at` makes a timer of a time.
    pub async fn work<T: Future<Output = ()>>(&self, parallel: usize, at: impl FnOnce(u64) -> T) {
        let next = self.book().next_time(parallel);
        let timer = async {
            match next {
                Some(time) => at(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.work.notified() => {}
            () = timer => {}
        }
    }

    /// What a job asks for.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn request(&self, job: &TakenJob) -> Result<KeptRequest, JobError> {
        self.read(job.number, job.id, KeptKind::Request).await
    }

    /// Resolves when a job has gone, or has been answered.
    pub async fn over(&self, number: u64) {
        loop {
            let Some(changed) = self.book().changed(number) else { return };
            let change = changed.notified();
            if self.book().view(number).is_none_or(|view| view.state.is_ended()) {
                return;
            }
            change.await;
        }
    }

    /// Tries a job again at this time; an attempt that was `ours` to break off does not count.
    pub fn put_back(&self, number: u64, at: u64, ours: bool) {
        self.book().put_back(number, at, ours);
        self.work.notify_one();
    }

    /// Keeps the answer of a job, as a rule in place of its request. One that was deleted or ended meanwhile stays so.
    ///
    /// # Errors
    /// There is no room for it, or it cannot be written; the job is as before.
    pub async fn end(&self, job: &TakenJob, answer: KeptAnswer, now: u64) -> Result<(), JobError> {
        self.finish((job.number, job.id), answer, now, false).await
    }

    /// Ends a job with an answer that says so, whether it waits or runs. Whoever stops waiting changes nothing.
    ///
    /// # Errors
    /// There is none of this owner, or that cannot be written.
    pub async fn cancel(
        self: &Arc<Self>,
        owner: &JobOwner,
        id: JobId,
        answer: KeptAnswer,
        now: u64,
    ) -> Result<JobView, JobError> {
        let number = self.book().find(owner, id).ok_or(JobError::Unknown)?;
        let jobs = Arc::clone(self);
        let ended = tokio::spawn(async move {
            let ended = jobs.finish((number, id), answer, now, true).await;
            if ended.is_err() {
                jobs.put_back(number, now, true);
            }
            ended
        });
        ended.await.unwrap_or(Err(JobError::Ended))?;
        self.view(owner, id)
    }

    async fn finish(
        &self,
        (number, id): (u64, JobId),
        answer: KeptAnswer,
        now: u64,
        cancelled: bool,
    ) -> Result<(), JobError> {
        let (written, large) = (answer.write()?, answer.is_large());
        let kept = (answer.head.status, kept_bytes(&written, &answer));
        let Some(record) = self.book().answered(number, now, kept, cancelled) else {
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
        if !keeps_request {
            self.store.remove_body(id, KeptKind::Request);
        }
        if !known {
            self.remove_rows(vec![(number, id)]).await?;
        }
        Ok(())
    }

    /// How many jobs there are, and what became of others.
    pub fn counts(&self) -> JobCounts {
        self.book().counts()
    }

    /// What an owner sees of a job.
    ///
    /// # Errors
    /// There is none of this owner.
    pub fn view(&self, owner: &JobOwner, id: JobId) -> Result<JobView, JobError> {
        let book = self.book();
        let view = book.find(owner, id).and_then(|number| book.view(number));
        view.ok_or(JobError::Unknown)
    }

    /// The same, once it was answered.
    ///
    /// # Errors
    /// There is none of this owner, or not any more.
    pub async fn ended(&self, owner: &JobOwner, id: JobId) -> Result<JobView, JobError> {
        let number = self.book().find(owner, id).ok_or(JobError::Unknown)?;
        self.over(number).await;
        self.view(owner, id)
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
        let number = self.book().find(owner, id).ok_or(JobError::Unknown)?;
        loop {
            let changed = self.book().changed(number).ok_or(JobError::Unknown)?;
            let change = changed.notified();
            let view = self.view(owner, id)?;
            if view != *seen {
                return Ok(view);
            }
            change.await;
        }
    }

    /// The answer of a job that has one.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn answer(&self, owner: &JobOwner, id: JobId) -> Result<KeptAnswer, JobError> {
        let number = self.book().find(owner, id).ok_or(JobError::Unknown)?;
        self.read(number, id, KeptKind::Answer).await
    }

    /// What a job asked for that has ended, where that is kept.
    ///
    /// # Errors
    /// There is no such job, or it cannot be read.
    pub async fn asked(&self, owner: &JobOwner, id: JobId) -> Result<KeptRequest, JobError> {
        let number = self.book().find(owner, id).ok_or(JobError::Unknown)?;
        self.read(number, id, KeptKind::Request).await
    }

    /// Forgets a job. If it runs, its answer is not kept. Whoever stops waiting changes nothing.
    ///
    /// # Errors
    /// There is none of this owner, or that cannot be written.
    pub async fn delete(self: &Arc<Self>, owner: &JobOwner, id: JobId) -> Result<(), JobError> {
        let number = {
            let mut book = self.book();
            let number = book.find(owner, id).ok_or(JobError::Unknown)?;
            book.remove(number);
            number
        };
        self.work.notify_one();
        let jobs = Arc::clone(self);
        let removed = tokio::spawn(async move { jobs.remove_rows(vec![(number, id)]).await });
        removed.await.unwrap_or(Err(JobError::Ended))
    }

    /// An owner's jobs, the youngest first, and the number to go on with where there may be more.
    pub fn list(&self, owner: &JobOwner, filter: &JobFilter) -> (Vec<JobView>, Option<u64>) {
        self.book().list(owner, filter)
    }

    /// Forgets answers that are too old, some at a time.
    ///
    /// # Errors
    /// That cannot be written.
    pub async fn expire(&self, now: u64) -> Result<(), JobError> {
        let old = self.book().expire(now);
        if old.is_empty() { Ok(()) } else { self.remove_rows(old).await }
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

    async fn write_body<H: Send + 'static>(
        &self,
        id: JobId,
        kind: KeptKind,
        message: KeptMessage<H>,
    ) -> Result<(), JobError> {
        let store = Arc::clone(&self.store);
        let writing = move || store.write_body(id, kind, &message.body);
        tokio::task::spawn_blocking(writing).await.unwrap_or(Err(JobError::Ended))
    }

    async fn read<H: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        number: u64,
        id: JobId,
        kind: KeptKind,
    ) -> Result<KeptMessage<H>, JobError> {
        let store = Arc::clone(&self.store);
        let reading = move || store.message(number, id, kind);
        tokio::task::spawn_blocking(reading).await.unwrap_or(Err(JobError::Ended))
    }
}

/// What a message takes of the disk.
fn kept_bytes<H: Serialize + DeserializeOwned>(written: &[u8], message: &KeptMessage<H>) -> u64 {
    let beside = if message.is_large() { message.body.len() } else { 0 };
    (written.len() + beside) as u64
}
