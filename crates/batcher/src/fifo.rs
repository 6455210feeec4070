//! Dispatching groups in order of arrival: all of them under `window` and `opportunistic`, and
//! those of pinned requests, and of requests for a model, under every policy.
//!
//! The policy decides when a group is due. Here it is decided which due group goes first, and which
//! requests go. Within a group and a priority no request overtakes another.

use crate::action::DispatchReason;
use crate::config::{Config, Measure};
use crate::policy::Due;
use crate::queue::sorted::WaitingRequest;
use crate::records::RequestList;
use crate::request::{NEVER, Nanos, Priority, WorkerId};
use crate::state::BatcherState;

/// The most dispatches in a row that interactive requests lead while a bulk batch could go as well.
/// So a bulk request with n older ones before it is dispatched within (n + 1) * (BULK_TURN + 1)
/// dispatches, whatever the interactive load.
pub(crate) const BULK_TURN: u32 = 8;

/// A batch that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueBatch {
    group: usize,
    priority: Priority,
    /// Arrival number of its first request.
    seq: u64,
    pub(crate) reason: DispatchReason,
    /// The worker it is pinned to, or that is to have it because of its model.
    pub(crate) worker: Option<WorkerId>,
}

/// Chooses among the groups in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    /// Dispatches that interactive requests have led in a row while a bulk batch was due.
    led: u32,
}

impl Fifo {
    /// The due batch that goes first: interactive before bulk, then the oldest head.
    pub(crate) fn next(&mut self, state: &BatcherState) -> Option<DueBatch> {
        let [interactive, bulk] = oldest_due(state);
        let contested = interactive.is_some() && bulk.is_some();
        let due = if contested && self.led >= BULK_TURN { bulk } else { interactive.or(bulk) }?;
        let passed_over = contested && due.priority == Priority::Interactive;
        self.led = if passed_over { self.led + 1 } else { 0 };
        Some(due)
    }

    /// Takes the batch out of the queue: the leading priority first, then the other one.
    pub(crate) fn take(state: &mut BatcherState, due: &DueBatch) -> RequestList {
        let BatcherState { rules, queue, records, .. } = &mut *state;
        let (config, group, lead) = (&rules.config, due.group, due.priority as usize);
        let class = queue.groups[group].key.class;
        let mut batch = RequestList::EMPTY;
        for priority in [lead, 1 - lead] {
            while let Some(head) = queue.groups[group].queues[priority].head()
                && has_room(config, class, &batch, head)
            {
                queue.dispatch(records, (group, priority, 0), &mut batch);
            }
        }
        if config.measure == Measure::Padded && queue.groups[group].is_empty() {
            state.borrow((group, lead), &mut batch, |_, _, _, _| true);
        }
        batch
    }

    /// When the next group with a free worker will be due if nothing happens.
    pub(crate) fn next_due(state: &BatcherState) -> Nanos {
        let BatcherState { rules, queue, workers, .. } = state;
        let groups = queue.groups.iter().filter(|group| !group.planned());
        let served = groups.filter(|group| workers.free_for(group.key.worker, false));
        let loads = served.filter_map(|it| Some((it.key.model, it.load(&rules.config)?)));
        let times = loads.filter_map(|(model, load)| match rules.due(&load) {
            // Only those are left that wait for the worker that holds their model.
            Due::Now(_) => (model != 0).then(|| state.waits_for_holder(load.oldest)),
            Due::At(time) => Some(time),
        });
        times.min().unwrap_or(NEVER)
    }
}

/// For each priority the due group in which its oldest request waits.
fn oldest_due(state: &BatcherState) -> [Option<DueBatch>; 2] {
    let BatcherState { rules, queue, workers, .. } = state;
    let mut oldest: [Option<DueBatch>; 2] = [None, None];
    for (group, it) in queue.groups.iter().enumerate() {
        let worker = it.key.worker;
        if it.planned() || it.is_empty() || !workers.free_for(worker, true) {
            continue;
        }
        let Some(load) = it.load(&rules.config) else { continue };
        let Due::Now(reason) = rules.due(&load) else { continue };
        let full = reason == DispatchReason::Full;
        let worker = match it.key.model {
            0 if workers.free_for(worker, full) => worker,
            0 => continue,
            model => match state.worker_for(model, load.oldest, full) {
                None => continue,
                found => found,
            },
        };
        for priority in [Priority::Interactive, Priority::Bulk] {
            let Some(head) = it.queues[priority as usize].head() else { continue };
            let due = DueBatch { group, priority, seq: head.seq, reason, worker };
            let best = oldest[priority as usize].get_or_insert(due);
            if due.seq < best.seq {
                *best = due;
            }
        }
    }
    oldest
}

/// Whether one more fits. A request that fits only without its padding goes alone.
fn has_room(config: &Config, class: u8, batch: &RequestList, head: &WaitingRequest) -> bool {
    let items = batch.items + u64::from(head.items);
    let cost = batch.cost + u128::from(head.cost);
    config.holds(items, config.weight(class, items, cost)) || batch.len == 0
}
