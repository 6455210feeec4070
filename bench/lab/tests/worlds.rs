//! The simulator against what is known without it: conservation, closed forms, bounds, repetition.

mod interval;

use interval::interval;
use jitney_batcher::{Adaptive, Config, Policy};
use jitney_lab::bounds::{clairvoyant, clairvoyant_pair};
use jitney_lab::contender::Contender;
use jitney_sim::fluid;
use jitney_sim::{
    Arrivals, Clients, Demand, JitneyScheduler, Load, Loss, Noise, Outcome, ServiceCurve,
    SimulatedEnd, ThinkSpread, World, ms, run,
};

const POLICIES: [&str; 10] = [
    "adaptive",
    "eager",
    "window:5",
    "torchserve:8,5",
    "ray:10,10",
    "ray-blocking:10,10",
    "bentoml:32",
    "triton:32,2",
    "triton:32,2,preferred",
    "clipper",
];

fn play(policy: &str, world: &World, load: &Load) -> Outcome {
    let contender = Contender::parse(policy, ms(25.0)).expect(policy);
    run(world, load, contender.build(world).as_mut())
}

fn rough_world() -> World {
    let mut world = World::new(ServiceCurve::affine(5.0, 1.0, 32), 3).with_noise(Noise::NOISY);
    world.losses = vec![
        Loss { worker: 1, at: ms(200.0), back: ms(500.0) },
        Loss { worker: 0, at: ms(700.0), back: u64::MAX },
    ];
    world
}

#[test]
fn every_request_ends_once_and_after_it_came_under_every_policy() {
    let world = rough_world();
    for arrivals in
        [Arrivals::Poisson, Arrivals::OnOff { dwell: 0.1 }, Arrivals::Hyper { cv2: 9.0 }]
    {
        let load = Demand::new(arrivals, 25.0).load(1500.0, 2000, 5);
        for policy in POLICIES {
            let outcome = play(policy, &world, &load);
            assert_eq!(outcome.ends.len(), 2000, "{policy}");
            for (job, end) in outcome.jobs.iter().zip(&outcome.ends) {
                let (SimulatedEnd::Answered { at, .. } | SimulatedEnd::Rejected { at }) = end;
                assert!(*at >= job.at, "{policy}: {job:?} {end:?}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let world = rough_world();
    let load =
        Demand::new(Arrivals::Bursts { ratio: 4.0, dwell: 0.05 }, 25.0).load(1500.0, 2000, 6);
    for policy in POLICIES {
        assert_eq!(play(policy, &world, &load), play(policy, &world, &load), "{policy}");
    }
}

#[test]
fn batches_of_one_wait_as_long_as_pollaczek_and_khinchine_say() {
    // M/D/1 at utilisation 0.5 with service 1 ms: mean wait 0.5 ms, mean time 1.5 ms.
    let world = World::new(ServiceCurve::affine(1.0, 0.0, 1), 1);
    let load = Demand::poisson(f64::INFINITY).load(500.0, 200_000, 7);
    let mean = play("eager", &world, &load).latencies(0).mean();
    assert!((mean - 1.5).abs() < 0.02, "{mean}");
}

#[test]
fn even_arrivals_slower_than_the_worker_are_served_alone_at_once() {
    let world = World::new(ServiceCurve::affine(5.0, 1.0, 8), 1);
    let load = Demand::new(Arrivals::Even, 50.0).load(100.0, 500, 1);
    for policy in ["eager", "adaptive", "clipper", "triton:8,0"] {
        let outcome = play(policy, &world, &load);
        let latencies = outcome.latencies(100);
        assert_eq!((latencies.quantile(0.0), latencies.quantile(1.0)), (6.0, 6.0), "{policy}");
        assert_eq!(outcome.on_time(), 500);
    }
}

#[test]
fn one_client_is_answered_in_the_time_of_a_batch_of_one() {
    let world = World::new(ServiceCurve::affine(5.0, 0.1, 64), 1);
    let clients = Clients {
        count: 1,
        turn: ms(0.05),
        think: 0,
        spread: ThinkSpread::Exponential,
        deadline: u64::MAX,
        until: ms(3000.0),
        seed: 1,
    };
    for (policy, want) in
        [("eager", 5.1), ("adaptive", 5.1), ("torchserve:16,5", 10.1), ("ray:10,10", 15.1)]
    {
        let p99 = play(policy, &world, &Load::closed(clients)).latencies(50).quantile(0.99);
        assert!((p99 - want).abs() < 1e-6, "{policy}: {p99}");
    }
}

#[test]
fn no_policy_serves_more_in_time_than_the_bounds_allow() {
    let curve = ServiceCurve::affine(5.0, 1.0, 32);
    for rate in [300.0, 500.0, 900.0, 2000.0] {
        for workers in [1, 2] {
            let world = World::new(curve.clone(), workers);
            let demand = Demand::poisson(25.0);
            let jobs = demand.jobs(rate * workers as f64, 1500, 8);
            let exact = match workers {
                1 => clairvoyant(&curve, &jobs, usize::MAX),
                _ => clairvoyant_pair(&curve, &jobs, usize::MAX, ms(0.5)),
            };
            let best = jobs.len() - exact.expect("no limit");
            let loose = jobs.len() - interval(&curve, &jobs, workers, ms(200.0));
            assert!(loose >= best, "{rate} {workers}: {loose} < {best}");
            for policy in POLICIES {
                let served = play(policy, &world, &Load::open(jobs.clone())).on_time();
                assert!(served <= best, "{policy} {rate} {workers}: {served} > {best}");
            }
        }
    }
}

/// 5,000 requests a second for 10 s on a model that can do 2,807, to be answered within 100 ms.
#[test]
fn an_objective_beside_a_window_keeps_answers_in_time_under_overload() {
    let world = World::new(ServiceCurve::affine(5.0, 0.2, 32), 1).with_noise(Noise::NOISY);
    let load = Demand::poisson(100.0).load(5000.0, 50_000, 9);
    let good = |policy| {
        let config = Config { policy, max_items: 32, ..Config::default() };
        run(&world, &load, &mut JitneyScheduler::new(config, 1)).on_time()
    };
    let delay = ms(10.0);
    let adaptive = |window, max_wait| {
        let delivery = ms(2.0);
        Policy::Adaptive(Adaptive { window, max_wait, delivery, ..Adaptive::default() })
    };
    let window = good(Policy::Window { delay });
    let beside = [adaptive(Some(delay), None), adaptive(None, Some(delay))].map(good);
    assert!(window < 15_000, "requests expire in the queue, or are answered too late: {window}");
    assert!(beside.iter().all(|good| *good > 27_000), "{beside:?}");
}

#[test]
fn a_clairvoyant_fluid_is_no_better_than_its_limit() {
    let curve = ServiceCurve::affine(5.0, 1.0, 32);
    let limit = fluid::lossy(&curve, 1, ms(25.0));
    let jobs = Demand::new(Arrivals::Even, 25.0).jobs(limit * 3.0, 3000, 1);
    let missed = clairvoyant(&curve, &jobs, usize::MAX).expect("no limit");
    let seconds = jobs[jobs.len() - 1].deadline as f64 / 1e9;
    assert!((jobs.len() - missed) as f64 / seconds <= limit * 1.001);
}
