//! What is decided about jobs: whether there is room for one, which is next, which answer is too old, who sees it.
//!
//! Pure: the time is an argument, in milliseconds of Unix time, and nothing here waits, reads or writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::JobError;
use crate::job::{JobId, JobOwner, JobRecord};

/// Jobs that one look into the list passes at most.
const LOOKED_AT_MAX: usize = 10_000;
/// Answers that are removed at a time.
const EXPIRED_MAX: usize = 256;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for its turn, or for another attempt.
    Queued,
    /// It is being answered.
    Running,
    /// It was answered with a status below 400.
    Succeeded,
    /// It was answered with any other status.
    Failed,
}

impl JobState {
    /// Each with its word.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("queued", Self::Queued),
        ("running", Self::Running),
        ("succeeded", Self::Succeeded),
        ("failed", Self::Failed),
    ];

    /// Whether there is an answer.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What a job's owner sees of it. Times are milliseconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its name.
    pub id: JobId,
    /// The model, or the workflow.
    pub model: String,
    /// How far it is.
    pub state: JobState,
    /// How often it was begun by this server.
    pub attempts: u32,
    /// When it came.
    pub created: u64,
    /// When it was answered, and with which status.
    pub ended: Option<(u64, u16)>,
    /// When it is forgotten, once it is answered.
    pub expires: Option<u64>,
}

/// Which jobs are listed.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only those of this state.
    pub state: Option<JobState>,
    /// Only those of this model.
    pub model: Option<String>,
    /// Only those that came before this one, by its number.
    pub before: Option<u64>,
    /// The most that are listed.
    pub limit: usize,
}

/// A job whose turn it is.
#[derive(Clone, Debug)]
pub struct TakenJob {
    /// Its number: in the order in which they came.
    pub number: u64,
    /// Its name.
    pub id: JobId,
    /// Who made it.
    pub owner: JobOwner,
    /// The model, or the workflow.
    pub model: String,
    /// What is kept of it.
    pub bytes: u64,
    /// The attempts before this one.
    pub attempts: u32,
    /// Whether it has waited for longer than jobs are kept.
    pub late: bool,
}

/// How far a job is, as only the book knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStage {
    /// It is not durable yet, and nobody sees it.
    Storing,
    Queued,
    Running,
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
            (JobStage::Running, None) => Some(JobState::Running),
            (_, None) => Some(JobState::Queued),
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

/// All jobs.
pub(crate) struct JobBook {
    count_max: usize,
    bytes_max: u64,
    /// How long answers are kept, in milliseconds.
    keep: u64,
    jobs: BTreeMap<u64, BookEntry>,
    numbers: HashMap<JobId, u64>,
    of_owner: HashMap<JobOwner, BTreeSet<u64>>,
    of_key: HashMap<(JobOwner, String), u64>,
    waiting: BTreeSet<u64>,
    /// When another attempt is due, and of which job.
    delayed: BTreeSet<(u64, u64)>,
    /// When an answer is too old, and of which job.
    expiring: BTreeSet<(u64, u64)>,
    bytes: u64,
    running: usize,
    next: u64,
}

impl JobBook {
    /// The jobs that are kept. Those without an answer wait: whoever ran them is gone.
    pub(crate) fn new(
        (count_max, bytes_max, keep): (usize, u64, u64),
        kept: Vec<(u64, JobRecord)>,
    ) -> Self {
        let mut book = Self {
            count_max,
            bytes_max,
            keep,
            jobs: BTreeMap::new(),
            numbers: HashMap::new(),
            of_owner: HashMap::new(),
            of_key: HashMap::new(),
            waiting: BTreeSet::new(),
            delayed: BTreeSet::new(),
            expiring: BTreeSet::new(),
            bytes: 0,
            running: 0,
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
        book
    }

    fn insert(&mut self, number: u64, record: JobRecord) {
        self.next = self.next.max(number + 1);
        self.bytes += record.bytes;
        self.numbers.insert(record.id, number);
        self.of_owner.entry(record.owner.clone()).or_default().insert(number);
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
        if self.jobs.len() >= self.count_max {
            return Err(JobError::TooMany { count: self.jobs.len() });
        }
        self.check_room(record.bytes)?;
        let number = self.next;
        self.insert(number, record);
        Ok(Added::New(number))
    }

    fn check_room(&self, bytes: u64) -> Result<(), JobError> {
        let fits = self.bytes.saturating_add(bytes) <= self.bytes_max;
        if fits { Ok(()) } else { Err(JobError::TooLarge { bytes }) }
    }

    /// A job is durable: it waits for its turn.
    pub(crate) fn stored(&mut self, number: u64) {
        if let Some(entry) = self.jobs.get_mut(&number) {
            entry.set(JobStage::Queued);
            self.waiting.insert(number);
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
        self.running -= 1;
        entry.attempts -= u32::from(ours);
        entry.set(JobStage::Queued);
        self.delayed.insert((at, number));
    }

    /// How many jobs are being answered.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// The record of a job as it is with an answer of so many bytes; none where the job is gone.
    pub(crate) fn answered(
        &self,
        number: u64,
        now: u64,
        status: u16,
        bytes: u64,
    ) -> Option<Result<JobRecord, JobError>> {
        let record = &self.jobs.get(&number)?.record;
        let more = bytes.saturating_sub(record.bytes);
        Some(self.check_room(more).map(|()| JobRecord {
            bytes,
            ended: Some((now, status)),
            ..record.clone()
        }))
    }

    /// An answer is durable; false where the job is gone.
    pub(crate) fn end(&mut self, number: u64, record: JobRecord) -> bool {
        let Some(entry) = self.jobs.get_mut(&number) else { return false };
        self.bytes = self.bytes - entry.record.bytes + record.bytes;
        let at = record.ended.map_or(record.created, |(at, _)| at);
        entry.record = record;
        self.running -= 1;
        self.keep_answer(number, at);
        true
    }

    fn keep_answer(&mut self, number: u64, at: u64) {
        if let Some(entry) = self.jobs.get_mut(&number) {
            entry.set(JobStage::Ended);
            self.expiring.insert((at.saturating_add(self.keep), number));
        }
    }

    /// Takes a job out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<JobId> {
        let mut entry = self.jobs.remove(&number)?;
        self.running -= usize::from(entry.stage == JobStage::Running);
        entry.set(JobStage::Ended);
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
        if let Some(numbers) = self.of_owner.get_mut(&owner) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_owner.remove(&owner);
            }
        }
        Some(id)
    }

    /// Takes answers out that are too old, some at a time.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<(u64, JobId)> {
        let old = self.expiring.iter().take_while(|(at, _)| *at <= now).take(EXPIRED_MAX);
        let old: Vec<_> = old.map(|(_, number)| *number).collect();
        old.into_iter().filter_map(|number| Some((number, self.remove(number)?))).collect()
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
        let JobRecord { id, model, created, ended, .. } = &entry.record;
        Some(JobView {
            id: *id,
            model: model.clone(),
            state: entry.state()?,
            attempts: entry.attempts,
            created: *created,
            ended: *ended,
            expires: ended.map(|(at, _)| at.saturating_add(self.keep)),
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
        let Some(numbers) = self.of_owner.get(owner) else { return (listed, None) };
        let before = filter.before.unwrap_or(u64::MAX);
        for (passed, number) in numbers.range(..before).rev().enumerate() {
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
