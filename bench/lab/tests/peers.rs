//! The peers' policies on small timelines worked out by hand: who travels when, and with whom.

use jitney_lab::contender::Contender;
use jitney_sim::{Job, Load, ServiceCurve, SimulatedEnd, World, ms, run};

/// Plays requests that come at these milliseconds and says of each when it was answered and in what
/// company; `None` if it was rejected.
fn timeline(policy: &str, world: &World, arrivals: &[f64]) -> Vec<Option<(f64, u32)>> {
    let job = |(client, &at): (usize, &f64)| Job {
        at: ms(at),
        deadline: ms(at + 100.0),
        tenant: 0,
        client: client as u64,
    };
    let load = Load::open(arrivals.iter().enumerate().map(job).collect());
    let contender = Contender::parse(policy, ms(100.0)).expect(policy);
    let outcome = run(world, &load, contender.build(world).as_mut());
    let told = |end: &SimulatedEnd| match end {
        SimulatedEnd::Answered { at, batch } => Some((*at as f64 / 1e6, *batch)),
        SimulatedEnd::Rejected { .. } => None,
    };
    outcome.ends.iter().map(told).collect()
}

/// Ten milliseconds whatever the size.
fn flat(workers: usize) -> World {
    World::new(ServiceCurve::affine(10.0, 0.0, 64), workers)
}

fn check(policy: &str, workers: usize, arrivals: &[f64], want: &[(f64, u32)]) {
    let want: Vec<_> = want.iter().copied().map(Some).collect();
    assert_eq!(timeline(policy, &flat(workers), arrivals), want, "{policy}");
}

#[test]
fn eager_takes_what_is_there_when_a_worker_is_free() {
    check("eager", 1, &[0.0, 1.0, 2.0, 11.0], &[(10.0, 1), (20.0, 2), (20.0, 2), (30.0, 1)]);
}

#[test]
fn torchserves_window_opens_when_the_worker_takes_its_first_job() {
    // The second waits for the worker until 15 and then for a whole window of its own.
    check("torchserve:8,5", 1, &[0.0, 6.0, 18.0], &[(15.0, 1), (30.0, 2), (30.0, 2)]);
}

#[test]
fn while_one_torchserve_worker_collects_the_idle_others_wait_for_the_lock() {
    // Two workers, but the requests at 1 and 2 join the collector instead of an idle worker.
    check(
        "torchserve:3,5",
        2,
        &[0.0, 1.0, 2.0, 3.0],
        &[(12.0, 3), (12.0, 3), (12.0, 3), (18.0, 1)],
    );
}

#[test]
fn torchserve_refuses_beyond_a_hundred_waiting_jobs() {
    let arrivals: Vec<f64> = (0..103).map(|at| f64::from(at) * 0.01).collect();
    let ends = timeline("torchserve:1,5", &flat(1), &arrivals);
    assert_eq!(ends.iter().filter(|end| end.is_none()).count(), 2);
    assert_eq!(ends[100], Some((1010.0, 1)));
}

#[test]
fn rays_batches_are_frozen_while_the_worker_is_busy() {
    // Sealed at 4, 9 and 14 with one each, although the worker is busy from 4 to 34.
    check("ray:10,4", 1, &[0.0, 5.0, 10.0], &[(14.0, 1), (24.0, 1), (34.0, 1)]);
}

#[test]
fn a_blocking_handler_makes_ray_bind_late() {
    check("ray-blocking:10,4", 1, &[0.0, 5.0, 10.0], &[(14.0, 1), (28.0, 2), (28.0, 2)]);
}

#[test]
fn triton_pays_its_delay_even_when_idle_and_ships_preferred_sizes_at_once() {
    check("triton:64,3", 1, &[0.0, 2.0], &[(13.0, 2), (13.0, 2)]);
    check(
        "triton:64,3,preferred",
        1,
        &[0.0, 0.5, 1.0, 2.0, 2.5],
        &[(12.0, 4), (12.0, 4), (12.0, 4), (12.0, 4), (22.0, 1)],
    );
}

#[test]
fn clippers_cap_grows_by_one_with_every_good_batch() {
    let ends = timeline("clipper:50", &flat(1), &[0.0; 7]);
    let batches: Vec<u32> = ends.iter().flatten().map(|end| end.1).collect();
    assert_eq!(batches, [1, 2, 2, 3, 3, 3, 1]);
}

#[test]
fn bentoml_finds_out_that_its_worker_is_free_when_it_polls() {
    // The second comes at 0.4, is looked at every millisecond from then on, and leaves at 10.4.
    check("bentoml:100", 1, &[0.0, 0.4], &[(10.0, 1), (20.4, 1)]);
}

#[test]
fn bentoml_cancels_the_oldest_when_its_line_says_so() {
    // Ten one by one teach it 5 ms + 5 ms per request (the smallest solution); a burst of forty
    // would then take 205 ms by its line and 10 ms in truth.
    let mut arrivals: Vec<f64> = (0..12).map(|at| f64::from(at) * 100.0).collect();
    arrivals.extend([2000.0; 40]);
    let ends = timeline("bentoml:100,100", &flat(1), &arrivals);
    let shed = ends[12..].iter().filter(|end| end.is_none()).count();
    assert!((20..=39).contains(&shed), "{shed}");
}
