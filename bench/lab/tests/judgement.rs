//! The adaptive policy against the goals it was built for. The quick ones run with every test; the
//! whole columns are heavy and run with `make test-all`.

use jitney_lab::bounds::clairvoyant;
use jitney_lab::contender::Contender;
use jitney_lab::grid;
use jitney_lab::tables::stages::{self, Rule, StagedCell};
use jitney_lab::tables::{Scenario, bert, closed, g99, r50, traffic};
use jitney_sim::{Demand, run};

const OURS: [Contender; 1] = [Contender::Adaptive];

/// The share of the bound that ours carries with 99 % on time.
fn share_of_bound(setting: &Scenario, count: usize, seed: u64) -> f64 {
    setting.g99(&OURS, count, seed).0 / setting.bound(count, seed)
}

/// In time per second at a multiple of the fluid limit, over that limit.
fn goodput(setting: &Scenario, factor: f64, count: usize) -> f64 {
    let rate = setting.fluid() * factor;
    setting.play(&OURS[0], rate, count, 42).goodput() / setting.fluid()
}

#[test]
fn it_is_near_the_clairvoyant_below_saturation() {
    let one = share_of_bound(&Scenario::new("R50 k1", r50(), 1, 25.0), 3000, 3);
    assert!(one > 0.85, "{one}");
    let four = share_of_bound(&Scenario::new("R50 k4", r50(), 4, 25.0), 6000, 3);
    assert!(four > 0.82, "{four}");
}

#[test]
fn goodput_does_not_fall_as_load_rises() {
    for workers in [1, 4] {
        let setting = Scenario::new("R50", r50(), workers, 25.0);
        let plateau = [0.7, 0.9, 1.0, 1.2, 1.5, 2.0, 4.0].map(|load| goodput(&setting, load, 6000));
        let kept = plateau.windows(2).all(|pair| pair[1] >= pair[0] * 0.995);
        assert!(kept, "{workers} workers: {plateau:?}");
    }
}

#[test]
fn in_overload_it_is_near_the_clairvoyant() {
    let setting = Scenario::new("R50", r50(), 1, 25.0);
    for load in [1.0, 1.5, 2.0, 4.0] {
        let jobs = setting.demand.jobs(setting.fluid() * load, 6000, 42);
        let missed = clairvoyant(&setting.world.curve, &jobs, usize::MAX).expect("no limit");
        let best = (jobs.len() - missed) as f64 / jobs.len() as f64;
        let ours = setting.play(&OURS[0], setting.fluid() * load, 6000, 42).on_time_share();
        assert!(ours >= 0.96 * best, "{load}x: {ours} of {best}");
    }
}

#[test]
fn clients_that_wait_are_served_as_by_the_best_window_of_all() {
    for cell in closed::cells() {
        let ours = closed::steady(&cell.play(&OURS[0], 8000, 42));
        let windows = grid::torchserve();
        let window = |window: &Contender| closed::steady(&cell.play(window, 8000, 42));
        let best = windows.iter().map(window).fold(0.0, f64::max);
        assert!(ours >= 0.97 * best, "{cell:?}: {ours} of {best}");
    }
}

#[test]
fn a_single_client_pays_nothing() {
    let cell = closed::ClosedLoop::new("alone", bert(), 1, 1, 0.2);
    let [ours, eager] =
        [Contender::Adaptive, Contender::Eager].map(|policy| cell.play(&policy, 500, 1));
    assert_eq!(ours.latencies(20).quantile(0.99), eager.latencies(20).quantile(0.99));
}

/// One batch at a time, and two slots that take what is there.
const FIXED: [Rule; 2] = [Rule::Single, Rule::Eager];

#[test]
fn workers_that_prepare_are_fed_as_by_the_better_of_both_fixed_rules() {
    for (clients, max) in stages::CLIENTS {
        for contention in [1.15, 1.4] {
            let cell = StagedCell { clients, max, contention, noisy: true, sized: true };
            let answers = |rule| cell.answers(rule, 10_000.0, 42);
            let (ours, best) = (answers(Rule::Ours), FIXED.map(answers));
            let best = best.into_iter().fold(0.0, f64::max);
            assert!(ours >= 0.98 * best, "{cell:?}: {ours} of {best}");
        }
    }
}

