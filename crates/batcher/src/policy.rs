//! What the policy in force asks for: the one place where policies differ.
//!
//! A policy is turned into plain values here, by the only `match` over it; everything else reads
//! those values. When a group in order of arrival is due is a pure function of its load and the
//! time; for planned groups the planner of `adaptive` decides.

use crate::action::DispatchReason;
use crate::config::{Adaptive, Config, Policy};
use crate::request::{NEVER, Nanos, Request};

/// What a queue is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Oldest first.
    #[default]
    Arrival,
    /// Earliest deadline first; requests without a deadline follow in order of arrival.
    Deadline,
}

/// What waits in a group that is not empty.
#[derive(Debug)]
pub(crate) struct GroupLoad {
    pub(crate) items: u64,
    pub(crate) cost: u128,
    /// When the oldest request arrived.
    pub(crate) oldest: Nanos,
    /// When the request with the least time has spent half of it.
    pub(crate) half_time: Nanos,
}

/// When the next batch of a group is dispatched if a worker is free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now(DispatchReason),
    At(Nanos),
}

/// All that a decision depends on besides the requests and the workers.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) config: Config,
    /// Requests wait by deadline, the planner chooses the batches, and workers are handed them by its
    /// forecast. Otherwise requests wait in order of arrival, as pinned ones and those for a model always do.
    pub(crate) planned: bool,
    /// How long the oldest request of a group in order of arrival waits for others.
    window: Option<Nanos>,
    /// What the adaptive policy is asked for.
    pub(crate) adaptive: Adaptive,
    pub(crate) draining: bool,
    pub(crate) now: Nanos,
}

impl Rules {
    pub(crate) fn new(config: Config) -> Self {
        let (planned, window, adaptive) = match config.policy {
            Policy::Window { delay } => (false, Some(delay), Adaptive::default()),
            Policy::Opportunistic => (false, None, Adaptive::default()),
            Policy::Adaptive(adaptive) => (true, adaptive.window, adaptive),
        };
        Self { config: config.normal(), planned, window, adaptive, draining: false, now: 0 }
    }

    pub(crate) fn configure(&mut self, config: Config) {
        *self = Self { draining: self.draining, now: self.now, ..Self::new(config) };
    }

    /// What the queue of this request is sorted by.
    pub(crate) fn order(&self, request: &Request) -> Order {
        let planned = self.planned && request.worker.is_none() && request.model == 0;
        if planned { Order::Deadline } else { Order::Arrival }
    }

    /// The request's own deadline, or the one that the objective gives it.
    pub(crate) fn deadline(&self, request: &Request) -> Nanos {
        match self.adaptive.objective {
            Some(objective) if request.deadline == NEVER => self.now.saturating_add(objective),
            _ => request.deadline,
        }
    }

    /// Decides when the next batch of a group in order of arrival is dispatched.
    pub(crate) fn due(&self, load: &GroupLoad) -> Due {
        // Every request fits alone, so a load that reaches a limit either fills the batch exactly
        // or contains a request that does not fit any more.
        let Config { max_items, max_cost, .. } = &self.config;
        if load.items >= u64::from(*max_items) || load.cost >= u128::from(*max_cost) {
            return Due::Now(DispatchReason::Full);
        }
        match self.window {
            Some(delay) => self.window(load.oldest.saturating_add(delay), load),
            None => Due::Now(DispatchReason::Idle),
        }
    }

    /// A window is not worth a deadline: while a worker is free no request spends more than half of
    /// its time waiting for others.
    fn window(&self, end: Nanos, load: &GroupLoad) -> Due {
        if end <= self.now {
            Due::Now(DispatchReason::Window)
        } else if load.half_time <= self.now {
            Due::Now(DispatchReason::Deadline)
        } else if self.draining {
            Due::Now(DispatchReason::Drain)
        } else {
            Due::At(end.min(load.half_time))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPPORTUNISTIC: Policy = Policy::Opportunistic;
    const WINDOW: Policy = Policy::Window { delay: 100 };

    fn check(policy: Policy, (items, cost): (u64, u128), draining: bool, now: Nanos, want: Due) {
        let config = Config { policy, max_items: 4, max_cost: 50, ..Config::default() };
        let load = GroupLoad { items, cost, oldest: 1000, half_time: Nanos::MAX };
        let rules = Rules { draining, now, ..Rules::new(config) };
        assert_eq!(rules.due(&load), want, "{load:?} at {now}");
    }

    #[test]
    fn a_batch_at_its_limit_of_items_or_cost_is_full_under_every_policy() {
        for policy in [OPPORTUNISTIC, WINDOW] {
            for load in [(4, 4), (9, 9), (1, 50), (2, 80)] {
                check(policy, load, false, 1000, Due::Now(DispatchReason::Full));
            }
        }
    }

    #[test]
    fn opportunistic_is_due_with_whatever_is_there() {
        check(OPPORTUNISTIC, (1, 1), false, 1000, Due::Now(DispatchReason::Idle));
        check(OPPORTUNISTIC, (3, 3), true, 1000, Due::Now(DispatchReason::Idle));
    }

    #[test]
    fn a_window_counts_from_the_arrival_of_the_oldest() {
        check(WINDOW, (3, 3), false, 1000, Due::At(1100));
        check(WINDOW, (3, 3), false, 1099, Due::At(1100));
        check(WINDOW, (3, 3), false, 1100, Due::Now(DispatchReason::Window));
    }

    #[test]
    fn a_deadline_ends_the_window_at_half_time() {
        let config = Config { policy: WINDOW, max_items: 4, ..Config::default() };
        let load = GroupLoad { items: 1, cost: 1, oldest: 1000, half_time: 1020 };
        let due = |now| Rules { now, ..Rules::new(config.clone()) }.due(&load);
        assert_eq!(due(1019), Due::At(1020));
        assert_eq!(due(1020), Due::Now(DispatchReason::Deadline));
        assert_eq!(due(1100), Due::Now(DispatchReason::Window));
    }

    #[test]
    fn draining_ends_the_window() {
        check(WINDOW, (1, 1), true, 1050, Due::Now(DispatchReason::Drain));
        check(WINDOW, (1, 1), true, 1100, Due::Now(DispatchReason::Window));
    }
}
