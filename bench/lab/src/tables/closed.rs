//! Closed loops: a fixed set of clients, each waiting for its answer, as every load generator has.

use super::latency::preferred;
use super::{Effort, bert, r50};
use crate::contender::Contender;
use crate::grid;
use crate::peers::{bentoml, ray, torchserve};
use jitney_sim::curve::{ServiceCurve, ms};
use jitney_sim::outcome::Outcome;
use jitney_sim::runner::run;
use jitney_sim::text_table::TextTable;
use jitney_sim::world::{Clients, Load, ThinkSpread, World};

/// A number of clients on a number of workers.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    name: &'static str,
    curve: ServiceCurve,
    workers: usize,
    clients: usize,
    /// Mean of the exponential part of the turn-around, in milliseconds.
    think: f64,
}

impl ClosedLoop {
    /// A cell with this name, curve, number of workers, of clients, and think time.
    #[must_use]
    pub fn new(
        name: &'static str,
        curve: ServiceCurve,
        workers: usize,
        clients: usize,
        think: f64,
    ) -> Self {
        Self { name, curve, workers, clients, think }
    }

    /// Plays about `count` requests.
    #[must_use]
    pub fn play(&self, contender: &Contender, count: usize, seed: u64) -> Outcome {
        let world = World::new(self.curve.clone(), self.workers);
        let share = self.clients.div_ceil(self.workers).min(self.curve.max());
        let rate = (self.clients as f64 / self.curve.time(share) as f64)
            .min(self.curve.capacity(self.workers) / 1e9);
        let clients = Clients {
            count: self.clients,
            turn: ms(0.05),
            think: ms(self.think),
            spread: ThinkSpread::Exponential,
            deadline: u64::MAX,
            until: (count as f64 / rate) as u64,
            seed,
        };
        run(&world, &Load::closed(clients), contender.build(&world).as_mut())
    }
}

/// The cells of the table.
#[must_use]
pub fn cells() -> Vec<ClosedLoop> {
    vec![
        ClosedLoop::new("BERT k1 N1", bert(), 1, 1, 0.2),
        ClosedLoop::new("BERT k1 N8", bert(), 1, 8, 0.2),
        ClosedLoop::new("BERT k1 N32", bert(), 1, 32, 0.2),
        ClosedLoop::new("BERT k4 N64", bert(), 4, 64, 0.2),
        ClosedLoop::new("R50 k1 N16", r50(), 1, 16, 0.2),
        ClosedLoop::new("R50 k4 N16", r50(), 4, 16, 0.2),
        ClosedLoop::new("R50 k4 N64 z2", r50(), 4, 64, 2.0),
        ClosedLoop::new("BERT k2 N3", bert(), 2, 3, 0.2),
    ]
}

/// Throughput per second, p50 and p99 in milliseconds.
pub fn table(effort: &mut Effort<'_>) -> TextTable {
    let cells = cells();
    let title = "Closed loop: answers per second, p50/p99 ms (turn-around 0.05 ms + exponential)";
    let mut table = TextTable::new(title, cells.iter().map(|cell| cell.name.to_owned()));
    let ours = [Contender::Adaptive];
    let all = contenders();
    for contender in if effort.peers { &all[..] } else { &ours[..] } {
        (effort.progress)(&contender.to_string());
        let figures = |cell: &ClosedLoop| {
            let outcome = cell.play(contender, effort.count, effort.seed);
            let latencies = outcome.latencies(outcome.jobs.len() / 10);
            let (p50, p99) = (latencies.quantile(0.5), latencies.quantile(0.99));
            format!("{:.0}, {p50:.1}/{p99:.1}", steady(&outcome))
        };
        table.row(contender.to_string(), cells.iter().map(figures).collect::<Vec<_>>());
    }
    if effort.peers {
        (effort.progress)("every window");
        let best = |cell: &ClosedLoop| best_window(cell, effort.count, effort.seed);
        table.row("best of 25 windows", cells.iter().map(best).collect::<Vec<_>>());
    }
    table
}

/// Answers per second after the first tenth.
#[must_use]
pub fn steady(outcome: &Outcome) -> f64 {
    let from = outcome.jobs.len() / 10;
    let span = outcome.until - outcome.jobs.get(from).map_or(0, |job| job.at);
    (outcome.jobs.len() - from) as f64 / span.max(1) as f64 * 1e9
}

fn best_window(cell: &ClosedLoop, count: usize, seed: u64) -> String {
    let windows = grid::torchserve();
    let throughput = |window: &Contender| steady(&cell.play(window, count, seed));
    format!("{:.0}", windows.iter().map(throughput).fold(0.0, f64::max))
}

fn contenders() -> Vec<Contender> {
    let bound = ms(60_000.0);
    vec![
        Contender::Eager,
        Contender::TorchServe(torchserve::TorchServeSettings::new(16, ms(5.0))),
        Contender::TorchServe(torchserve::TorchServeSettings::new(8, ms(2.0))),
        Contender::Ray(ray::RaySettings::DEFAULT),
        Contender::BentoMl(bentoml::BentoMlSettings { max_batch_size: 64, max_latency: bound }),
        Contender::Triton(preferred()),
        Contender::Adaptive,
    ]
}
