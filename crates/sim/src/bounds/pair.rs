//! The optimum of two workers that know the future, among schedules in order of deadline.
//!
//! As for one worker, with both free times as the state. Free times are rounded down to a grid,
//! which keeps the result optimistic: an upper bound on what a policy can serve.

use jitney_batcher::Nanos;

use super::clairvoyant::optimistic;
use crate::curve::ServiceCurve;
use crate::job::Job;

/// Drops so far, and when the worker that is free first and the other one are.
type PairState = (usize, Nanos, Nanos);

/// Fewest of these requests that two workers must miss, or `None` if more than `allowed`.
///
/// Requests are in order of arrival and of deadline; times are rounded down to `grid`.
#[must_use]
pub fn clairvoyant_pair(
    curve: &ServiceCurve,
    jobs: &[Job],
    allowed: usize,
    grid: Nanos,
) -> Option<usize> {
    let times = optimistic(curve);
    let ring = times.len() + 1;
    let mut fronts: Vec<Vec<PairState>> = vec![Vec::new(); ring];
    let mut profile = Profile::new(grid);
    fronts[0].push((0, 0, 0));
    for (at, job) in jobs.iter().enumerate() {
        let mut front = std::mem::take(&mut fronts[at % ring]);
        profile.prune(&mut front, job.at);
        for &(drops, first, second) in &front {
            if drops < allowed {
                fronts[(at + 1) % ring].push((drops + 1, first, second));
            }
            for (size, &time) in times.iter().enumerate() {
                let Some(last) = jobs.get(at + size) else { break };
                let finish = first.max(last.at) + time;
                if finish > job.deadline {
                    break;
                }
                let finish = finish / grid * grid;
                let state = (drops, second.min(finish), second.max(finish));
                fronts[(at + size + 1) % ring].push(state);
            }
        }
        front.clear();
        fronts[at % ring] = front;
    }
    fronts[jobs.len() % ring].iter().map(|state| state.0).min()
}

/// The least second free time for every first one, over the states seen so far.
struct Profile {
    grid: Nanos,
    least: Vec<Nanos>,
}

impl Profile {
    fn new(grid: Nanos) -> Self {
        Self { grid, least: Vec::new() }
    }

    /// Keeps the states that no other beats; to be free before the next arrival is worth nothing.
    fn prune(&mut self, front: &mut Vec<PairState>, arrival: Nanos) {
        for (_, first, second) in front.iter_mut() {
            *first = (*first).max(arrival);
            *second = (*second).max(arrival);
        }
        front.sort_unstable();
        front.dedup();
        self.least.clear();
        front.retain(|&(_, first, second)| self.improves((first - arrival) / self.grid, second));
    }

    fn improves(&mut self, cell: Nanos, second: Nanos) -> bool {
        let cell = cell as usize;
        let known = self.least.len();
        if cell >= known {
            let last = self.least.last().copied().unwrap_or(Nanos::MAX);
            self.least.resize(cell + 1, last);
        }
        if self.least[cell] <= second {
            return false;
        }
        let worse = self.least[cell..].iter_mut().take_while(|least| **least > second);
        worse.for_each(|least| *least = second);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_serve_side_by_side_what_one_cannot() {
        let curve = ServiceCurve::affine(1e-5, 1e-6, 1);
        let job = Job { at: 0, deadline: 12, tenant: 0, client: 0 };
        let misses = |count| clairvoyant_pair(&curve, &vec![job; count], usize::MAX, 1);
        assert_eq!((misses(2), misses(3)), (Some(0), Some(1)));
    }
}
