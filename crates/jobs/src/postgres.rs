//! Jobs in PostgreSQL, which several servers share (ADR 0044). The database decides; a server only knows which jobs it
//! runs itself.
//!
//! Whoever takes a job has a lease, and renews it while the job runs. The jobs of a server that was killed are taken by
//! another one when their leases are over.

mod connections;
mod rows;
mod shared_counts;
mod sql;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use self::connections::{DatabaseConnections, SqlValue};
use self::rows::{delay, signed, state, taken, unsigned, view};
use self::shared_counts::{CountedJobs, SharedCounts};
use crate::body_file::KeptKind;
use crate::config::JobsConfig;
use crate::counts::JobCounts;
use crate::database::JobsDatabase;
use crate::error::JobError;
use crate::job::{JobId, JobOwner, JobRecord};
use crate::job_view::{DueWebhook, JobFilter, JobState, JobView, TakenJob};
use crate::kept_jobs::{EndedJob, KeptJobs};
use crate::limits::{JobLimits, KeptSum};
use crate::message::UnreadMessage;
use crate::webhook::{JobWebhook, WebhookOutcome};

/// How long a job belongs to whoever took it, in milliseconds.
const LEASE: i64 = 20_000;
/// How often leases are renewed, jobs are counted and old answers are removed.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How often the database is asked for jobs, and for the state of one that somebody waits for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Jobs that are taken at a time.
const TAKEN_MAX: usize = 64;
/// Answers that are removed at a time.
const EXPIRED_MAX: i64 = 1000;
/// The largest body: the database takes values of less than 1 GiB, and holds each in memory some times over.
const BODY_BYTES_MAX: usize = 256 << 20;

/// The jobs that are taken by this server.
#[derive(Default)]
struct HeldJobs {
    /// All of them.
    numbers: HashSet<u64>,
    /// Those that nobody has begun.
    ready: VecDeque<TakenJob>,
}

/// The jobs of a database.
pub(crate) struct PostgresJobs {
    connections: Arc<DatabaseConnections>,
    /// What this server calls itself.
    server: String,
    keep: u64,
    held: Mutex<HeldJobs>,
    /// Who waits for a job on this server.
    watched: Mutex<HashMap<u64, Weak<Notify>>>,
    counts: Mutex<SharedCounts>,
    /// When old answers were removed last.
    expired_at: AtomicU64,
    work: Arc<Notify>,
    /// Told when a webhook may be due.
    webhooks: Notify,
    runtime: Handle,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn written(owner: &JobOwner) -> Result<String, JobError> {
    serde_json::to_string(owner).map_err(JobError::store)
}

impl PostgresJobs {
    /// Connects, makes the tables where there are none, and begins to renew leases.
    pub(crate) async fn open(
        database: &JobsDatabase,
        config: &JobsConfig,
    ) -> Result<Arc<Self>, JobError> {
        let connections = Arc::new(DatabaseConnections::open(database).await?);
        let limits = JobLimits { count: config.count_max, bytes: config.bytes_max };
        let jobs = Arc::new(Self {
            connections,
            server: JobId::fresh()?.to_string(),
            keep: u64::try_from(config.keep.as_millis()).unwrap_or(u64::MAX),
            held: Mutex::default(),
            watched: Mutex::default(),
            counts: Mutex::new(SharedCounts::new(limits)),
            expired_at: AtomicU64::new(0),
            work: Arc::new(Notify::new()),
            webhooks: Notify::new(),
            runtime: Handle::current(),
        });
        jobs.count().await?;
        let known = lock(&jobs.counts).counts().queued;
        tracing::info!(queued = known, server = jobs.server, "jobs are kept in PostgreSQL");
        tokio::spawn(renew(Arc::downgrade(&jobs)));
        Ok(jobs)
    }

    async fn count(&self) -> Result<(), JobError> {
        let rows = self.connections.query(sql::COUNTS, &[]).await?;
        let counted = rows.iter().map(|row| CountedJobs {
            owner: row.get("owner"),
            state: state(row),
            sum: KeptSum { count: unsigned(row, "count") as usize, bytes: unsigned(row, "bytes") },
            oldest: unsigned(row, "oldest"),
        });
        let counted = counted.collect();
        lock(&self.counts).refresh(counted);
        Ok(())
    }

