//! What the batcher knows about every request that has not ended, and lists of requests.
//!
//! A record is stored at the index its caller chose, so that finding it needs no hashing. The
//! members of a batch and of a retry group form a list whose links lie inside the records, so that
//! joining and leaving is O(1) without allocation.

use std::ops::{Index, IndexMut};

use crate::request::{Nanos, Request, RequestId};

/// The end of a list. No request has this index.
const NIL: u32 = u32::MAX;
const LIVE: &str = "a request in a list has not ended";

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Waits in this group of the queue.
    Queue(usize),
    /// Waits in the retry group with this serial number.
    Retry(u64),
    /// In a batch on a worker, or being moved.
    Running,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) request: Request,
    pub(crate) arrived: Nanos,
    /// Position in the order of arrival.
    pub(crate) seq: u64,
    pub(crate) location: Location,
    /// Its client disconnected while it ran.
    pub(crate) cancelled: bool,
    /// Worker crashes it was part of.
    pub(crate) crashes: u8,
    prev: u32,
    next: u32,
}

impl Record {
    fn new(request: Request, arrived: Nanos, seq: u64) -> Self {
        let location = Location::Running;
        Self { request, arrived, seq, location, cancelled: false, crashes: 0, prev: NIL, next: NIL }
    }

    pub(crate) fn waits(&self) -> bool {
        !matches!(self.location, Location::Running)
    }
}

/// A list of records with what they weigh together.
#[derive(Debug)]
pub(crate) struct RequestList {
    head: u32,
    tail: u32,
    pub(crate) len: u32,
    /// Without the parts before the last of a request.
    pub(crate) requests: u32,
    pub(crate) items: u64,
    pub(crate) cost: u128,
}

impl RequestList {
    pub(crate) const EMPTY: Self =
        Self { head: NIL, tail: NIL, len: 0, requests: 0, items: 0, cost: 0 };

    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

/// All records, by the index inside [`RequestId`].
#[derive(Debug, Default)]
pub(crate) struct Records {
    records: Vec<Option<Record>>,
    seq: u64,
}

impl Index<u32> for Records {
    type Output = Record;
    fn index(&self, at: u32) -> &Record {
        self.records[at as usize].as_ref().expect(LIVE)
    }
}

impl IndexMut<u32> for Records {
    fn index_mut(&mut self, at: u32) -> &mut Record {
        self.records[at as usize].as_mut().expect(LIVE)
    }
}

impl Records {
    /// Makes a record for a new request.
    pub(crate) fn admit(&mut self, request: Request, arrived: Nanos) -> u32 {
        let at = request.id.slot();
        assert!(at != NIL, "the index u32::MAX is reserved");
        if self.records.len() <= at as usize {
            self.records.resize_with(at as usize + 1, || None);
        }
        let record = &mut self.records[at as usize];
        assert!(record.is_none(), "an index is reused only after its request has ended");
        self.seq += 1;
        *record = Some(Record::new(request, arrived, self.seq));
        at
    }

    /// Finds a request that has not ended, by index and generation.
    pub(crate) fn find(&self, id: RequestId) -> Option<u32> {
        let record = self.records.get(id.index())?.as_ref()?;
        (record.request.id == id).then_some(id.slot())
    }

    /// Forgets a request that is in no list.
    pub(crate) fn end(&mut self, at: u32) {
        self.records[at as usize] = None;
    }

    /// The records of a list from head to tail.
    pub(crate) fn walk(&self, list: &RequestList) -> impl Iterator<Item = &Record> {
        let members = std::iter::successors(list.head(), |&at| self.next(at));
        members.map(|at| &self[at])
    }

    /// The next in its list.
    pub(crate) fn next(&self, at: u32) -> Option<u32> {
        let next = self[at].next;
        (next != NIL).then_some(next)
    }

    /// Notes where all requests of the list are.
    pub(crate) fn put(&mut self, list: &RequestList, location: Location) {
        let mut at = list.head();
        while let Some(member) = at {
            self[member].location = location;
            at = self.next(member);
        }
    }

    /// Adds a request at the tail.
    pub(crate) fn push(&mut self, list: &mut RequestList, at: u32) {
        self.join(list, list.tail, at);
        self.join(list, at, NIL);
        let request = &self[at].request;
        list.len += 1;
        list.requests += request.counts();
        list.items += u64::from(request.items);
        list.cost += u128::from(request.cost);
    }

    /// Removes a request from its list.
    pub(crate) fn remove(&mut self, list: &mut RequestList, at: u32) {
        let Record { prev, next, request, .. } = &self[at];
        let (prev, next) = (*prev, *next);
        list.len -= 1;
        list.requests -= request.counts();
        list.items -= u64::from(request.items);
        list.cost -= u128::from(request.cost);
        self.join(list, prev, next);
    }

    /// Takes the head out.
    pub(crate) fn pop(&mut self, list: &mut RequestList) -> Option<u32> {
        let at = list.head()?;
        self.remove(list, at);
        Some(at)
    }

    /// Takes the last out.
    pub(crate) fn pop_tail(&mut self, list: &mut RequestList) -> Option<u32> {
        let at = (list.tail != NIL).then_some(list.tail)?;
        self.remove(list, at);
        Some(at)
    }

    /// Moves the first `count` into a list of their own.
    pub(crate) fn split(&mut self, list: &mut RequestList, count: u32) -> RequestList {
        let mut front = RequestList::EMPTY;
        while front.len < count
            && let Some(at) = self.pop(list)
        {
            self.push(&mut front, at);
        }
        front
    }

    /// Moves all of a list to the tail of another.
    pub(crate) fn append(&mut self, list: &mut RequestList, mut more: RequestList) {
        while let Some(at) = self.pop(&mut more) {
            self.push(list, at);
        }
    }

    /// Makes two records neighbours; [`NIL`] on either side is that end of the list.
    fn join(&mut self, list: &mut RequestList, prev: u32, next: u32) {
        match prev {
            NIL => list.head = next,
            at => self[at].next = next,
        }
        match next {
            NIL => list.tail = prev,
            at => self[at].prev = prev,
        }
    }
}
