//! The decision at the end of every step: what leaves now, and when to look again.
//!
//! It takes the state as it finds it and never asks which event led there, so a stale timer or a
//! late one is as good as any. Retry groups go before fresh work.

use super::Batcher;
use crate::action::{Action, Actions, Dispatch, DispatchReason};
use crate::adaptive::Planner;
use crate::config::Measure;
use crate::isolation::Group;
use crate::padding::{Mix, Padding};
use crate::records::List;
use crate::request::{NEVER, WorkerId};
use crate::running::Leg;

impl Batcher {
    /// Lets go whatever is due while anybody is free to take it.
    pub(super) fn decide(&mut self, out: &mut Actions) {
        if self.rules.adaptive() {
            return self.decide_adaptive(out);
        }
        while self.slots.any_free() && (self.depart_again(out) || self.depart(out)) {}
    }

    pub(super) fn depart_again(&mut self, out: &mut Actions) -> bool {
        let Some(group) = self.retries.pop(&mut self.records) else { return false };
        let Group { members, attempt, avoid } = group;
        let worker = self.take_slot(Some(avoid));
        self.dispatch(worker, members, attempt, DispatchReason::Retry, out);
        true
    }

    pub(super) fn depart(&mut self, out: &mut Actions) -> bool {
        let lead = self.lanes.lead(&self.records, &self.rules, &self.slots);
        let Some(lead) = lead else { return false };
        let members = self.lanes.board(&mut self.records, &self.rules.config, lead);
        let worker = match lead.worker {
            Some(pinned) => self.slots.take_of(pinned),
            None => self.take_slot(None),
        };
        self.dispatch(worker, members, 1, lead.reason, out);
        true
    }

    /// Takes the slot that the policy would fill first.
    pub(super) fn take_slot(&mut self, avoid: Option<WorkerId>) -> Option<WorkerId> {
        match self.rules.adaptive() {
            true => self.slots.take_due(avoid, self.rules.now, self.planner.ahead()),
            false => self.slots.take(avoid),
        }
    }

    pub(super) fn dispatch(
        &mut self,
        worker: Option<WorkerId>,
        members: List,
        attempt: u8,
        reason: DispatchReason,
        out: &mut Actions,
    ) {
        let now = self.rules.now;
        let worker = worker.expect("a batch departs only when a slot is free");
        let (group, size, padding) = self.measure(&members);
        let predicted = self.planner.predict(group, size, &self.rules.config);
        self.planner.fleet.seen = false;
        let (_, alone) = self.slots.expect(worker, now, predicted.unwrap_or(0), members.len);
        let items = members.items as u32;
        let ids = out.list(self.records.ids(&members));
        let leg = Leg { departed: now, alone, group, size };
        out.push(Action::Dispatch(Dispatch {
            worker,
            batch: self.running.start(worker, members, attempt, leg),
            members: ids,
            items,
            attempt,
            reason,
            size: Planner::padded(&self.rules.config, items),
            padding,
            predicted,
        }));
    }

    /// The group of a batch, what its time grows with, and what is padding of it.
    fn measure(&self, members: &List) -> (u16, u64, Option<Padding>) {
        let config = &self.rules.config;
        let group = members.head().map_or(0, |at| self.records[at].request.group);
        match config.measure {
            Measure::Items => {
                let padded = Planner::padded(config, members.items as u32).into();
                let padding = Padding { real: members.items, padded };
                (group, members.items, (!config.sizes.is_empty()).then_some(padding))
            }
            Measure::Packed => {
                let cost = u64::try_from(members.cost.max(1)).unwrap_or(u64::MAX);
                (group, cost, None)
            }
            Measure::Padded => {
                let mix = Mix::of(self.records.walk(members).map(|record| &record.request));
                (group, mix.size(), Some(mix.padding()))
            }
        }
    }

    /// Asks to be woken when the next thing is due, if that time has changed.
    pub(super) fn set_timer(&mut self, out: &mut Actions) {
        let expiry = self.deadlines.next(&mut self.records).unwrap_or(NEVER);
        let due = match self.rules.adaptive() {
            true => self.next_look(),
            // While nobody is free a window that ends changes nothing.
            false if !self.slots.any_free() => NEVER,
            false => {
                let next = self.lanes.next_due(&self.records, &self.rules, &self.slots);
                next.unwrap_or(NEVER)
            }
        };
        let timer = Some(expiry.min(due)).filter(|&time| time != NEVER);
        if timer != self.timer {
            self.timer = timer;
            out.push(timer.map_or(Action::ClearTimer, Action::SetTimer));
        }
    }
}
