//! A bound for any number of workers, rigorous but loose: what fits between an arrival and a
//! deadline.
//!
//! Of the requests i..j at most `k * N(d_j - a_i)` can be in time, where N(T) is the most that one
//! worker can do in T. To drop the current one whenever a constraint is violated is optimal.

use jitney_batcher::Nanos;

use jitney_sim::{Job, ServiceCurve};

/// Times are rounded up to this grid, which keeps the bound optimistic.
const GRID: Nanos = 50_000;

/// At least so many of these requests are missed, whatever `workers` workers do.
///
/// Requests are in order of arrival and of deadline; intervals longer than `horizon` are not looked
/// at.
#[must_use]
pub fn interval(curve: &ServiceCurve, jobs: &[Job], workers: usize, horizon: Nanos) -> usize {
    let most = most(curve, longest(jobs), horizon + longest(jobs));
    let mut kept: Vec<Nanos> = Vec::with_capacity(jobs.len());
    for job in jobs {
        kept.push(job.at);
        let recent = kept.iter().rev().take_while(|&&at| job.at - at <= horizon);
        let fits = recent.enumerate().all(|(before, &at)| {
            let cell = ((job.deadline - at).div_ceil(GRID) as usize).min(most.len() - 1);
            before < workers * most[cell]
        });
        if !fits {
            kept.pop();
        }
    }
    jobs.len() - kept.len()
}

fn longest(jobs: &[Job]) -> Nanos {
    jobs.iter().map(|job| job.deadline - job.at).max().unwrap_or(0)
}

/// The most that one worker can do in each number of grid cells, with batches that fit a deadline.
fn most(curve: &ServiceCurve, deadline: Nanos, until: Nanos) -> Vec<usize> {
    let times = optimistic(curve);
    let cells = times.iter().take_while(|&&time| time <= deadline).map(|&time| time / GRID);
    let cells: Vec<usize> = cells.map(|cell| cell as usize).collect();
    let mut most = vec![0; until.div_ceil(GRID) as usize + 1];
    for at in 0..most.len() {
        let fitting = cells.iter().enumerate().take_while(|&(_, &cell)| cell <= at);
        let batch = |(size, &cell): (usize, &usize)| size + 1 + most[at - cell.max(1).min(at)];
        most[at] = fitting.map(batch).max().unwrap_or(0);
    }
    most
}

/// The least time in which at least so many can be served: optimistic where a curve has dents.
fn optimistic(curve: &ServiceCurve) -> Vec<Nanos> {
    let mut times: Vec<Nanos> = (1..=curve.max()).map(|size| curve.time(size)).collect();
    for at in (1..times.len()).rev() {
        times[at - 1] = times[at - 1].min(times[at]);
    }
    times
}

mod tests {
    use jitney_lab::bounds::clairvoyant;
    use jitney_sim::{Demand, ms};

    use super::*;

    #[test]
    fn it_never_asks_for_more_misses_than_the_exact_optimum() {
        let curve = ServiceCurve::affine(5.0, 1.0, 16);
        for rate in [300.0, 500.0, 800.0, 1500.0] {
            let jobs = Demand::poisson(25.0).jobs(rate, 500, 9);
            let exact = clairvoyant(&curve, &jobs, usize::MAX).expect("no limit");
            let loose = interval(&curve, &jobs, 1, ms(200.0));
            assert!(loose <= exact, "{rate}: {loose} of {exact}");
        }
    }
}
