//! The policy on traffic as it is: connections that are used again are no clients that return, and
//! clients that do return are waited for. The whole matrix is `bench/lab`, example `traffic`.

use jitney_sim::{
    Clients, ConnectionUse, Demand, Load, Outcome, Pools, ReuseOrder, ServiceCurve,
    SimulatedPolicy, ThinkSpread, WhenFull, World, ms, run,
};

const REQUESTS: usize = 6000;

fn world(workers: usize) -> World {
    World::new(ServiceCurve::affine(5.0, 0.2, 32), workers)
}

fn both(world: &World, load: &Load) -> [Outcome; 2] {
    [SimulatedPolicy::Adaptive, SimulatedPolicy::Opportunistic]
        .map(|it| run(world, load, &mut it.build(world)))
}

fn pool(order: ReuseOrder, size: usize) -> ConnectionUse {
    let when_full = WhenFull::Opens;
    ConnectionUse::Pooled(Pools { count: 1, size, order, when_full, seed: 3 })
}

/// Mean and p99 latency over those of dispatching at once.
fn ratios(workers: usize, rate: f64, connections: ConnectionUse) -> (f64, f64) {
    let load = Demand::poisson(100.0).load(rate, REQUESTS, 11).over(connections);
    let [ours, eager] = both(&world(workers), &load).map(|outcome| outcome.latencies(500));
    (ours.mean() / eager.mean(), ours.quantile(0.99) / eager.quantile(0.99))
}

fn clients(count: usize, think: f64) -> Clients {
    let (turn, think, spread) = (ms(0.05), ms(think), ThinkSpread::Exponential);
    Clients { count, turn, think, spread, deadline: u64::MAX, until: ms(4000.0), seed: 5 }
}

#[test]
fn requests_over_a_pool_are_dispatched_as_if_each_had_its_own_connection() {
    use ReuseOrder::{LastFreed, LongestFree, Random, Shared};
    for (order, size) in [(LastFreed, 2048), (LongestFree, 64), (Random, 64), (Shared, 1)] {
        for rate in [300.0, 1000.0, 2000.0] {
            let (mean, p99) = ratios(1, rate, pool(order, size));
            assert!(mean < 1.03 && p99 < 1.06, "{order:?} of {size} at {rate}: {mean} {p99}");
        }
    }
}

#[test]
fn several_workers_are_fed_evenly_through_a_pool_too() {
    for (workers, rate) in [(2, 2000.0), (4, 2000.0), (4, 5000.0)] {
        let (mean, p99) = ratios(workers, rate, pool(ReuseOrder::LastFreed, 2048));
        assert!(mean < 0.96 && p99 < 0.92, "{workers} workers at {rate}: {mean} {p99}");
    }
}

#[test]
fn clients_that_return_are_waited_for_on_their_own_connections_and_behind_a_proxy() {
    let ConnectionUse::Pooled(pools) = pool(ReuseOrder::LastFreed, 64) else { unreachable!() };
    for connections in [ConnectionUse::Own, ConnectionUse::Proxied(pools)] {
        for (count, gain) in [(2, 1.6), (4, 1.4), (16, 1.3)] {
            let load = Load::closed(clients(count, 0.2)).over(connections);
            let [ours, eager] = both(&world(1), &load).map(|outcome| outcome.throughput());
            assert!(ours > gain * eager, "{count}, {connections:?}: {ours} and {eager}");
        }
    }
}

#[test]
fn traffic_that_changes_is_noticed() {
    // Independent requests over a pool for three seconds, while clients wait in the first second only.
    let mut load = Demand::poisson(f64::INFINITY).load(1000.0, 3000, 7);
    load.clients = Some(Clients { until: ms(1000.0), ..clients(16, 0.2) });
    let load = load.over(pool(ReuseOrder::LastFreed, 256));
    let late = |outcome: &Outcome| {
        let after = outcome.jobs.iter().filter(|job| job.at < ms(1500.0)).count();
        outcome.latencies(after).mean()
    };
    let [ours, eager] = both(&world(1), &load).map(|outcome| late(&outcome));
    assert!(ours < 1.03 * eager, "{ours} and {eager}");
}
