//! Latency below saturation: what a policy costs requests that could be served at once.

use super::{Effort, Scenario, bert, r50};
use crate::contender::Contender;
use crate::peers::{bentoml, ray, torchserve, triton};
use jitney_sim::curve::ms;
use jitney_sim::text_table::TextTable;

/// Mean, median and p99 in milliseconds, by load.
pub fn table(effort: &mut Effort<'_>) -> TextTable {
    let r50 = |name, workers| Scenario::new(name, r50(), workers, 25.0);
    let bert = |name| Scenario::new(name, bert(), 4, 30.0);
    let columns = [
        (r50("R50 k1 .3", 1), 0.3),
        (r50("R50 k1 .6", 1), 0.6),
        (r50("R50 k4 .3", 4), 0.3),
        (r50("R50 k4 .6", 4), 0.6),
        (r50("R50 k4 .8", 4), 0.8),
        (bert("BERT k4 .3"), 0.3),
        (bert("BERT k4 .6"), 0.6),
    ];
    let title = "Latency below saturation in ms: mean/p50/p99 (share lost, if any)";
    let mut table = TextTable::new(title, columns.iter().map(|(column, _)| column.name.to_owned()));
    for family in contenders() {
        let name = family(25.0).to_string();
        if !effort.peers && family(25.0) != Contender::Adaptive {
            continue;
        }
        (effort.progress)(&name);
        let cells: Vec<String> = columns
            .iter()
            .map(|(column, load)| cell(column, *load, &family(column.deadline), effort))
            .collect();
        table.row(name, cells);
    }
    table
}

fn cell(column: &Scenario, load: f64, contender: &Contender, effort: &Effort<'_>) -> String {
    let outcome = column.play(contender, column.fluid() * load, effort.count, effort.seed);
    // The first tenth is left out: they all learn something.
    let latencies = outcome.latencies(effort.count / 10);
    let lost = outcome.rejected() as f64 / effort.count as f64;
    let lost = if lost >= 0.0005 { format!(" ({:.1} %)", lost * 100.0) } else { String::new() };
    let (p50, p99) = (latencies.quantile(0.5), latencies.quantile(0.99));
    format!("{:.1}/{p50:.1}/{p99:.1}{lost}", latencies.mean())
}

type MakePolicy = fn(f64) -> Contender;

fn contenders() -> [MakePolicy; 6] {
    [
        |_| Contender::Eager,
        |_| Contender::TorchServe(torchserve::TorchServeSettings::new(16, ms(5.0))),
        |_| Contender::Ray(ray::RaySettings::DEFAULT),
        |deadline| {
            let max_latency = ms(deadline);
            Contender::BentoMl(bentoml::BentoMlSettings { max_batch_size: 64, max_latency })
        },
        |_| Contender::Triton(preferred()),
        |_| Contender::Adaptive,
    ]
}

/// Preferred sizes from four on and two milliseconds.
#[must_use]
pub fn preferred() -> triton::TritonSettings {
    let preferred = vec![4, 8, 16, 32, 64];
    triton::TritonSettings { preferred, delay: ms(2.0), ..triton::TritonSettings::eager(64) }
}
