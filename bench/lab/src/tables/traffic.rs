//! Traffic as it is: requests that come whatever happens, over connections that are used again, and
//! clients that really wait for their answers; of every kind, at every load.
//!
//! The policy is judged against dispatching at once, on the same arrivals. Open traffic by mean and
//! p99 latency, clients by their answers per second.

use super::{bert, cpu, r50, step8};
use crate::contender::Contender;
use jitney_sim::arrivals::Arrivals;
use jitney_sim::connections::{ConnectionUse, Pools, ReuseOrder, WhenFull};
use jitney_sim::curve::{ServiceCurve, ms};
use jitney_sim::demand::Demand;
use jitney_sim::runner::run;
use jitney_sim::world::{Clients, Load, ThinkSpread, World};

const LOADS: [f64; 9] = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95];
const WORKERS: [usize; 3] = [1, 2, 4];
const CLIENTS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// What a cell is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Mean and p99 latency of the open requests over those of dispatching at once.
    Open,
    /// Answers per second over those of dispatching at once.
    Closed,
    /// Both: half of the load is clients that wait for their answers.
    Mixed,
}

/// One kind of traffic on one curve, number of workers, and load.
#[derive(Clone, Debug)]
pub struct TrafficCell {
    /// What it is judged by.
    pub judged: Judged,
    /// The kind of traffic.
    pub kind: String,
    /// The curve, the workers, and the load or the number of clients.
    pub place: String,
    /// Whether dispatching at once does the same for every kind of this place and these arrivals.
    pub alike: Option<String>,
    world: World,
    arrivals: Arrivals,
    /// Share of what the workers can carry that comes whatever happens.
    open: f64,
    clients: Option<Thinkers>,
    connections: ConnectionUse,
}

#[derive(Clone, Copy, Debug)]
struct Thinkers {
    count: usize,
    think: f64,
    spread: ThinkSpread,
}

/// What came of a cell under one policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficFigures {
    /// Mean latency of the open requests in milliseconds.
    pub mean: f64,
    /// Their 99th percentile.
    pub p99: f64,
    /// Answers per second to clients that wait for them.
    pub closed: f64,
    /// Requests in a batch.
    pub batch: f64,
}

