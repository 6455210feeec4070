//! Members of failed batches that are tried again, in smaller groups.
//!
//! Apart from the queue, because a retry group is dispatched as exactly that group, before other
//! requests, and on another worker if possible. This bounds what a bad request may cost: one model
//! failure takes log2 n rounds from a budget, one crash takes a second process, never a third.

use std::collections::VecDeque;

use crate::event::BatchFailure;
use crate::records::{Location, Record, Records, RequestList};
use crate::request::{Nanos, WorkerId};

/// Worker crashes after which a request is given up.
const CRASHES_MAX: u8 = 2;

/// Whether a member of a failed batch of `len` gets another chance; its crashes include this one.
pub(crate) fn again(record: &Record, kind: BatchFailure, len: u32) -> bool {
    // What a pinned request changed on its worker cannot be undone.
    record.request.worker.is_none()
        && match kind {
            BatchFailure::Handler | BatchFailure::TimedOut => len > 1,
            BatchFailure::Crashed => record.crashes < CRASHES_MAX,
        }
}

/// How many of `survivors` share a batch the next time.
pub(crate) fn group_len(kind: BatchFailure, survivors: u32) -> u32 {
    match kind {
        BatchFailure::Handler => survivors.div_ceil(2),
        BatchFailure::Crashed | BatchFailure::TimedOut => 1,
    }
}

/// Members of a failed batch that share a batch once more.
#[derive(Debug)]
pub(crate) struct RetryGroup {
    pub(crate) members: RequestList,
    /// Of the dispatch to come.
    pub(crate) attempt: u8,
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
        let location = Location::Retry(self.first + self.groups.len() as u64);
        records.put(&group.members, location);
        self.len += group.members.len;
        self.requests += group.members.requests;
        self.items += group.members.items;
        self.groups.push_back(group);
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

    /// The deadlines of all members.
    pub(crate) fn deadlines<'a>(
        &'a self,
        records: &'a Records,
    ) -> impl Iterator<Item = (Nanos, u32)> + 'a {
        let members = self.groups.iter().flat_map(|group| records.walk(&group.members));
        members.map(|record| (record.request.deadline, record.request.id.slot()))
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
