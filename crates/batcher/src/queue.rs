//! The one queue: requests that wait for their first dispatch, in groups that may share a batch.
//!
//! A group is one `group` of requests, one worker where they are pinned to it, one model where they ask for one, one
//! class of lengths where they are padded and, unless the model mixes them, one kind of origin. In a group
//! each priority has its own sorted queue. The queue keeps the order and the sums; which batch is
//! dispatched, and when, is decided elsewhere.

pub(crate) mod sorted;
pub(crate) mod tenants;

use crate::action::Rejection;
use crate::config::Config;
use crate::padding::Mix;
use crate::policy::{GroupLoad, Order, Rules};
use crate::records::{Location, Records, RequestList};
use crate::request::{NEVER, Nanos, OriginKind, Request, WorkerId};
use sorted::{SortedQueue, WaitingRequest};
use tenants::TenantShares;

/// Groups in order of deadline that are remembered, with what was learned of them, while empty.
const GROUPS_KEPT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupKey {
    group: u16,
    /// None where kinds may mix.
    kind: Option<OriginKind>,
    /// The worker the requests are pinned to.
    pub(crate) worker: Option<WorkerId>,
    /// The model that they ask for.
    pub(crate) model: u64,
    /// Class of the length, where lengths are padded.
    pub(crate) class: u8,
    order: Order,
}

/// Requests that may share a batch.
#[derive(Debug)]
pub(crate) struct QueueGroup {
    pub(crate) key: GroupKey,
    /// One queue per priority.
    pub(crate) queues: [SortedQueue; 2],
    /// Dispatches in a row that interactive requests have led while bulk waited.
    pub(crate) led: u32,
}

impl QueueGroup {
    fn new(key: GroupKey) -> Self {
        Self { key, queues: [SortedQueue::new(key.order), SortedQueue::new(key.order)], led: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(SortedQueue::is_empty)
    }

    /// Whether the planner chooses its batches.
    pub(crate) fn planned(&self) -> bool {
        self.key.order == Order::Deadline
    }

    /// What waits in it; none if nothing does.
    pub(crate) fn load(&self, config: &Config) -> Option<GroupLoad> {
        let [interactive, bulk] = &self.queues;
        let (items, cost) = (interactive.items + bulk.items, interactive.cost + bulk.cost);
        let heads = [interactive.head(), bulk.head()];
        let urgent = self.queues.iter().flat_map(SortedQueue::most_urgent);
        Some(GroupLoad {
            items,
            cost: config.weight(self.key.class, items, cost),
            oldest: heads.into_iter().flatten().map(|head| head.arrived).min()?,
            half_time: urgent.map(WaitingRequest::half_time).min().unwrap_or(NEVER),
        })
    }
}

/// Sums over the groups of one order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueTotals {
    pub(crate) len: u32,
    /// Without the parts before the last of a request.
    pub(crate) requests: u32,
    pub(crate) items: u64,
    pub(crate) size: u64,
}

/// All requests that wait for their first dispatch.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) groups: Vec<QueueGroup>,
    totals: [QueueTotals; 2],
    /// How many planned groups there are, and the first of them.
    pub(crate) planned_groups: (usize, usize),
    /// The earliest deadline; forgotten when its request leaves.
    next_deadline: Option<Nanos>,
    /// Counts changes at the heads of the planned groups.
    pub(crate) head_changes: u64,
    /// The tenants of the requests in planned groups.
    pub(crate) tenants: TenantShares,
}

impl Queue {
    /// The sums over the groups that the planner dispatches.
    pub(crate) fn planned(&self) -> &QueueTotals {
        &self.totals[Order::Deadline as usize]
    }

    /// The sums over the groups in order of arrival.
    pub(crate) fn arrival(&self) -> &QueueTotals {
        &self.totals[Order::Arrival as usize]
    }

    /// The group a request belongs to, and whether it is new.
    pub(crate) fn group(&mut self, request: &Request, rules: &Rules) -> (usize, bool) {
        let (config, order) = (&rules.config, rules.order(request));
        let kind = (!config.mix_origins).then_some(request.origin.kind);
        let class = config.class(request);
        let Request { group, worker, model, .. } = *request;
        let key = GroupKey { group, kind, worker, model, class, order };
        if let Some(group) = self.groups.iter().position(|group| group.key == key) {
            return (group, false);
        }
        let reuse = order == Order::Arrival || self.planned_groups.0 >= GROUPS_KEPT;
        let spare = |group: &QueueGroup| group.key.order == order && group.is_empty();
        if let Some(group) = self.groups.iter().position(spare).filter(|_| reuse) {
            self.groups[group].key = key;
            self.groups[group].led = 0;
            return (group, true);
        }
        let group = self.groups.len();
        self.groups.push(QueueGroup::new(key));
        if order == Order::Deadline {
            let (count, first) = self.planned_groups;
            self.planned_groups = (count + 1, if count == 0 { group } else { first });
        }
        (group, true)
    }

