//! What the batcher knows about every request that has not ended, and the lists they stand in.
//!
//! A record lives at the index its caller chose, so finding it costs no hashing, and the links of
//! its list lie inside it, so joining and leaving any list is O(1) without allocation. A request
//! stands in exactly one list: a lane, a retry group or a running batch. This file knows nothing
//! of why anybody stands where.

use std::ops::{Index, IndexMut};

use crate::request::{NEVER, Nanos, Request, RequestId};

/// The end of a list. No request can have this index.
const NIL: u32 = u32::MAX;
const LIVE: &str = "a request in a list has not ended";

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Waits in the lane of this index.
    Lane(usize),
    /// Waits in the lane of this index, by deadline (adaptive policy).
    Line(usize),
    /// Waits in the retry group of this serial number.
    Group(u64),
    /// In a batch on a worker, or on its way between two lists.
    Running,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) request: Request,
    pub(crate) arrived: Nanos,
    /// Position in the order of arrival; lists of waiting requests are sorted by it.
    pub(crate) seq: u64,
    pub(crate) place: Place,
    /// Its client went away while it ran.
    pub(crate) cancelled: bool,
    /// Whether `expiry` holds an entry for it.
    pub(crate) watched: bool,
    /// Worker crashes it was part of.
    pub(crate) crashes: u8,
    prev: u32,
    next: u32,
}

impl Record {
    /// When half of the time between its arrival and its deadline is over.
    pub(crate) fn half_time(&self) -> Nanos {
        match self.request.deadline {
            NEVER => NEVER,
            deadline => self.arrived + deadline.saturating_sub(self.arrived) / 2,
        }
    }

    fn new(request: Request, arrived: Nanos, seq: u64) -> Self {
        let place = Place::Running;
        Self {
            request,
            arrived,
            seq,
            place,
            cancelled: false,
            watched: false,
            crashes: 0,
            prev: NIL,
            next: NIL,
        }
    }

    pub(crate) fn waits(&self) -> bool {
        !matches!(self.place, Place::Running)
    }
}

/// A list of records with what they weigh together.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    pub(crate) len: u32,
    /// Without the portions that others stand for.
    pub(crate) requests: u32,
    pub(crate) items: u64,
    pub(crate) cost: u128,
}

impl List {
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
    /// Makes a record for a newcomer, who stands nowhere yet.
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

    /// Forgets a request that stands in no list any more.
    pub(crate) fn end(&mut self, at: u32) {
        self.records[at as usize] = None;
    }

    /// The ids of a list from head to tail.
    pub(crate) fn ids(&self, list: &List) -> impl Iterator<Item = RequestId> {
        self.walk(list).map(|record| record.request.id)
    }

    /// The records of a list from head to tail.
    pub(crate) fn walk(&self, list: &List) -> impl Iterator<Item = &Record> {
        let members = std::iter::successors(list.head(), |&at| self.next(at));
        members.map(|at| &self[at])
    }

    /// Who stands behind this one.
    pub(crate) fn next(&self, at: u32) -> Option<u32> {
        let next = self[at].next;
        (next != NIL).then_some(next)
    }

    /// Says of everybody in the list where they stand now.
    pub(crate) fn put(&mut self, list: &List, place: Place) {
        let mut at = list.head();
        while let Some(member) = at {
            self[member].place = place;
            at = self.next(member);
        }
    }

    /// Joins at the tail.
    pub(crate) fn push(&mut self, list: &mut List, at: u32) {
        self.link(list, at, list.tail, NIL);
    }

    /// Joins at the place its arrival gives it. Cheap at the tail, where newcomers stand, and near
    /// the head, where those stand who come back from a worker.
    pub(crate) fn insert(&mut self, list: &mut List, at: u32) {
        let seq = self[at].seq;
        if list.tail == NIL || self[list.tail].seq < seq {
            return self.push(list, at);
        }
        let mut next = list.head;
        while self[next].seq < seq {
            next = self[next].next;
        }
        self.link(list, at, self[next].prev, next);
    }

    /// Leaves the list from wherever it stands.
    pub(crate) fn remove(&mut self, list: &mut List, at: u32) {
        let Record { prev, next, request, .. } = &self[at];
        let (prev, next) = (*prev, *next);
        list.len -= 1;
        list.requests -= request.counts();
        list.items -= u64::from(request.items);
        list.cost -= u128::from(request.cost);
        self.join(list, prev, next);
    }

    /// Takes the head out.
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<u32> {
        let at = list.head()?;
        self.remove(list, at);
        Some(at)
    }

    /// Takes the last out.
    pub(crate) fn pop_tail(&mut self, list: &mut List) -> Option<u32> {
        let at = (list.tail != NIL).then_some(list.tail)?;
        self.remove(list, at);
        Some(at)
    }

    /// Cuts the first `count` off into a list of their own.
    pub(crate) fn split(&mut self, list: &mut List, count: u32) -> List {
        let mut front = List::EMPTY;
        while front.len < count
            && let Some(at) = self.pop(list)
        {
            self.push(&mut front, at);
        }
        front
    }

    fn link(&mut self, list: &mut List, at: u32, prev: u32, next: u32) {
        self.join(list, prev, at);
        self.join(list, at, next);
        let request = &self[at].request;
        list.len += 1;
        list.requests += request.counts();
        list.items += u64::from(request.items);
        list.cost += u128::from(request.cost);
    }

    /// Makes two records neighbours; [`NIL`] on either side is that end of the list.
    fn join(&mut self, list: &mut List, prev: u32, next: u32) {
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
