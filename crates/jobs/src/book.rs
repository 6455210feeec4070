//! What is decided about jobs: whether there is room for one, which is next, which answer is too old, who sees it.
//!
//! Pure: the time is an argument, in milliseconds of Unix time, and nothing here waits, reads or writes.

mod due_webhooks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::counts::{JobCounts, JobTotals};
use crate::error::JobError;
use crate::job::{JobId, JobOwner, JobRecord};
use crate::job_view::{DueWebhook, JobFilter, JobState, JobView, TakenJob};
use crate::limits::{JobLimits, KeptSum};
use crate::webhook::{JobWebhook, WebhookOutcome};

use self::due_webhooks::DueWebhooks;

/// Jobs that one look into the list passes at most.
const LOOKED_AT_MAX: usize = 10_000;
/// Answers that are removed at a time.
const EXPIRED_MAX: usize = 256;

/// How far a job is, as only the book knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStage {
    /// It is not durable yet, and nobody sees it.
    Storing,
    Queued,
    Running,
    /// Its answer is being written. It counts as running.
    Ending,
    Ended,
}

struct BookEntry {
    record: JobRecord,
    stage: JobStage,
    attempts: u32,
    /// Told whenever the stage changes, if anybody waits for that.
    changed: Option<Arc<Notify>>,
}

impl BookEntry {
    fn state(&self) -> Option<JobState> {
        match (self.stage, self.record.ended) {
            (JobStage::Storing, _) => None,
            (JobStage::Running | JobStage::Ending, None) => Some(JobState::Running),
            (_, None) => Some(JobState::Queued),
            (_, Some(_)) if self.record.cancelled => Some(JobState::Cancelled),
            (_, Some((_, ..400))) => Some(JobState::Succeeded),
            (_, Some(_)) => Some(JobState::Failed),
        }
    }

    fn set(&mut self, stage: JobStage) {
        self.stage = stage;
        if let Some(changed) = &self.changed {
            changed.notify_waiters();
        }
    }
}

/// What became of a job that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is new, and must be made durable.
    New(u64),
    /// Its owner made it before, with the same idempotency key.
    Known(u64),
}

/// The jobs of one owner.
#[derive(Default)]
struct OwnedJobs {
    numbers: BTreeSet<u64>,
    bytes: u64,
}

/// All jobs.
pub(crate) struct JobBook {
    limits: JobLimits,
    /// How long answers are kept, in milliseconds.
    keep: u64,
    jobs: BTreeMap<u64, BookEntry>,
    numbers: HashMap<JobId, u64>,
    of_owner: HashMap<JobOwner, OwnedJobs>,
    of_key: HashMap<(JobOwner, String), u64>,
    waiting: BTreeSet<u64>,
    /// When another attempt is due, and of which job.
    delayed: BTreeSet<(u64, u64)>,
    /// When an answer is too old, and of which job.
    expiring: BTreeSet<(u64, u64)>,
    webhooks: DueWebhooks,
    bytes: u64,
    running: usize,
    /// Answers that are kept: good ones, and others.
    kept: [usize; 2],
    totals: JobTotals,
    next: u64,
}

impl JobBook {
    /// The jobs that are kept. Those without an answer wait: whoever ran them is gone.
    pub(crate) fn new(
        (count, bytes, keep): (usize, u64, u64),
        kept: Vec<(u64, JobRecord)>,
    ) -> Self {
        let mut book = Self {
            limits: JobLimits { count, bytes },
            keep,
            jobs: BTreeMap::new(),
            numbers: HashMap::new(),
            of_owner: HashMap::new(),
            of_key: HashMap::new(),
            waiting: BTreeSet::new(),
            delayed: BTreeSet::new(),
            expiring: BTreeSet::new(),
            webhooks: DueWebhooks::default(),
            bytes: 0,
            running: 0,
            kept: [0; 2],
            totals: JobTotals::default(),
            next: 0,
        };
        for (number, record) in kept {
            let ended = record.ended;
            book.insert(number, record);
            match ended {
                None => book.stored(number),
                Some((at, _)) => book.keep_answer(number, at),
            }
        }
        book.totals = JobTotals::default();
        book
    }

