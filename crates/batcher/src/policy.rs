//! When a lane's batch is due: the one place where policies differ.
//!
//! Apart from `lanes`, which says who is in the batch. A pure function of the lane's load and the
//! time; it never looks at workers, because a batch can be due while nobody is free.

use crate::action::DispatchReason;
use crate::config::{Adaptive, Config, Policy};
use crate::request::{NEVER, Nanos, Request};

/// What a policy may know about a lane in which somebody waits.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) items: u64,
    pub(crate) cost: u128,
    /// When the oldest of those waiting arrived.
    pub(crate) oldest: Nanos,
    /// When the most hurried of those waiting has spent half of its time.
    pub(crate) half_time: Nanos,
}

/// When the lane's next batch departs if a worker is free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now(DispatchReason),
    At(Nanos),
}

/// All that a decision depends on besides the requests themselves.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) config: Config,
    pub(crate) draining: bool,
    pub(crate) now: Nanos,
}

impl Rules {
    /// Whether the adaptive policy decides, which has lines of its own.
    pub(crate) fn adaptive(&self) -> bool {
        matches!(self.config.policy, Policy::Adaptive(_))
    }

    /// The request's own deadline, or the one that the objective gives it.
    pub(crate) fn deadline(&self, request: &Request) -> Nanos {
        match self.config.policy {
            Policy::Adaptive(Adaptive { objective: Some(objective), .. })
                if request.deadline == NEVER =>
            {
                self.now.saturating_add(objective)
            }
            Policy::Adaptive(_) | Policy::Window { .. } | Policy::Opportunistic => request.deadline,
        }
    }

    /// Decides when the lane's next batch departs.
    pub(crate) fn due(&self, load: &Load) -> Due {
        // Every request fits alone, so a load that reaches a limit either fills the batch exactly
        // or contains one that does not fit any more.
        let Config { max_items, max_cost, policy, .. } = &self.config;
        if load.items >= u64::from(*max_items) || load.cost >= u128::from(*max_cost) {
            return Due::Now(DispatchReason::Full);
        }
        match *policy {
            Policy::Opportunistic | Policy::Adaptive(_) => Due::Now(DispatchReason::Idle),
            Policy::Window { delay } => self.window(load.oldest.saturating_add(delay), load),
        }
    }

    /// A window is not worth a deadline: with a worker free nobody spends more than half of their
    /// time waiting for company.
    fn window(&self, end: Nanos, load: &Load) -> Due {
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
        let load = Load { items, cost, oldest: 1000, half_time: Nanos::MAX };
        let rules = Rules { config, draining, now };
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
        let load = Load { items: 1, cost: 1, oldest: 1000, half_time: 1020 };
        let due = |now| Rules { config: config.clone(), draining: false, now }.due(&load);
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
