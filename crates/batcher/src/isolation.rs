//! How members of a failed batch get another chance, apart from each other and from the rest.
//!
//! Kept away from the lanes because a retry group departs as exactly that group, before fresh
//! work, on another worker if it can. It bounds what a bad request may cost: one model failure
//! takes log2 n rounds from a budget, one crash takes a second process, never a third.

use std::collections::VecDeque;

use crate::event::BatchFailure;
use crate::records::{List, Place, Record, Records};
use crate::request::WorkerId;

/// Worker crashes after which a request is given up.
const CRASHES_MAX: u8 = 2;

/// Whether a member of a failed batch of `len` gets another chance; its crashes include this one.
pub(crate) fn again(record: &Record, kind: BatchFailure, len: u32) -> bool {
    // What a pinned request changed on its worker cannot be undone, nor found on another.
    record.request.worker.is_none()
        && match kind {
            BatchFailure::Handler | BatchFailure::TimedOut => len > 1,
            BatchFailure::Crashed => record.crashes < CRASHES_MAX,
        }
}

/// How many of `survivors` travel together the next time.
pub(crate) fn group_len(kind: BatchFailure, survivors: u32) -> u32 {
    match kind {
        BatchFailure::Handler => survivors.div_ceil(2),
        BatchFailure::Crashed | BatchFailure::TimedOut => 1,
    }
}

/// The members of a failed batch, or some of them, who travel together once more.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) members: List,
    /// Of the departure to come.
    pub(crate) attempt: u8,
    /// The worker they were on when it went wrong.
    pub(crate) avoid: WorkerId,
}

/// Groups that wait for a slot, first come first served.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// A group whose members were all cancelled or expired stays, empty, until its turn.
    groups: VecDeque<Group>,
    /// Serial number of the front group.
    first: u64,
    pub(crate) len: u32,
    /// Without the portions that others stand for.
    pub(crate) requests: u32,
    pub(crate) items: u64,
}

impl Retries {
    /// Lets a group wait, if it is one.
    pub(crate) fn push(&mut self, records: &mut Records, group: Group) {
        if group.members.len == 0 {
            return;
        }
        let place = Place::Group(self.first + self.groups.len() as u64);
        records.put(&group.members, place);
        self.len += group.members.len;
        self.requests += group.members.requests;
        self.items += group.members.items;
        self.groups.push_back(group);
    }

    /// Takes out the group whose turn it is.
    pub(crate) fn pop(&mut self, records: &mut Records) -> Option<Group> {
        let group = loop {
            let group = self.groups.pop_front()?;
            self.first += 1;
            if group.members.len > 0 {
                break group;
            }
        };
        records.put(&group.members, Place::Running);
        self.len -= group.members.len;
        self.requests -= group.members.requests;
        self.items -= group.members.items;
        Some(group)
    }

    /// Takes all groups out.
    pub(crate) fn take_all(&mut self, records: &mut Records) -> Vec<Group> {
        std::iter::from_fn(|| self.pop(records)).collect()
    }

    /// Takes one request out of its group.
    pub(crate) fn remove(&mut self, records: &mut Records, at: u32, serial: u64) {
        let group = &mut self.groups[(serial - self.first) as usize];
        self.len -= 1;
        self.requests -= records[at].request.counts();
        self.items -= u64::from(records[at].request.items);
        records[at].place = Place::Running;
        records.remove(&mut group.members, at);
    }
}

/// What retries may still cost: each takes one, each first attempt earns one per member.
///
/// Paid for when a group is formed, whether or not its members live to depart. It counts what is
/// spent, so that a new limit applies by itself.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    spent: u32,
}

impl Budget {
    /// Pays for one more departure, if there is anything left.
    pub(crate) fn spend(&mut self, limit: u32) -> bool {
        let left = self.spent < limit;
        self.spent += u32::from(left);
        left
    }

    /// The first attempt of a batch with so many members is over.
    pub(crate) fn earn(&mut self, members: u32) {
        self.spent = self.spent.saturating_sub(members);
    }
}
