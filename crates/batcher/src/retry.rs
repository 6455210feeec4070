//! Members of failed batches that are tried again, in smaller groups.
//!
//! Apart from the queue, because a retry group is dispatched as exactly that group, before other
//! requests, and on another worker if possible. This bounds what a bad request may cost: among n one model
//! failure takes log2 n rounds from a budget, one that ends workers takes 1 + log2 n of them (one that was
//! alone: 2).
//!
//! After the exit of a worker all requests that it had are suspects. A group of them has a worker for itself,
//! so that nobody else becomes one. Between two groups fresh requests have their turn, and there is an end to it:
//! suspects that have not been cleared in time fail.

use std::collections::VecDeque;

use crate::event::BatchFailure;
use crate::records::{Location, Record, Records, RequestList};
use crate::request::{NEVER, Nanos, WorkerId};

/// Worker crashes after which a request is given up that was alone in the last.
const CRASHES_MAX: u8 = 2;

/// Whether one of `len` requests that failed together gets another chance; its crashes include this one.
pub(crate) fn again(record: &Record, kind: BatchFailure, len: u32) -> bool {
    // What a pinned request changed on its worker cannot be undone.
    record.request.worker.is_none()
        && match kind {
            BatchFailure::Handler | BatchFailure::TimedOut => len > 1,
            BatchFailure::Crashed => len > 1 || record.crashes < CRASHES_MAX,
        }
}

/// How many of `survivors` share a batch the next time.
pub(crate) fn group_len(kind: BatchFailure, survivors: u32) -> u32 {
    match kind {
        BatchFailure::Handler | BatchFailure::Crashed => survivors.div_ceil(2),
        // A worker is soon started again; one that hangs takes all the time that it may.
        BatchFailure::TimedOut => 1,
    }
}

/// The how-manieth try of some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAttempt {
    /// 1 for the first try.
    pub(crate) number: u8,
    /// Until when suspects are tried again; [`NEVER`] for all others.
    pub(crate) until: Nanos,
}

impl RetryAttempt {
    pub(crate) const FIRST: Self = Self { number: 1, until: NEVER };

    /// Whether a worker exited with these requests.
    pub(crate) fn suspects(self) -> bool {
        self.until != NEVER
    }

    /// The next one after a failure of this kind. Who is a suspect first now is one for so long; whose worker
    /// has not exited is none any more.
    pub(crate) fn next(self, kind: BatchFailure, now: Nanos, suspect_time: Nanos) -> Self {
        let until = match kind {
            BatchFailure::Handler => NEVER,
            BatchFailure::Crashed | BatchFailure::TimedOut => {
                self.until.min(now.saturating_add(suspect_time)).min(NEVER - 1)
            }
        };
        Self { number: self.number.saturating_add(1), until }
    }
}

/// Members of a failed batch that share a batch once more.
#[derive(Debug)]
pub(crate) struct RetryGroup {
    pub(crate) members: RequestList,
    /// Of the dispatch to come.
    pub(crate) attempt: RetryAttempt,
    /// The worker on which they failed.
    pub(crate) avoid: WorkerId,
}

/// Retry groups that wait for a worker slot, first come first served.
#[derive(Debug, Default)]
pub(crate) struct RetryQueue {
    /// A group whose members were all cancelled or expired stays, empty, until its turn.
    groups: VecDeque<RetryGroup>,
    /// Serial number of the front group.
    first: u64,
    pub(crate) len: u32,
    /// Without the parts before the last of a request.
    pub(crate) requests: u32,
    pub(crate) items: u64,
}

impl RetryQueue {
    /// Adds a group, unless it is empty.
    pub(crate) fn push(&mut self, records: &mut Records, group: RetryGroup) {
        if group.members.len == 0 {
            return;
        }
        self.count(records, &group, self.first + self.groups.len() as u64);
        self.groups.push_back(group);
    }

    /// Puts what is left of the first group back, unless it is empty.
    pub(crate) fn put_back(&mut self, records: &mut Records, group: RetryGroup) {
        if group.members.len > 0 {
            self.first -= 1;
            self.count(records, &group, self.first);
            self.groups.push_front(group);
        }
    }

    fn count(&mut self, records: &mut Records, group: &RetryGroup, serial: u64) {
        records.put(&group.members, Location::Retry(serial));
        self.len += group.members.len;
        self.requests += group.members.requests;
        self.items += group.members.items;
    }

    /// The first group.
    pub(crate) fn first(&self) -> Option<&RetryGroup> {
        self.groups.iter().find(|group| group.members.len > 0)
    }

    /// Whether the first group is one of suspects.
    pub(crate) fn suspects_wait(&self) -> bool {
        self.first().is_some_and(|group| group.attempt.suspects())
    }

    /// Takes out the first group.
    pub(crate) fn pop(&mut self, records: &mut Records) -> Option<RetryGroup> {
        let group = loop {
            let group = self.groups.pop_front()?;
            self.first += 1;
            if group.members.len > 0 {
                break group;
            }
        };
        records.put(&group.members, Location::Running);
        self.len -= group.members.len;
        self.requests -= group.members.requests;
        self.items -= group.members.items;
        Some(group)
    }

    /// Until when each member may wait, and whether that is because it is a suspect.
    pub(crate) fn limits<'a>(
        &'a self,
        records: &'a Records,
    ) -> impl Iterator<Item = (Nanos, bool, u32)> + 'a {
        self.groups.iter().flat_map(|group| {
            let until = group.attempt.until;
            records.walk(&group.members).map(move |record| {
                let deadline = record.request.deadline;
                (deadline.min(until), until < deadline, record.request.id.slot())
            })
        })
    }

    /// Takes all groups out.
    pub(crate) fn take_all(&mut self, records: &mut Records) -> Vec<RetryGroup> {
        std::iter::from_fn(|| self.pop(records)).collect()
    }

    /// Takes one request out of its group.
    pub(crate) fn remove(&mut self, records: &mut Records, at: u32, serial: u64) {
        let group = &mut self.groups[(serial - self.first) as usize];
        self.len -= 1;
        self.requests -= records[at].request.counts();
        self.items -= u64::from(records[at].request.items);
        records[at].location = Location::Running;
        records.remove(&mut group.members, at);
    }
}
