//! How many jobs all servers have together, as it was some seconds ago, with what this server has added since.

use std::collections::HashMap;

use crate::counts::{JobCounts, JobTotals};
use crate::error::JobError;
use crate::job::JobRecord;
use crate::job_view::JobState;
use crate::limits::{JobLimits, KeptSum};

/// A group of jobs that the database counted.
pub(super) struct CountedJobs {
    pub(super) owner: String,
    pub(super) state: JobState,
    pub(super) sum: KeptSum,
    /// When the first of them came.
    pub(super) oldest: u64,
}

/// All jobs in numbers.
pub(super) struct SharedCounts {
    limits: JobLimits,
    of_owner: HashMap<String, KeptSum>,
    counts: JobCounts,
}

impl SharedCounts {
    pub(super) fn new(limits: JobLimits) -> Self {
        Self { limits, of_owner: HashMap::new(), counts: JobCounts::default() }
    }

    /// What the database counted just now.
    pub(super) fn refresh(&mut self, counted: Vec<CountedJobs>) {
        self.of_owner.clear();
        self.counts = JobCounts { totals: self.counts.totals, ..JobCounts::default() };
        for CountedJobs { owner, state, sum, oldest } in counted {
            let owned = self.of_owner.entry(owner).or_default();
            owned.count += sum.count;
            owned.bytes += sum.bytes;
            self.counts.bytes += sum.bytes;
            let counts = &mut self.counts;
            match state {
                JobState::Queued => {
                    counts.queued += sum.count;
                    let before = counts.waiting_since.unwrap_or(oldest);
                    counts.waiting_since = Some(before.min(oldest));
                }
                JobState::Running => counts.running += sum.count,
                JobState::Succeeded => counts.succeeded += sum.count,
                JobState::Failed | JobState::Cancelled => counts.failed += sum.count,
            }
        }
    }

    /// Whether there is room for one more, by its owner as the database writes them.
    pub(super) fn check(&self, owner: &str, record: &JobRecord) -> Result<(), JobError> {
        let JobCounts { queued, running, succeeded, failed, bytes, .. } = self.counts;
        let all = KeptSum { count: queued + running + succeeded + failed, bytes };
        let owned = self.of_owner.get(owner).copied().unwrap_or_default();
        self.limits.check(all, owned, record)
    }

    /// One more is kept.
    pub(super) fn add(&mut self, owner: &str, bytes: u64) {
        let owned = self.of_owner.entry(owner.to_owned()).or_default();
        owned.count += 1;
        owned.bytes += bytes;
        self.counts.queued += 1;
        self.counts.bytes += bytes;
        self.counts.totals.submitted += 1;
    }

    /// For how many bytes there is room.
    pub(super) fn room(&self) -> u64 {
        self.limits.bytes.saturating_sub(self.counts.bytes)
    }

    pub(super) fn totals(&mut self) -> &mut JobTotals {
        &mut self.counts.totals
    }

    pub(super) fn counts(&self) -> JobCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobId, JobOwner};

    fn counted(owner: &str, state: JobState, count: usize, oldest: u64) -> CountedJobs {
        let sum = KeptSum { count, bytes: 10 * count as u64 };
        CountedJobs { owner: owner.to_owned(), state, sum, oldest }
    }

    fn record(bytes: u64) -> JobRecord {
        let owner = JobOwner { key: Some("a".to_owned()), tenant: None };
        let (model, idempotency, ended, webhook) = (String::new(), None, None, None);
        let (id, created, again, cancelled) = (JobId::of(1), 1, false, false);
        JobRecord {
            id,
            owner,
            model,
            created,
            bytes,
            idempotency,
            again,
            cancelled,
            ended,
            webhook,
        }
    }

    #[test]
    fn what_others_have_counts_and_what_this_server_added_since() {
        let mut counts = SharedCounts::new(JobLimits { count: 10, bytes: 1000 });
        let groups =
            [(JobState::Queued, 2, 7), (JobState::Running, 1, 5), (JobState::Failed, 1, 3)];
        let groups = groups.map(|(state, count, oldest)| counted("a", state, count, oldest));
        let others = counted("b", JobState::Queued, 3, 6);
        counts.refresh(groups.into_iter().chain([others]).collect());
        assert_eq!((counts.counts().waiting_since, counts.room()), (Some(6), 1000 - 70));
        counts.check("a", &record(10)).unwrap();
        counts.add("a", 10);
        let share = counts.check("a", &record(10));
        assert!(matches!(share, Err(JobError::TooManyOfKey { count: 5 })), "half of all");
        counts.check("b", &record(10)).unwrap();
        let large = counts.check("c", &record(1000));
        assert!(matches!(large, Err(JobError::TooLarge { bytes: 1000 })));
        counts.add("b", 10);
        counts.add("b", 10);
        assert!(matches!(counts.check("c", &record(1)), Err(JobError::TooMany { count: 10 })));
        counts.refresh(Vec::new());
        assert_eq!((counts.counts().queued, counts.counts().totals.submitted), (0, 3));
    }
}