    /// Adds a request to its group.
    pub(crate) fn insert(&mut self, records: &mut Records, at: u32, group: usize, rules: &Rules) {
        let record = &mut records[at];
        record.location = Location::Queue(group);
        let waiting = WaitingRequest::new(record, &rules.config);
        let it = &mut self.groups[group];
        let (order, queue) = (it.key.order, &mut it.queues[record.request.priority as usize]);
        let totals = &mut self.totals[order as usize];
        totals.len += 1;
        totals.requests += waiting.counts;
        totals.items += u64::from(waiting.items);
        totals.size += u64::from(waiting.size);
        self.next_deadline = self.next_deadline.map(|next| next.min(waiting.deadline));
        if order == Order::Deadline {
            self.tenants.arrived(&waiting, rules.now, &rules.config);
            let first = queue.head().is_none_or(|head| waiting.deadline < head.deadline);
            self.head_changes += u64::from(first);
        }
        queue.insert(waiting);
    }

    /// Takes a request out of its group.
    pub(crate) fn remove(&mut self, records: &mut Records, at: u32, group: usize) {
        let record = &mut records[at];
        record.location = Location::Running;
        let it = &mut self.groups[group];
        let (order, queue) = (it.key.order, &mut it.queues[record.request.priority as usize]);
        if let Some(waiting) = queue.remove(record.request.deadline, record.seq) {
            self.removed(&waiting, order);
        }
    }

    /// Moves a request into a batch that is dispatched.
    pub(crate) fn dispatch(
        &mut self,
        records: &mut Records,
        (group, priority, position): (usize, usize, usize),
        batch: &mut RequestList,
    ) {
        let it = &mut self.groups[group];
        let (order, taken) = (it.key.order, it.queues[priority].take(position));
        let Some(waiting) = taken else { return };
        self.removed(&waiting, order);
        if order == Order::Deadline {
            self.tenants.served(waiting.tenant, waiting.size);
        }
        records[waiting.at].location = Location::Running;
        records.push(batch, waiting.at);
    }

    fn removed(&mut self, waiting: &WaitingRequest, order: Order) {
        let totals = &mut self.totals[order as usize];
        totals.len -= 1;
        totals.requests -= waiting.counts;
        totals.items -= u64::from(waiting.items);
        totals.size -= u64::from(waiting.size);
        self.next_deadline =
            self.next_deadline.filter(|next| *next < waiting.deadline || *next == NEVER);
        if order == Order::Deadline {
            self.head_changes += 1;
            self.tenants.left(waiting.tenant);
        }
    }

    /// Takes all requests out, those in order of arrival first, each kind in order of arrival.
    pub(crate) fn take_all(&mut self, records: &mut Records) -> Vec<u32> {
        let mut all = Vec::new();
        for group in 0..self.groups.len() {
            let order = self.groups[group].key.order;
            for priority in 0..2 {
                while let Some(waiting) = self.groups[group].queues[priority].take(0) {
                    self.removed(&waiting, order);
                    records[waiting.at].location = Location::Running;
                    all.push((order == Order::Deadline, waiting.seq, waiting.at));
                }
            }
        }
        all.sort_unstable();
        all.into_iter().map(|(_, _, at)| at).collect()
    }

    /// Takes out all requests that are pinned to this worker.
    pub(crate) fn take_pinned(&mut self, records: &mut Records, worker: WorkerId) -> Vec<u32> {
        let mut pinned = Vec::new();
        for group in 0..self.groups.len() {
            while self.groups[group].key.worker == Some(worker)
                && let Some(head) = self.groups[group].queues.iter().find_map(SortedQueue::head)
            {
                let at = head.at;
                self.remove(records, at, group);
                pinned.push(at);
            }
        }
        pinned
    }

    // Tenants

