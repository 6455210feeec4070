//! Who waits for a first departure, and with whom they may travel.
//!
//! A lane holds the requests that may meet in a batch: one group, one worker if they are pinned to
//! one, one half octave of lengths where they are padded and, unless the model mixes them, one kind
//! of origin. Inside it each priority keeps its own line in order of arrival,
//! which nobody ever overtakes. Apart from `policy`, which says when; here is which lane and who.

use crate::action::DispatchReason;
use crate::config::{Config, Measure};
use crate::padding::{self, Mix};
use crate::policy::{Due, Load, Rules};
use crate::records::{List, Place, Record, Records};
use crate::request::{NEVER, Nanos, OriginKind, Priority, Request, WorkerId};
use crate::slots::Slots;

/// The most departures in a row that interactive requests lead while a bulk batch is due as well.
/// So a bulk request with n older ones before it leaves within (n + 1) * (BULK_TURN + 1)
/// departures of fresh work, whatever the interactive load.
pub(crate) const BULK_TURN: u32 = 8;

const PRIORITIES: [Priority; 2] = [Priority::Interactive, Priority::Bulk];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    group: u16,
    /// None where kinds may mix.
    kind: Option<OriginKind>,
    /// The worker they are pinned to, if they are.
    worker: Option<WorkerId>,
    /// Half octave of the length, where lengths are padded.
    class: u8,
}

impl Key {
    fn of(request: &Request, config: &Config) -> Self {
        let kind = (!config.mix_origins).then_some(request.origin.kind);
        Self { group: request.group, kind, worker: request.worker, class: config.class(request) }
    }
}

#[derive(Debug)]
struct Lane {
    key: Key,
    /// One line per priority.
    lines: [List; 2],
    /// How many of those waiting have a deadline; mostly none, which spares looking at each.
    hurried: u32,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.len == 0)
    }

    /// None if nobody waits.
    fn load(&self, records: &Records, config: &Config) -> Option<Load> {
        let [interactive, bulk] = &self.lines;
        let (items, cost) = (interactive.items + bulk.items, interactive.cost + bulk.cost);
        let heads = [interactive.head(), bulk.head()];
        Some(Load {
            items,
            cost: config.weight(self.key.class, items, cost),
            oldest: heads.into_iter().flatten().map(|at| records[at].arrived).min()?,
            half_time: self.half_time(records),
        })
    }

    fn half_time(&self, records: &Records) -> Nanos {
        if self.hurried == 0 {
            return NEVER;
        }
        let waiting = self.lines.iter().flat_map(|line| records.walk(line));
        waiting.map(Record::half_time).min().unwrap_or(NEVER)
    }
}

/// A batch that is due: who leads it and why it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    lane: usize,
    priority: Priority,
    /// Arrival number of the request at the head.
    seq: u64,
    pub(crate) reason: DispatchReason,
    /// Who must take it, if it is pinned.
    pub(crate) worker: Option<WorkerId>,
}

/// All lanes. There are about as many as groups in use, few enough to scan.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// An empty lane is taken over by the next key that needs one.
    lanes: Vec<Lane>,
    /// Departures that interactive requests have led in a row while a bulk batch was due.
    led: u32,
    pub(crate) len: u32,
    /// Without the portions that others stand for.
    pub(crate) requests: u32,
    pub(crate) items: u64,
}

impl Lanes {
    /// Lets a request wait at the place its arrival gives it.
    pub(crate) fn insert(&mut self, records: &mut Records, at: u32, config: &Config) {
        let request = records[at].request;
        let lane = self.lane(Key::of(&request, config));
        self.len += 1;
        self.requests += request.counts();
        self.items += u64::from(request.items);
        records[at].place = Place::Lane(lane);
        self.lanes[lane].hurried += u32::from(request.deadline != NEVER);
        records.insert(&mut self.lanes[lane].lines[request.priority as usize], at);
    }

    /// Takes a request out from wherever it stands in its lane.
    pub(crate) fn remove(&mut self, records: &mut Records, at: u32, lane: usize) {
        let request = records[at].request;
        self.len -= 1;
        self.requests -= request.counts();
        self.items -= u64::from(request.items);
        records[at].place = Place::Running;
        self.lanes[lane].hurried -= u32::from(request.deadline != NEVER);
        records.remove(&mut self.lanes[lane].lines[request.priority as usize], at);
    }

    /// Takes everybody out, in order of arrival.
    pub(crate) fn take_all(&mut self, records: &mut Records) -> Vec<u32> {
        let mut all = Vec::new();
        for line in self.lanes.iter_mut().flat_map(|lane| &mut lane.lines) {
            all.extend(std::iter::from_fn(|| records.pop(line)));
        }
        all.iter().for_each(|&at| records[at].place = Place::Running);
        self.lanes.iter_mut().for_each(|lane| lane.hurried = 0);
        all.sort_unstable_by_key(|&at| records[at].seq);
        (self.len, self.requests, self.items, self.led) = (0, 0, 0, 0);
        all
    }

