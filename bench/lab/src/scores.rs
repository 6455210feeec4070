//! Four figures by which a change of the policy is seen: a small set of worlds, a second or so to play.
//!
//! They are for comparing one build with another on the same arrivals. What the policy is judged by are
//! the whole tables.

use crate::contender::Contender;
use crate::tables::stages::{Rule, StagedCell};
use crate::tables::traffic::{self, TrafficCell};
use crate::tables::{Effort, Scenario, bert, closed, cpu, others, r50, step8};

const SEED: u64 = 42;
const OURS: Contender = Contender::Adaptive;

/// What a policy brings over all worlds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Geometric mean of the mean latencies of open traffic, in milliseconds.
    pub mean: f64,
    /// The same of the 99th percentiles.
    pub p99: f64,
    /// Mean of the shares of requests that are answered by their deadline.
    pub on_time: f64,
    /// Geometric mean of the answers per second of clients that wait for them.
    pub answers: f64,
}

impl Scores {
    /// Plays all worlds with this build's adaptive policy.
    #[must_use]
    pub fn play() -> Self {
        let open: Vec<_> = open().iter().map(|cell| cell.play(&OURS, 1500, SEED)).collect();
        let answers = closed().into_iter().chain(staged());
        Self {
            mean: geometric(open.iter().map(|it| it.mean)),
            p99: geometric(open.iter().map(|it| it.p99)),
            on_time: mean(on_time()),
            answers: geometric(answers),
        }
    }

    /// The figures in the order of the page.
    #[must_use]
    pub fn figures(&self) -> [f64; 4] {
        [self.mean, self.p99, self.on_time, self.answers]
    }
}

fn geometric(figures: impl Iterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = figures.map(f64::ln).collect();
    mean(logarithms).exp()
}

fn mean(figures: Vec<f64>) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

/// Requests that come whatever happens, on every curve, on one to four workers, at low and high load,
/// over connections of their own, through pools, in groups and in bursts.
fn open() -> Vec<TrafficCell> {
    let wanted = [
        ("own connections", "5+.2b k1 0.5"),
        ("own connections", "R50 k2 0.8"),
        ("pool of 2048, last freed", "5+.2b k1 0.9"),
        ("pool of 2048, last freed", "BERT k4 0.65"),
        ("pool of 64, random", "R50 k4 0.8"),
        ("pool of 8, longest free", "CPU k2 0.8"),
        ("8 HTTP/2 connections", "BERT k1 0.35"),
        ("groups of 4, last freed", "step8 k1 0.5"),
        ("groups of 4, random", "R50 k2 0.35"),
        ("hyper, random", "CPU k4 0.65"),
        ("bursts, last freed", "BERT k2 0.8"),
    ];
    let all = traffic::open().into_iter();
    all.filter(|cell| wanted.contains(&(&*cell.kind, &*cell.place))).collect()
}

/// Deadlines, below and above what can be carried, and what changes on the way.
fn on_time() -> Vec<f64> {
    let r50 = |workers| Scenario::new("R50", r50(), workers, 25.0);
    let scenarios = [
        (r50(1), 0.95),
        (r50(1), 1.5),
        (r50(4), 0.95),
        (r50(4), 1.2),
        (Scenario::new("BERT", bert(), 4, 30.0), 1.0),
        (Scenario::new("CPU", cpu(), 1, 60.0), 0.95),
        (Scenario::new("step8", step8(), 1, 20.0), 0.95),
        (r50(4).noisy(), 0.9),
        (r50(1).bursty(), 0.8),
    ];
    let share = |(scenario, load): &(Scenario, f64)| {
        scenario.play(&OURS, scenario.fluid() * load, 1500, SEED).on_time_share()
    };
    let effort = Effort { seed: SEED, count: 1500, peers: false, progress: &mut |_| {} };
    scenarios.iter().map(share).chain(others::shares(&OURS, &effort)).collect()
}

/// Clients that wait for their answers.
fn closed() -> Vec<f64> {
    let wanted = [
        ("think 2", "5+.2b k1 N16"),
        ("think 10", "BERT k1 N32"),
        ("think 1 heavy", "R50 k2 N24"),
        ("think 0.2, proxy", "BERT k1 N8"),
        ("think 0.2, HTTP/2", "5+.2b k1 N12"),
    ];
    let cells = traffic::closed().into_iter();
    let cells = cells.filter(|cell| wanted.contains(&(&*cell.kind, &*cell.place)));
    let behind = cells.map(|cell| cell.play(&OURS, 1500, SEED).closed);
    let own = closed::cells().into_iter().map(|cell| closed::steady(&cell.play(&OURS, 1500, SEED)));
    behind.chain(own).collect()
}

/// Clients of workers that prepare one batch while they run another.
fn staged() -> Vec<f64> {
    let cell = |(clients, max, contention, sized)| {
        let cell = StagedCell { clients, max, contention, noisy: true, sized };
        cell.answers(Rule::Ours, 400.0, SEED)
    };
    let cells = [
        (16, 128, 1.15, true),
        (33, 256, 1.15, true),
        (128, 128, 1.15, true),
        (128, 128, 1.4, false),
    ];
    cells.map(cell).into()
}