    async fn renew(&self) -> Result<(), JobError> {
        lock(&self.watched).retain(|_, told| told.strong_count() > 0);
        let held: Vec<_> = lock(&self.held).numbers.iter().map(|it| signed(*it)).collect();
        if held.is_empty() {
            return Ok(());
        }
        let values: [SqlValue<'_>; 3] =
            [(&self.server, Type::TEXT), (&LEASE, Type::INT8), (&held, Type::INT8_ARRAY)];
        self.connections.query(sql::RENEW, &values).await.map(drop)
    }

    /// Tells whoever waits for a job here, and lets it go.
    fn told(&self, number: u64) {
        let watched = lock(&self.watched).remove(&number);
        if let Some(told) = watched.and_then(|told| told.upgrade()) {
            told.notify_waiters();
        }
    }

    fn let_go(&self, number: u64) {
        lock(&self.held).numbers.remove(&number);
        self.work.notify_one();
    }

    /// Takes some jobs for this server.
    async fn take_some(&self, now: u64, count: usize) -> Result<(), JobError> {
        let count = signed(count.min(TAKEN_MAX) as u64);
        let values: [SqlValue<'_>; 3] =
            [(&self.server, Type::TEXT), (&LEASE, Type::INT8), (&count, Type::INT8)];
        let rows = self.connections.query(sql::TAKE, &values).await?;
        let some: Result<Vec<_>, _> = rows.iter().map(|row| taken(row, self.keep, now)).collect();
        let mut some = some?;
        some.sort_by_key(|job| job.number);
        for job in &some {
            self.told(job.number);
        }
        let mut held = lock(&self.held);
        held.numbers.extend(some.iter().map(|job| job.number));
        held.ready.extend(some);
        Ok(())
    }

    /// Adds a job; nothing where its owner's key is known.
    async fn insert(
        &self,
        owner: &str,
        record: &JobRecord,
        (head, body): (&str, &[u8]),
    ) -> Result<Option<JobView>, JobError> {
        let JobRecord { id, model, created, bytes, idempotency, again, webhook, .. } = record;
        let (url, state) = (
            webhook.as_ref().map(|webhook| webhook.url.as_str()),
            webhook.as_ref().map(|webhook| webhook.state.word()),
        );
        let (key, sum) = (
            idempotency.as_ref().map(|key| key.text.as_str()),
            idempotency.as_ref().map(|key| key.request.as_str()),
        );
        let values: [SqlValue<'_>; 12] = [
            (&id.to_string(), Type::TEXT),
            (&owner, Type::TEXT),
            (model, Type::TEXT),
            (&signed(*created), Type::INT8),
            (&signed(*bytes), Type::INT8),
            (&key, Type::TEXT),
            (&sum, Type::TEXT),
            (again, Type::BOOL),
            (&head, Type::TEXT),
            (&body, Type::BYTEA),
            (&url, Type::TEXT),
            (&state, Type::TEXT),
        ];
        let added = self.connections.query(sql::ADD, &values).await?;
        if added.is_empty() {
            return Ok(None);
        }
        lock(&self.counts).add(owner, *bytes);
        self.work.notify_one();
        let (model, state) = (model.clone(), JobState::Queued);
        let (attempts, ended, expires) = (0, None, None);
        let (created, webhook) = (*created, webhook.as_ref().map(JobWebhook::view));
        Ok(Some(JobView { id: *id, model, state, attempts, created, ended, expires, webhook }))
    }

    /// The job that its owner made before with the same key.
    async fn known(&self, owner: &str, record: &JobRecord) -> Result<Option<JobView>, JobError> {
        let Some(key) = &record.idempotency else { return Ok(None) };
        let values: [SqlValue<'_>; 2] = [(&owner, Type::TEXT), (&key.text, Type::TEXT)];
        let rows = self.connections.query(sql::FIND_BY_KEY, &values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        if row.get::<_, Option<&str>>("request_sum") != Some(&key.request) {
            return Err(JobError::OtherRequest);
        }
        Ok(Some(view(row, self.keep)?.1))
    }
}

/// Renews the leases of jobs that run here, and counts all of them, until nobody uses them any more.
async fn renew(jobs: Weak<PostgresJobs>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let Some(jobs) = jobs.upgrade() else { return };
        // What failed is in the log, and is tried again.
        let _ = jobs.renew().await;
        let _ = jobs.count().await;
    }
}

/// What a message takes of the database.
fn checked(message: &UnreadMessage) -> Result<(String, u64), JobError> {
    let (bytes, most) = (message.body.len(), BODY_BYTES_MAX);
    if bytes > most {
        return Err(JobError::BodyTooLarge { bytes, most });
    }
    let head = message.head.to_string();
    let kept = (head.len() + bytes) as u64;
    Ok((head, kept))
}

#[async_trait]
impl KeptJobs for PostgresJobs {
    async fn add(&self, record: JobRecord, request: UnreadMessage) -> Result<JobView, JobError> {
        let (head, bytes) = checked(&request)?;
        let owner = written(&record.owner)?;
        let record = JobRecord { bytes, ..record };
        let room = lock(&self.counts).check(&owner, &record);
        let added = match room {
            Ok(()) => self.insert(&owner, &record, (&head, &request.body)).await?,
            Err(_) => None,
        };
        if let Some(view) = added {
            return Ok(view);
        }
        let known = self.known(&owner, &record).await?;
        known.ok_or_else(|| room.err().unwrap_or(JobError::Unknown))
    }

    async fn take(&self, now: u64, parallel: usize) -> Option<TakenJob> {
        let room = {
            let mut held = lock(&self.held);
            if let Some(job) = held.ready.pop_front() {
                return Some(job);
            }
            parallel.saturating_sub(held.numbers.len())
        };
        // What failed is in the log, and is tried again.
        if room == 0 || self.take_some(now, room).await.is_err() {
            return None;
        }
        lock(&self.held).ready.pop_front()
    }

    async fn work(&self, _now: u64, _parallel: usize) {
        let _ = tokio::time::timeout(LOOK_EVERY, self.work.notified()).await;
    }

    fn put_back(&self, number: u64, at: u64, ours: bool) {
        let delay = delay(at);
        let (connections, server) = (Arc::clone(&self.connections), self.server.clone());
        let work = Arc::clone(&self.work);
        lock(&self.held).numbers.remove(&number);
        self.told(number);
        self.runtime.spawn(async move {
            let values: [SqlValue<'_>; 4] = [
                (&server, Type::TEXT),
                (&delay, Type::INT8),
                (&signed(number), Type::INT8),
                (&i32::from(ours), Type::INT4),
            ];
            // Where this fails its lease ends some time.
            let _ = connections.query(sql::PUT_BACK, &values).await;
            work.notify_one();
        });
    }

    async fn end(&self, (number, _): (u64, JobId), ended: EndedJob) -> Result<(), JobError> {
        let EndedJob { status, answer, at, cancelled } = ended;
        let (head, bytes) = checked(&answer)?;
        let (row, body) = (signed(number), &answer.body[..]);
        let room = lock(&self.counts).room();
        let values: [SqlValue<'_>; 8] = [
            (&row, Type::INT8),
            (&signed(at), Type::INT8),
            (&i32::from(status), Type::INT4),
            (&cancelled, Type::BOOL),
            (&signed(bytes), Type::INT8),
            (&signed(room), Type::INT8),
            (&head, Type::TEXT),
            (&body, Type::BYTEA),
        ];
        let done = self.connections.query(sql::END, &values).await?;
        if done.is_empty() {
            let open = self.connections.query(sql::HAS_NOT_ENDED, &[(&row, Type::INT8)]).await?;
            if !open.is_empty() {
                return Err(JobError::TooLarge { bytes });
            }
        } else {
            let mut counts = lock(&self.counts);
            let good = status < 400 && !cancelled;
            counts.totals().succeeded += u64::from(good);
            counts.totals().failed += u64::from(!good);
        }
        self.told(number);
        self.let_go(number);
        self.webhooks.notify_one();
        Ok(())
    }

    async fn find(&self, owner: &JobOwner, id: JobId) -> Result<(u64, JobView), JobError> {
        let (owner, id) = (written(owner)?, id.to_string());
        let values: [SqlValue<'_>; 2] = [(&owner, Type::TEXT), (&id, Type::TEXT)];
        let rows = self.connections.query(sql::FIND, &values).await?;
        view(rows.first().ok_or(JobError::Unknown)?, self.keep)
    }

    fn changed(&self, number: u64) -> Option<Arc<Notify>> {
        let mut watched = lock(&self.watched);
        let told = watched.entry(number).or_default();
        if let Some(told) = told.upgrade() {
            return Some(told);
        }
        let fresh = Arc::new(Notify::new());
        *told = Arc::downgrade(&fresh);
        Some(fresh)
    }

    fn look_every(&self) -> Option<Duration> {
        Some(LOOK_EVERY)
    }

    async fn message(
        &self,
        (number, _): (u64, JobId),
        kind: KeptKind,
    ) -> Result<UnreadMessage, JobError> {
        let (number, is_answer) = (signed(number), kind == KeptKind::Answer);
        let values: [SqlValue<'_>; 2] = [(&number, Type::INT8), (&is_answer, Type::BOOL)];
        let rows = self.connections.query(sql::MESSAGE, &values).await?;
        let row = rows.first().ok_or(JobError::Unknown)?;
        let head = serde_json::from_str(row.get("head")).map_err(JobError::store)?;
        Ok(UnreadMessage { head, body: row.get::<_, Vec<u8>>("body").into() })
    }

    async fn remove(&self, owner: &JobOwner, id: JobId) -> Result<(), JobError> {
        let (owner, id) = (written(owner)?, id.to_string());
        let values: [SqlValue<'_>; 2] = [(&owner, Type::TEXT), (&id, Type::TEXT)];
        let rows = self.connections.query(sql::REMOVE, &values).await?;
        let number = unsigned(rows.first().ok_or(JobError::Unknown)?, "number");
        self.told(number);
        self.let_go(number);
        Ok(())
    }

    async fn list(
        &self,
        owner: &JobOwner,
        filter: &JobFilter,
    ) -> Result<(Vec<JobView>, Option<u64>), JobError> {
        let word = JobState::WORDS.iter().find(|(_, state)| Some(*state) == filter.state);
        let values: [SqlValue<'_>; 5] = [
            (&written(owner)?, Type::TEXT),
            (&signed(filter.before.unwrap_or(u64::MAX)), Type::INT8),
            (&filter.model, Type::TEXT),
            (&word.map(|(word, _)| *word), Type::TEXT),
            (&signed(filter.limit as u64 + 1), Type::INT8),
        ];
        let rows = self.connections.query(sql::LIST, &values).await?;
        let views: Result<Vec<_>, _> = rows.iter().map(|row| view(row, self.keep)).collect();
        let mut views = views?;
        let next = views.get(filter.limit).map(|(number, _)| number + 1);
        views.truncate(filter.limit);
        Ok((views.into_iter().map(|(_, view)| view).collect(), next))
    }

    async fn expire(&self, now: u64) -> Result<(), JobError> {
        let pause = u64::try_from(RENEW_EVERY.as_millis()).unwrap_or(u64::MAX);
        if now < self.expired_at.load(Relaxed).saturating_add(pause) {
            return Ok(());
        }
        self.expired_at.store(now, Relaxed);
        let before = signed(now.saturating_sub(self.keep));
        let values: [SqlValue<'_>; 2] = [(&before, Type::INT8), (&EXPIRED_MAX, Type::INT8)];
        let removed = self.connections.query(sql::EXPIRE, &values).await?.len() as u64;
        if removed == EXPIRED_MAX.unsigned_abs() {
            self.expired_at.store(0, Relaxed);
        }
        lock(&self.counts).totals().expired += removed;
        Ok(())
    }

    async fn take_webhook(&self, _now: u64, busy: &[String]) -> Option<DueWebhook> {
        let values: [SqlValue<'_>; 2] = [(&LEASE, Type::INT8), (&busy, Type::TEXT_ARRAY)];
        // What failed is in the log, and is tried again.
        let rows = self.connections.query(sql::TAKE_WEBHOOK, &values).await.ok()?;
        let row = rows.first()?;
        let (number, job) = view(row, self.keep).ok()?;
        // The statement gives the row as it was before.
        let attempts = job.webhook?.attempts;
        Some(DueWebhook { number, url: row.get("webhook"), attempts, job })
    }

    async fn webhook_work(&self, _now: u64, _busy: &[String]) {
        let _ = tokio::time::timeout(LOOK_EVERY, self.webhooks.notified()).await;
    }

    async fn webhook_sent(
        &self,
        (number, _): (u64, JobId),
        outcome: WebhookOutcome,
    ) -> Result<(), JobError> {
        lock(&self.counts).totals().webhooks.count(outcome);
        let values: [SqlValue<'_>; 3] = [
            (&signed(number), Type::INT8),
            (&outcome.state().word(), Type::TEXT),
            (&outcome.due().map(delay), Type::INT8),
        ];
        self.connections.query(sql::WEBHOOK_SENT, &values).await?;
        self.told(number);
        Ok(())
    }

    fn counts(&self) -> JobCounts {
        lock(&self.counts).counts()
    }
}
