//! What no policy can exceed: the clairvoyant optimum.
//!
//! Bounds know the whole future and the true curve. They are computed for deterministic service
//! times; with noise they are those of the curve itself.

use jitney_batcher::Nanos;
use jitney_sim::curve::ServiceCurve;
use jitney_sim::job::Job;

// The exact optimum of one worker that knows the future. With agreeable deadlines (a later request
// never has an earlier deadline) batches of neighbours suffice, by exchange. After the first j
// requests only two things matter: how many were dropped and when the worker is free; of those pairs
// the ones that are best in one respect are kept.

/// Fewest of these requests that one worker must miss, or `None` if more than `allowed`.
///
/// Requests are in order of arrival and of deadline.
#[must_use]
pub fn clairvoyant(curve: &ServiceCurve, jobs: &[Job], allowed: usize) -> Option<usize> {
    let times = optimistic(curve);
    let ring = times.len() + 1;
    // fronts[j % ring] belongs to the first j requests; no batch reaches further than the ring.
    let mut fronts: Vec<Front> = vec![Front::default(); ring];
    fronts[0].offer(0, 0);
    for (at, job) in jobs.iter().enumerate() {
        let mut front = std::mem::take(&mut fronts[at % ring]);
        front.prune(job.at);
        for (drops, free) in front.pairs() {
            if drops < allowed {
                fronts[(at + 1) % ring].offer(drops + 1, free);
            }
            for (size, &time) in times.iter().enumerate() {
                let Some(last) = jobs.get(at + size) else { break };
                let finish = free.max(last.at) + time;
                if finish > job.deadline {
                    break;
                }
                fronts[(at + size + 1) % ring].offer(drops, finish);
            }
        }
        front.times.clear();
        fronts[at % ring] = front;
    }
    fronts[jobs.len() % ring].pairs().map(|(drops, _)| drops).next()
}

/// The least time in which at least so many can be served: optimistic where a curve has dents.
fn optimistic(curve: &ServiceCurve) -> Vec<Nanos> {
    let mut times: Vec<Nanos> = (1..=curve.max()).map(|size| curve.time(size)).collect();
    for at in (1..times.len()).rev() {
        times[at - 1] = times[at - 1].min(times[at]);
    }
    times
}

/// The earliest time at which the worker can be free, by the number of requests dropped.
#[derive(Clone, Debug, Default)]
struct Front {
    /// Drops of the first entry.
    base: usize,
    times: Vec<Nanos>,
}

impl Front {
    fn offer(&mut self, drops: usize, free: Nanos) {
        if self.times.is_empty() {
            self.base = drops;
        }
        if drops < self.base {
            let missing = self.base - drops;
            self.times.splice(0..0, std::iter::repeat_n(Nanos::MAX, missing));
            self.base = drops;
        }
        let at = drops - self.base;
        if at >= self.times.len() {
            self.times.resize(at + 1, Nanos::MAX);
        }
        self.times[at] = self.times[at].min(free);
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, Nanos)> {
        let all = self.times.iter().enumerate().map(|(at, &free)| (self.base + at, free));
        all.filter(|&(_, free)| free != Nanos::MAX)
    }

    /// Keeps those that no other beats; to be free before the next arrival is worth nothing.
    fn prune(&mut self, arrival: Nanos) {
        let mut best = Nanos::MAX;
        for free in &mut self.times {
            let time = (*free).max(arrival);
            *free = if time < best { time } else { Nanos::MAX };
            best = best.min(time);
        }
        let useful = self.times.iter().rposition(|&free| free != Nanos::MAX);
        self.times.truncate(useful.map_or(0, |at| at + 1));
    }
}

// The optimum of two workers that know the future, among schedules in order of deadline. As for one
// worker, with both free times as the state. Free times are rounded down to a grid, which keeps the
// result optimistic: an upper bound on what a policy can serve.

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

    fn jobs(pairs: &[(Nanos, Nanos)]) -> Vec<Job> {
        let job = |&(at, deadline)| Job { at, deadline, tenant: 0, client: 0 };
        pairs.iter().map(job).collect()
    }

    fn check(curve: &ServiceCurve, pairs: &[(Nanos, Nanos)], drops: usize) {
        assert_eq!(clairvoyant(curve, &jobs(pairs), usize::MAX), Some(drops), "{pairs:?}");
    }

    #[test]
    fn small_cases_worked_out_by_hand() {
        // 10 ns + 1 ns per item.
        let curve = ServiceCurve::affine(1e-5, 1e-6, 4);
        check(&curve, &[(0, 11)], 0);
        check(&curve, &[(0, 10)], 1);
        // Together they need 12 from 5 on.
        check(&curve, &[(0, 17), (5, 22)], 0);
        // Apart they would need until 22, together until 17: the first is late by one.
        check(&curve, &[(0, 16), (5, 21)], 1);
        // Five do not fit into one batch and the second batch is late.
        check(&curve, &[(0, 20); 5], 1);
    }

    #[test]
    fn more_drops_than_allowed_is_no_answer() {
        let curve = ServiceCurve::affine(1e-5, 1e-6, 4);
        assert_eq!(clairvoyant(&curve, &jobs(&[(0, 5); 3]), 2), None);
    }

    #[test]
    fn two_workers_serve_side_by_side_what_one_cannot() {
        let curve = ServiceCurve::affine(1e-5, 1e-6, 1);
        let job = Job { at: 0, deadline: 12, tenant: 0, client: 0 };
        let misses = |count| clairvoyant_pair(&curve, &vec![job; count], usize::MAX, 1);
        assert_eq!((misses(2), misses(3)), (Some(0), Some(1)));
    }
}