    fn insert(&mut self, number: u64, record: JobRecord) {
        self.next = self.next.max(number + 1);
        self.bytes += record.bytes;
        self.numbers.insert(record.id, number);
        let owned = self.of_owner.entry(record.owner.clone()).or_default();
        owned.numbers.insert(number);
        owned.bytes += record.bytes;
        if let Some(key) = &record.idempotency {
            self.of_key.insert((record.owner.clone(), key.text.clone()), number);
        }
        let (stage, changed) = (JobStage::Storing, None);
        self.jobs.insert(number, BookEntry { record, stage, attempts: 0, changed });
    }

    /// Takes a new job in, unless its owner made it before.
    pub(crate) fn add(&mut self, record: JobRecord) -> Result<Added, JobError> {
        if let Some(key) = &record.idempotency {
            let known = self.of_key.get(&(record.owner.clone(), key.text.clone()));
            if let Some((number, entry)) = known.and_then(|it| Some((*it, self.jobs.get(it)?))) {
                let same = entry.record.idempotency.as_ref() == Some(key);
                return if same { Ok(Added::Known(number)) } else { Err(JobError::OtherRequest) };
            }
        }
        let owned = self.of_owner.get(&record.owner);
        let owned = owned.map(|owned| KeptSum { count: owned.numbers.len(), bytes: owned.bytes });
        let all = KeptSum { count: self.jobs.len(), bytes: self.bytes };
        self.limits.check(all, owned.unwrap_or_default(), &record)?;
        let number = self.next;
        self.insert(number, record);
        Ok(Added::New(number))
    }

    /// A job is durable: it waits for its turn.
    pub(crate) fn stored(&mut self, number: u64) {
        if let Some(entry) = self.jobs.get_mut(&number) {
            entry.set(JobStage::Queued);
            self.waiting.insert(number);
            self.totals.submitted += 1;
        }
    }