impl TrafficCell {
    /// Plays about `count` requests.
    #[must_use]
    pub fn play(&self, contender: &Contender, count: usize, seed: u64) -> TrafficFigures {
        let World { curve, workers, .. } = &self.world;
        let capacity = curve.capacity(*workers);
        let rate = self.open * capacity;
        let mut load = Load::default();
        let mut until = 0;
        if rate > 0.0 {
            let demand = Demand::new(self.arrivals.clone(), f64::INFINITY);
            load = demand.load(rate, count, seed);
            until = load.open.last().map_or(0, |job| job.at);
        } else if let Some(clients) = self.clients {
            let share = clients.count.div_ceil(*workers).min(curve.max());
            let round = curve.time(share) as f64 / 1e9 + clients.think / 1e3;
            until = (count as f64 / (clients.count as f64 / round).min(capacity) * 1e9) as u64;
        }
        load.clients = self.clients.map(|Thinkers { count, think, spread }| {
            let (turn, think) = (ms(0.05), ms(think));
            Clients { count, turn, think, spread, deadline: u64::MAX, until, seed }
        });
        let load = load.over(self.connections);
        let outcome = run(&self.world, &load, contender.build(&self.world).as_mut());
        let open = outcome.open_latencies();
        let asked = outcome.asked.iter().filter(|&&asked| asked).count();
        TrafficFigures {
            mean: open.mean(),
            p99: open.quantile(0.99),
            closed: asked as f64 / outcome.until as f64 * 1e9,
            batch: outcome.fill(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{:28} {}", self.kind, self.place)
    }
}

/// The curves: those of the other tables, and one of 5 ms and 0.2 ms per item.
fn curves() -> [(&'static str, ServiceCurve); 5] {
    let plain = ServiceCurve::affine(5.0, 0.2, 32);
    [("R50", r50()), ("CPU", cpu()), ("BERT", bert()), ("step8", step8()), ("5+.2b", plain)]
}

fn pools(count: usize, size: usize, order: ReuseOrder) -> Pools {
    Pools { count, size, order, when_full: WhenFull::Opens, seed: 7 }
}

/// Ways in which open requests use connections.
fn ways() -> Vec<(String, ConnectionUse)> {
    use ReuseOrder::{LastFreed, LongestFree, Random, Shared};
    let mut all = vec![("own connections".to_owned(), ConnectionUse::Own)];
    for (order, name) in
        [(LastFreed, "last freed"), (LongestFree, "longest free"), (Random, "random")]
    {
        for size in [1, 8, 64, 2048] {
            all.push((
                format!("pool of {size}, {name}"),
                ConnectionUse::Pooled(pools(1, size, order)),
            ));
        }
    }
    let many = [
        ("8 pools of 32, last freed", pools(8, 32, LastFreed)),
        ("8 pools of 256, longest free", pools(8, 256, LongestFree)),
        ("one HTTP/2 connection", pools(1, 1, Shared)),
        ("8 HTTP/2 connections", pools(8, 1, Shared)),
    ];
    all.extend(many.map(|(name, pools)| (name.to_owned(), ConnectionUse::Pooled(pools))));
    let waits = Pools { when_full: WhenFull::Waits, ..pools(1, 64, LastFreed) };
    all.push(("pool of 64 that lets wait".to_owned(), ConnectionUse::Pooled(waits)));
    all
}

/// Every cell of open traffic.
#[must_use]
pub fn open() -> Vec<TrafficCell> {
    let last = ConnectionUse::Pooled(pools(1, 2048, ReuseOrder::LastFreed));
    let random = ConnectionUse::Pooled(pools(1, 256, ReuseOrder::Random));
    let mut kinds: Vec<(String, Arrivals, ConnectionUse)> =
        ways().into_iter().map(|(name, way)| (name, Arrivals::Poisson, way)).collect();
    let processes = [
        ("bursts", Arrivals::Bursts { ratio: 4.0, dwell: 0.5 }),
        ("hyper", Arrivals::Hyper { cv2: 4.0 }),
        ("groups of 4", Arrivals::Groups { mean: 4.0 }),
        ("even", Arrivals::Even),
    ];
    for (name, process) in processes {
        kinds.push((format!("{name}, last freed"), process.clone(), last));
        kinds.push((format!("{name}, random"), process, random));
    }
    let mut cells = Vec::new();
    for (kind, arrivals, connections) in kinds {
        for (curve_name, curve) in curves() {
            for workers in WORKERS {
                for load in LOADS {
                    let place = format!("{curve_name} k{workers} {load}");
                    let waits = kind.contains("lets wait");
                    cells.push(TrafficCell {
                        judged: Judged::Open,
                        kind: kind.clone(),
                        alike: (!waits).then(|| format!("{arrivals:?} {place}")),
                        place,
                        world: World::new(curve.clone(), workers),
                        arrivals: arrivals.clone(),
                        open: load,
                        clients: None,
                        connections,
                    });
                }
            }
        }
    }
    cells
}

/// Every cell of clients that wait for their answers.
#[must_use]
pub fn closed() -> Vec<TrafficCell> {
    let proxy = ConnectionUse::Proxied(pools(1, 64, ReuseOrder::LastFreed));
    let shared = ConnectionUse::Proxied(pools(1, 1, ReuseOrder::Shared));
    let kinds = [
        ("think 0.2 fixed", 0.2, ThinkSpread::Fixed, ConnectionUse::Own),
        ("think 0.2", 0.2, ThinkSpread::Exponential, ConnectionUse::Own),
        ("think 2", 2.0, ThinkSpread::Exponential, ConnectionUse::Own),
        ("think 10", 10.0, ThinkSpread::Exponential, ConnectionUse::Own),
        ("think 1 heavy", 1.0, ThinkSpread::Heavy, ConnectionUse::Own),
        ("think 0.2, proxy", 0.2, ThinkSpread::Exponential, proxy),
        ("think 2, proxy", 2.0, ThinkSpread::Exponential, proxy),
        ("think 0.2, HTTP/2", 0.2, ThinkSpread::Exponential, shared),
    ];
    let mut cells = Vec::new();
    for (kind, think, spread, connections) in kinds {
        for (curve_name, curve) in curves() {
            for workers in WORKERS {
                for count in CLIENTS {
                    cells.push(TrafficCell {
                        judged: Judged::Closed,
                        kind: kind.to_owned(),
                        alike: None,
                        place: format!("{curve_name} k{workers} N{count}"),
                        world: World::new(curve.clone(), workers),
                        arrivals: Arrivals::Poisson,
                        open: 0.0,
                        clients: Some(Thinkers { count, think, spread }),
                        connections,
                    });
                }
            }
        }
    }
    cells
}

/// Half of what comes is open, half of it clients that wait for their answers.
#[must_use]
pub fn mixed() -> Vec<TrafficCell> {
    let last = pools(1, 2048, ReuseOrder::LastFreed);
    let ways = [
        ("half clients", ConnectionUse::Pooled(last)),
        ("half clients, proxy", ConnectionUse::Proxied(last)),
    ];
    let mut cells = Vec::new();
    for (kind, connections) in ways {
        for (curve_name, curve) in curves() {
            for workers in WORKERS {
                for load in [0.1, 0.35, 0.65, 0.9] {
                    let each = curve.time(1) as f64 / 1e9 + 0.002;
                    let clients = load / 2.0 * curve.capacity(workers) * each;
                    let count = (clients.round() as usize).max(1);
                    let spread = ThinkSpread::Exponential;
                    cells.push(TrafficCell {
                        judged: Judged::Mixed,
                        kind: kind.to_owned(),
                        alike: None,
                        place: format!("{curve_name} k{workers} {load}"),
                        world: World::new(curve.clone(), workers),
                        arrivals: Arrivals::Poisson,
                        open: load / 2.0,
                        clients: Some(Thinkers { count, think: 2.0, spread }),
                        connections,
                    });
                }
            }
        }
    }
    cells
}
