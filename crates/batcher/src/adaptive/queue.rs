//! Who waits under the adaptive policy: lanes of those who may meet, each line by deadline.
//!
//! The counterpart of the `lanes` of the other policies, which keep the order of arrival. It says
//! who stands where and how fast they come; which of them leave is said elsewhere.

use super::line::{Entry, Line};
use super::rate::Flow;
use crate::config::{Config, Measure};
use crate::padding::{self, Mix};
use crate::records::{Place, Records};
use crate::request::{Nanos, OriginKind, Request};

/// Lanes that are remembered with their rates while nobody waits in them.
const LANES_KEPT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    group: u16,
    /// None where kinds may mix.
    kind: Option<OriginKind>,
    /// Half octave of the length, where lengths are padded.
    class: u8,
}

/// Those who may meet in a batch.
#[derive(Debug)]
pub(crate) struct Lane {
    key: Key,
    /// One line per priority.
    pub(crate) lines: [Line; 2],
    /// The place of its service model.
    pub(crate) curve: usize,
    pub(crate) flow: Flow,
    /// Departures in a row that interactive requests have led while bulk waited.
    pub(crate) led: u32,
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(Line::is_empty)
    }
}

/// When the most hurried heads can no longer be in time, and when their deadlines come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) hope_ends: Nanos,
    pub(crate) expire: Nanos,
}

/// A line that waits until its batch has the size that the workers can sustain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paced {
    pub(crate) line: usize,
    pub(crate) goal: u64,
    pub(crate) until: Nanos,
}

/// All who wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Only where there is one lane; forgotten with `heads`, and when anything else happens.
    pub(crate) paced: Option<Paced>,
    /// Forgotten whenever it may have changed.
    pub(crate) heads: Option<Heads>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) len: u32,
    /// Without the portions that others stand for.
    pub(crate) requests: u32,
    pub(crate) items: u64,
    pub(crate) size: u64,
}

impl Queue {
    /// The lane a request belongs to; the caller gives a new one its curve.
    pub(crate) fn lane(&mut self, request: &Request, config: &Config) -> (usize, bool) {
        let kind = (!config.mix_origins).then_some(request.origin.kind);
        let key = Key { group: request.group, kind, class: config.class(request) };
        if let Some(lane) = self.lanes.iter().position(|lane| lane.key == key) {
            return (lane, false);
        }
        let spare = self.lanes.len() >= LANES_KEPT;
        let spare = spare.then(|| self.lanes.iter().position(Lane::is_empty)).flatten();
        let lane = spare.unwrap_or(self.lanes.len());
        if lane == self.lanes.len() {
            self.lanes.push(Lane {
                key,
                lines: [Line::default(), Line::default()],
                curve: 0,
                flow: Flow::default(),
                led: 0,
            });
        }
        let it = &mut self.lanes[lane];
        (it.key, it.flow, it.led) = (key, Flow::default(), 0);
        (lane, true)
    }

    /// The lane of the next shorter lengths, from which this one may borrow.
    pub(crate) fn shorter(&self, lane: usize) -> Option<usize> {
        let key = self.lanes[lane].key;
        let key = Key { class: padding::shorter(key.class)?, ..key };
        self.lanes.iter().position(|lane| lane.key == key)
    }

    /// Lets a request wait.
    pub(crate) fn insert(&mut self, records: &mut Records, at: u32, lane: usize, size: u32) {
        let record = &mut records[at];
        record.place = Place::Line(lane);
        let Request { deadline, cost, items, tenant, priority, .. } = record.request;
        let (seq, arrived) = (record.seq, record.arrived);
        let counts = record.request.counts();
        self.len += 1;
        self.requests += counts;
        self.items += u64::from(items);
        self.size += u64::from(size);
        let entry = Entry { deadline, seq, arrived, cost, size, items, at, tenant, counts };
        let line = &mut self.lanes[lane].lines[priority as usize];
        if line.head().is_none_or(|head| entry.deadline < head.deadline) {
            (self.heads, self.paced) = (None, None);
        }
        line.insert(entry);
    }

    /// Takes a request out from wherever it stands in its lane.
    pub(crate) fn remove(&mut self, records: &mut Records, at: u32, lane: usize) {
        let record = &mut records[at];
        record.place = Place::Running;
        (self.heads, self.paced) = (None, None);
        let line = &mut self.lanes[lane].lines[record.request.priority as usize];
        let before = line.size;
        line.remove(record.request.deadline, record.seq);
        self.len -= 1;
        self.requests -= record.request.counts();
        self.items -= u64::from(record.request.items);
        self.size -= before - line.size;
    }

    /// Takes out whoever stands there.
    pub(crate) fn take(&mut self, lane: usize, line: usize, position: usize) -> Option<Entry> {
        let entry = self.lanes[lane].lines[line].take(position)?;
        (self.heads, self.paced) = (None, None);
        self.len -= 1;
        self.requests -= entry.counts;
        self.items -= u64::from(entry.items);
        self.size -= u64::from(entry.size);
        Some(entry)
    }

    /// Takes everybody out, in order of arrival.
    pub(crate) fn take_all(&mut self, records: &mut Records) -> Vec<u32> {
        let mut all = Vec::new();
        for lane in 0..self.lanes.len() {
            for line in 0..2 {
                all.extend(std::iter::from_fn(|| self.take(lane, line, 0)).map(|it| it.at));
            }
        }
        all.iter().for_each(|&at| records[at].place = Place::Running);
        all.sort_unstable_by_key(|&at| records[at].seq);
        all
    }
}

/// What a request adds to the size of a batch.
pub(crate) fn size_of(request: &Request, measure: Measure) -> u32 {
    let size = match measure {
        Measure::Items => request.items.into(),
        Measure::Packed => request.cost,
        Measure::Padded => Mix::default().with(request).size(),
    };
    u32::try_from(size.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestId;

    fn of(items: u32, cost: u64) -> Request {
        Request { items, cost, ..Request::new(RequestId::new(0, 0)) }
    }

    #[test]
    fn a_request_weighs_its_items_its_cost_or_its_padded_lengths() {
        assert_eq!(size_of(&of(3, 300), Measure::Items), 3);
        assert_eq!(size_of(&of(3, 300), Measure::Packed), 300);
        assert_eq!(size_of(&of(3, 300), Measure::Padded), 3 * 128);
        assert_eq!(size_of(&of(3, 270), Measure::Padded), 3 * 90);
        assert_eq!(size_of(&of(1, 0), Measure::Padded), 1);
    }

    #[test]
    fn padded_lengths_of_one_half_octave_share_a_lane() {
        let config = Config { measure: Measure::Padded, ..Config::default() };
        let mut queue = Queue::default();
        let lanes = [100, 120, 128, 129, 91].map(|cost| queue.lane(&of(1, cost), &config).0);
        assert_eq!(lanes, [0, 0, 0, 1, 0]);
    }
}