#[test]
fn sixteen_clients_share_a_batch_and_many_take_turns() {
    let cell =
        |clients| StagedCell { clients, max: 128, contention: 1.2, noisy: true, sized: true };
    let (few, many) = (cell(16), cell(128));
    let single = few.answers(Rule::Single, 6000.0, 42);
    assert!(few.answers(Rule::Ours, 6000.0, 42) >= 0.99 * single);
    assert!(single > 1.3 * few.answers(Rule::Eager, 6000.0, 42), "half-empty batches cost more");
    let single = many.answers(Rule::Single, 6000.0, 42);
    assert!(many.answers(Rule::Ours, 6000.0, 42) > 1.2 * single, "one prepares while one runs");
}

#[test]
fn requests_that_come_by_chance_wait_less_where_batches_are_prepared_ahead() {
    let cell = StagedCell { clients: 0, max: 128, contention: 1.2, noisy: true, sized: true };
    for rate in [300.0, 2000.0, 5000.0] {
        let load = Demand::poisson(f64::INFINITY).load(rate, 4000, 5);
        let mean = |rule| cell.play(rule, &load).latencies(0).mean();
        let (ours, fixed) = (mean(Rule::Ours), FIXED.map(mean));
        assert!(fixed.iter().all(|fixed| ours <= 1.01 * fixed), "{rate}: {ours} of {fixed:?}");
    }
}

#[test]
fn a_batch_is_not_run_at_a_far_larger_size_for_the_sake_of_one() {
    // 33 clients as 64 would take 9.1 ms a round; 32 take 5.4.
    let cell =
        |clients| StagedCell { clients, max: 256, contention: 1.0, noisy: true, sized: true };
    for (clients, size, as_one) in [(33, 32, 64), (129, 128, 192)] {
        let mut world = cell(clients).world(1);
        world.stages = None;
        let load = cell(clients).closed(2000.0, 42);
        let outcome = run(&world, &load, OURS[0].build(&world).as_mut());
        let together = clients as f64 * 1e9 / (world.curve.time(as_one) as f64 + 3e5);
        let answers = closed::steady(&outcome);
        assert!(answers > 1.25 * together, "{clients}: {answers} of {together}");
        assert!(outcome.fill() <= f64::from(size), "{}", outcome.fill());
    }
}

#[test]
#[ignore = "heavy: half a minute in release, run by make test-all"]
fn whole_columns_are_near_their_bounds() {
    let goals = [0.92, 0.94, 0.97, 0.95, 0.86, 0.87, 0.90, 0.97, 0.82, 0.81, 0.92, 0.86];
    for (column, goal) in g99::columns().iter().zip(goals) {
        let share = share_of_bound(column, 20_000, 42);
        assert!(share >= goal, "{}: {share} < {goal}", column.name);
    }
}

#[test]
fn waiting_that_loses_stops() {
    // An even clock never needs a batch there: what waits only loses, and every rule says that it gains.
    let evenly = |cell: &traffic::TrafficCell| {
        cell.kind.starts_with("even, last") && ["CPU k2 0.8", "CPU k4 0.8"].contains(&&*cell.place)
    };
    let cells: Vec<_> = traffic::open().into_iter().filter(evenly).collect();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let [ours, eager] =
            [Contender::Adaptive, Contender::Eager].map(|policy| cell.play(&policy, 30_000, 5));
        let mean = ours.mean / eager.mean;
        assert!(mean < 1.02, "{}: {mean}", cell.name());
    }
}

#[test]
#[ignore = "heavy: a minute in release, run by make test-all"]
fn open_traffic_is_never_served_worse_than_by_dispatching_at_once() {
    let pooled = |cell: &traffic::TrafficCell| {
        let connections = ["own", "pool of 8,", "pool of 2048,", "8 pools", "HTTP/2"];
        connections.iter().any(|kind| cell.kind.contains(kind))
    };
    for cell in traffic::open().iter().filter(|cell| pooled(cell)) {
        let [ours, eager] =
            [Contender::Adaptive, Contender::Eager].map(|policy| cell.play(&policy, 20_000, 42));
        let (mean, p99) = (ours.mean / eager.mean, ours.p99 / eager.p99);
        // Single cells with several workers are a little over 1.02 and 1.04 (bench/batching.md).
        assert!(mean < 1.04 && p99 < 1.12, "{}: mean {mean}, p99 {p99}", cell.name());
    }
}