    /// The job whose turn it is, the oldest first.
    pub(crate) fn take(&mut self, now: u64) -> Option<TakenJob> {
        while let Some(due) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&due);
            self.waiting.insert(due.1);
        }
        let number = self.waiting.pop_first()?;
        let entry = self.jobs.get_mut(&number)?;
        entry.set(JobStage::Running);
        self.running += 1;
        entry.attempts += 1;
        let JobRecord { id, owner, model, created, bytes, .. } = &entry.record;
        Some(TakenJob {
            number,
            id: *id,
            owner: owner.clone(),
            model: model.clone(),
            bytes: *bytes,
            attempts: entry.attempts - 1,
            late: created.saturating_add(self.keep) <= now,
        })
    }

    /// A job that is to be tried again, from this time on. An attempt that was `ours` to break off does not count.
    pub(crate) fn put_back(&mut self, number: u64, at: u64, ours: bool) {
        let Some(entry) = self.jobs.get_mut(&number) else { return };
        if entry.stage != JobStage::Running {
            return;
        }
        self.running -= 1;
        entry.attempts = entry.attempts.saturating_sub(ours.into());
        entry.set(JobStage::Queued);
        self.delayed.insert((at, number));
    }

    /// How many jobs are being answered.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// The record of a job as it is with an answer of so many bytes, which is to be made durable; none where the job is
    /// gone, or somebody else ends it.
    pub(crate) fn answered(
        &mut self,
        number: u64,
        now: u64,
        (status, bytes): (u16, u64),
        cancelled: bool,
    ) -> Option<Result<JobRecord, JobError>> {
        let JobRecord { again, bytes: before, .. } = self.jobs.get(&number)?.record;
        let bytes = if again { bytes.saturating_add(before) } else { bytes };
        let room = self.limits.check_room(self.bytes, bytes.saturating_sub(before));
        let entry = self.jobs.get_mut(&number)?;
        match (entry.stage, room) {
            (JobStage::Storing | JobStage::Ending | JobStage::Ended, _) => return None,
            (_, Err(error)) => return Some(Err(error)),
            (JobStage::Running, Ok(())) => {}
            (JobStage::Queued, Ok(())) => {
                self.running += 1;
                if !self.waiting.remove(&number) {
                    self.delayed.retain(|(_, delayed)| *delayed != number);
                }
            }
        }
        entry.stage = JobStage::Ending;
        let ended = Some((now, status));
        Some(Ok(JobRecord { bytes, ended, cancelled, ..entry.record.clone() }))
    }

    /// An answer could not be made durable: the job runs as before.
    pub(crate) fn unanswered(&mut self, number: u64) {
        if let Some(entry) = self.jobs.get_mut(&number) {
            entry.stage = JobStage::Running;
        }
    }

    /// An answer is durable; false where the job is gone.
    pub(crate) fn end(&mut self, number: u64, record: JobRecord) -> bool {
        let Some(entry) = self.jobs.get_mut(&number) else { return false };
        self.bytes = self.bytes - entry.record.bytes + record.bytes;
        if let Some(owned) = self.of_owner.get_mut(&record.owner) {
            owned.bytes = owned.bytes - entry.record.bytes + record.bytes;
        }
        let at = record.ended.map_or(record.created, |(at, _)| at);
        entry.record = record;
        let good = entry.state() == Some(JobState::Succeeded);
        self.totals.succeeded += u64::from(good);
        self.totals.failed += u64::from(!good);
        self.running -= 1;
        self.keep_answer(number, at);
        true
    }

    fn keep_answer(&mut self, number: u64, at: u64) {
        if let Some(entry) = self.jobs.get_mut(&number) {
            entry.set(JobStage::Ended);
            self.kept[usize::from(entry.state() != Some(JobState::Succeeded))] += 1;
            self.expiring.insert((at.saturating_add(self.keep), number));
            self.webhooks.insert(number, &entry.record);
        }
    }

    /// Takes a job out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<JobId> {
        let mut entry = self.jobs.remove(&number)?;
        match entry.stage {
            JobStage::Running | JobStage::Ending => self.running -= 1,
            JobStage::Ended => {
                self.kept[usize::from(entry.state() != Some(JobState::Succeeded))] -= 1;
            }
            JobStage::Storing | JobStage::Queued => {}
        }
        entry.set(JobStage::Ended);
        self.webhooks.remove(number, &entry.record);
        let JobRecord { id, owner, bytes, idempotency, ended, .. } = entry.record;
        self.bytes -= bytes;
        self.numbers.remove(&id);
        if !self.waiting.remove(&number) && ended.is_none() {
            self.delayed.retain(|(_, delayed)| *delayed != number);
        }
        if let Some((at, _)) = ended {
            self.expiring.remove(&(at.saturating_add(self.keep), number));
        }
        if let Some(key) = idempotency {
            self.of_key.remove(&(owner.clone(), key.text));
        }
        if let Some(owned) = self.of_owner.get_mut(&owner) {
            owned.numbers.remove(&number);
            owned.bytes -= bytes;
            if owned.numbers.is_empty() {
                self.of_owner.remove(&owner);
            }
        }
        Some(id)
    }

    /// Takes answers out that are too old, some at a time.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<(u64, JobId)> {
        let old = self.expiring.iter().take_while(|(at, _)| *at <= now).take(EXPIRED_MAX);
        let old: Vec<_> = old.map(|(_, number)| *number).collect();
        self.totals.expired += old.len() as u64;
        old.into_iter().filter_map(|number| Some((number, self.remove(number)?))).collect()
    }

    /// The webhook whose turn it is, of a receiver that is not busy.
    pub(crate) fn take_webhook(&mut self, now: u64, busy: &[String]) -> Option<DueWebhook> {
        let number = self.webhooks.take(now, busy)?;
        let job = self.view(number)?;
        let JobWebhook { url, attempts, .. } = self.jobs.get(&number)?.record.webhook.clone()?;
        Some(DueWebhook { number, url, attempts, job })
    }

    /// When the next webhook of a receiver that is not busy is due.
    pub(crate) fn webhook_time(&self, busy: &[String]) -> Option<u64> {
        self.webhooks.next(busy)
    }

    /// The record of a job after an attempt to send its webhook; none where the job is gone.
    pub(crate) fn webhook_sent(
        &mut self,
        number: u64,
        outcome: WebhookOutcome,
    ) -> Option<JobRecord> {
        self.totals.webhooks.count(outcome);
        let entry = self.jobs.get_mut(&number)?;
        entry.record.webhook.as_mut()?.after(outcome);
        self.webhooks.insert(number, &entry.record);
        if let Some(changed) = &entry.changed {
            changed.notify_waiters();
        }
        Some(entry.record.clone())
    }

    /// Whether a job is kept.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.jobs.contains_key(&number)
    }

    /// How many there are, and what became of others.
    pub(crate) fn counts(&self) -> JobCounts {
        let delayed = self.delayed.iter().map(|(_, number)| number).min();
        let oldest = self.waiting.first().into_iter().chain(delayed).min();
        JobCounts {
            queued: self.waiting.len() + self.delayed.len(),
            running: self.running,
            succeeded: self.kept[0],
            failed: self.kept[1],
            bytes: self.bytes,
            waiting_since: oldest.and_then(|number| Some(self.jobs.get(number)?.record.created)),
            totals: self.totals,
        }
    }

    /// When there is something to do, if nothing happens until then and so many may run.
    pub(crate) fn next_time(&self, parallel: usize) -> Option<u64> {
        let first = |all: &BTreeSet<(u64, u64)>| all.first().map(|(at, _)| *at);
        let delayed = first(&self.delayed).filter(|_| self.running < parallel);
        [delayed, first(&self.expiring)].into_iter().flatten().min()
    }

    /// The number of an owner's job that is durable.
    pub(crate) fn find(&self, owner: &JobOwner, id: JobId) -> Option<u64> {
        let number = self.numbers.get(&id)?;
        let entry = self.jobs.get(number)?;
        (entry.record.owner == *owner && entry.state().is_some()).then_some(*number)
    }

    pub(crate) fn view(&self, number: u64) -> Option<JobView> {
        let entry = self.jobs.get(&number)?;
        let JobRecord { id, model, created, ended, webhook, .. } = &entry.record;
        Some(JobView {
            id: *id,
            model: model.clone(),
            state: entry.state()?,
            attempts: entry.attempts,
            created: *created,
            ended: *ended,
            expires: ended.map(|(at, _)| at.saturating_add(self.keep)),
            webhook: webhook.as_ref().map(JobWebhook::view),
        })
    }

    /// Told when a job changes; none where it is gone.
    pub(crate) fn changed(&mut self, number: u64) -> Option<Arc<Notify>> {
        let entry = self.jobs.get_mut(&number)?;
        Some(Arc::clone(entry.changed.get_or_insert_default()))
    }

    /// An owner's jobs, the youngest first, and the number to go on with where there may be more.
    pub(crate) fn list(&self, owner: &JobOwner, filter: &JobFilter) -> (Vec<JobView>, Option<u64>) {
        let mut listed = Vec::new();
        let Some(owned) = self.of_owner.get(owner) else { return (listed, None) };
        let before = filter.before.unwrap_or(u64::MAX);
        for (passed, number) in owned.numbers.range(..before).rev().enumerate() {
            if listed.len() >= filter.limit || passed >= LOOKED_AT_MAX {
                return (listed, Some(number + 1));
            }
            let fits = |view: &JobView| {
                filter.state.is_none_or(|state| view.state == state)
                    && filter.model.as_ref().is_none_or(|model| view.model == *model)
            };
            listed.extend(self.view(*number).filter(fits));
        }
        (listed, None)
    }
}

#[cfg(test)]
mod tests;