    /// Takes out all who are pinned to this worker.
    pub(crate) fn take_pinned(&mut self, records: &mut Records, worker: WorkerId) -> Vec<u32> {
        let mut pinned = Vec::new();
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].key.worker == Some(worker)
                && let Some(at) = self.lanes[lane].lines.iter().find_map(List::head)
            {
                self.remove(records, at, lane);
                pinned.push(at);
            }
        }
        pinned
    }

    /// Chooses the due batch that leaves first: interactive before bulk, then the oldest head.
    pub(crate) fn lead(&mut self, records: &Records, rules: &Rules, slots: &Slots) -> Option<Lead> {
        let [interactive, bulk] = self.oldest_due(records, rules, slots);
        let contested = interactive.is_some() && bulk.is_some();
        let lead = if contested && self.led >= BULK_TURN { bulk } else { interactive.or(bulk) }?;
        let passed_over = contested && lead.priority == Priority::Interactive;
        self.led = if passed_over { self.led + 1 } else { 0 };
        Some(lead)
    }

    /// Takes out the batch that is due: the leading line first, then the other one fills it up.
    pub(crate) fn board(&mut self, records: &mut Records, config: &Config, lead: Lead) -> List {
        let mut batch = List::EMPTY;
        let class = self.lanes[lead.lane].key.class;
        let other = PRIORITIES.into_iter().filter(|&priority| priority != lead.priority);
        let priorities = std::iter::once(lead.priority).chain(other);
        for priority in priorities.clone() {
            while let Some(at) = self.lanes[lead.lane].lines[priority as usize].head()
                && room(config, class, &batch, &records[at].request)
            {
                self.remove(records, at, lead.lane);
                records.push(&mut batch, at);
            }
        }
        if config.measure == Measure::Padded && self.lanes[lead.lane].is_empty() {
            self.borrow(records, config, lead.lane, priorities, &mut batch);
        }
        batch
    }

    /// Fills a batch that took its whole lane with those who are a little shorter.
    fn borrow(
        &mut self,
        records: &mut Records,
        config: &Config,
        lane: usize,
        priorities: impl Iterator<Item = Priority>,
        batch: &mut List,
    ) {
        let key = self.lanes[lane].key;
        let Some(class) = padding::shorter(key.class) else { return };
        let lender = self.lanes.iter().position(|lane| lane.key == Key { class, ..key });
        let Some(lender) = lender else { return };
        let mut mix = Mix::of(records.walk(batch).map(|record| &record.request));
        for priority in priorities {
            while let Some(at) = self.lanes[lender].lines[priority as usize].head()
                && mix.borrows(&records[at].request)
                && room(config, key.class, batch, &records[at].request)
            {
                mix = mix.with(&records[at].request);
                self.remove(records, at, lender);
                records.push(batch, at);
            }
        }
    }

    /// When the next lane that a worker is free for will be due if nobody comes or goes.
    pub(crate) fn next_due(
        &self,
        records: &Records,
        rules: &Rules,
        slots: &Slots,
    ) -> Option<Nanos> {
        let served = self.lanes.iter().filter(|lane| slots.free_for(lane.key.worker));
        let loads = served.filter_map(|lane| lane.load(records, &rules.config));
        let times = loads.filter_map(|load| match rules.due(&load) {
            Due::Now(_) => None,
            Due::At(time) => Some(time),
        });
        times.min()
    }

    /// For each priority the due lane in which its oldest request waits.
    fn oldest_due(&self, records: &Records, rules: &Rules, slots: &Slots) -> [Option<Lead>; 2] {
        let mut oldest: [Option<Lead>; 2] = [None, None];
        for (lane, it) in self.lanes.iter().enumerate() {
            let Some(load) = it.load(records, &rules.config) else { continue };
            let worker = it.key.worker;
            if !slots.free_for(worker) {
                continue;
            }
            let Due::Now(reason) = rules.due(&load) else { continue };
            for priority in PRIORITIES {
                let Some(at) = it.lines[priority as usize].head() else { continue };
                let lead = Lead { lane, priority, seq: records[at].seq, reason, worker };
                let best = oldest[priority as usize].get_or_insert(lead);
                if lead.seq < best.seq {
                    *best = lead;
                }
            }
        }
        oldest
    }

    fn lane(&mut self, key: Key) -> usize {
        let same = self.lanes.iter().position(|lane| lane.key == key);
        let spare = || self.lanes.iter().position(Lane::is_empty);
        let lane = same.or_else(spare).unwrap_or_else(|| {
            self.lanes.push(Lane { key, lines: [List::EMPTY, List::EMPTY], hurried: 0 });
            self.lanes.len() - 1
        });
        self.lanes[lane].key = key;
        lane
    }
}

/// Whether one more fits. One who fits alone only without being padded travels alone.
fn room(config: &Config, class: u8, batch: &List, request: &Request) -> bool {
    let items = batch.items + u64::from(request.items);
    let cost = batch.cost + u128::from(request.cost);
    config.holds(items, config.weight(class, items, cost)) || batch.len == 0
}