    /// Which request gives way to one of this tenant in a full queue, and why; none: that one itself.
    pub(crate) fn victim(&self, tenant: u32, config: &Config) -> (Option<u32>, Rejection) {
        let (tenants, limit) = (&self.tenants, config.max_queue);
        if !tenants.contested() {
            return (None, Rejection::QueueFull);
        }
        if tenants.over_share(tenant, limit) {
            return (None, Rejection::Quota);
        }
        let planned = self.groups.iter().filter(|group| group.planned());
        let waiting = planned.flat_map(|group| &group.queues).flat_map(|queue| &queue.waiting);
        let theirs = waiting.filter(|it| tenants.heaviest(it.tenant, limit));
        match theirs.max_by_key(|it| (it.deadline, it.seq)) {
            Some(most_patient) => (Some(most_patient.at), Rejection::Quota),
            None => (None, Rejection::QueueFull),
        }
    }

    // Deadlines

    /// When the next request expires.
    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Nanos {
        match self.next_deadline {
            Some(next) => next,
            None => self.find_next_deadline(),
        }
    }

    fn find_next_deadline(&mut self) -> Nanos {
        let mut next = NEVER;
        for queue in self.groups.iter().flat_map(|group| &group.queues) {
            queue.most_urgent().for_each(|it| next = next.min(it.deadline));
        }
        self.next_deadline = Some(next);
        next
    }

    /// A request whose deadline has come.
    pub(crate) fn expired(&self, now: Nanos) -> Option<u32> {
        let queues = self.groups.iter().flat_map(|group| &group.queues);
        let mut urgent = queues.flat_map(SortedQueue::most_urgent);
        urgent.find(|it| it.deadline <= now).map(|it| it.at)
    }

    // Padded lengths

    /// The group of the next shorter lengths, from which this one may borrow.
    pub(crate) fn lender(&self, group: usize, config: &Config) -> Option<usize> {
        let key = self.groups[group].key;
        let key = GroupKey { class: config.shorter(key.class)?, ..key };
        self.groups.iter().position(|group| group.key == key)
    }

    /// The head of this queue and the batch with it, if a padded batch may borrow it.
    pub(crate) fn borrowable(
        &self,
        (lender, priority): (usize, usize),
        batch: Mix,
        config: &Config,
    ) -> Option<(&WaitingRequest, Mix)> {
        let head = self.groups[lender].queues[priority].head()?;
        let grown = batch.with(head.items, head.cost);
        let held = config.holds(grown.items, grown.weight(config));
        (batch.may_become(grown, config) && held).then_some((head, grown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Measure, Policy};
    use crate::request::RequestId;

    fn of(index: u32, deadline: Nanos, cost: u64) -> Request {
        Request { deadline, cost, ..Request::new(RequestId::new(index, 0)) }
    }

    #[test]
    fn padded_lengths_of_one_half_octave_share_a_group() {
        let policy = Policy::Adaptive(crate::Adaptive::default());
        let config = Config { measure: Measure::Padded, policy, ..Config::default() };
        let (mut queue, rules) = (Queue::default(), Rules::new(config));
        let groups = [100, 120, 128, 129, 91].map(|cost| queue.group(&of(0, 0, cost), &rules).0);
        assert_eq!(groups, [0, 0, 0, 1, 0]);
    }

    #[test]
    fn requests_expire_by_deadline_whatever_the_order_of_the_queue() {
        for policy in [Policy::Opportunistic, Policy::Adaptive(crate::Adaptive::default())] {
            let rules = Rules::new(Config { policy, ..Config::default() });
            let (mut queue, mut records) = (Queue::default(), Records::default());
            for (index, deadline) in [(0, 30), (1, 10), (2, NEVER), (3, 20)] {
                let at = records.admit(of(index, deadline, 1), 0);
                let (group, _) = queue.group(&records[at].request, &rules);
                queue.insert(&mut records, at, group, &rules);
            }
            assert_eq!(queue.next_deadline(), 10);
            assert_eq!(queue.expired(9), None);
            let mut expired = std::iter::from_fn(|| {
                let at = queue.expired(25)?;
                queue.remove(&mut records, at, 0);
                Some(at)
            });
            let (one, other) = (expired.next(), expired.next());
            assert_eq!((one.min(other), one.max(other)), (Some(1), Some(3)));
            assert_eq!(expired.next(), None);
            assert_eq!((queue.expired(25), queue.next_deadline()), (None, 30));
        }
    }
}
