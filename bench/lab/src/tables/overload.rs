//! Goodput when more requests come than can be served.

use super::{Effort, Scenario, r50};
use crate::bounds;
use crate::contender::Contender;
use crate::peers::{bentoml, clipper, ray, torchserve, triton};
use jitney_sim::curve::ms;
use jitney_sim::text_table::TextTable;

const FACTORS: [f64; 7] = [0.7, 0.9, 1.0, 1.2, 1.5, 2.0, 4.0];

/// Goodput over the fluid limit, by offered load, for the R50 curve with a deadline of 25 ms.
pub fn table(workers: usize, effort: &mut Effort<'_>) -> TextTable {
    let setting = Scenario::new("R50", r50(), workers, 25.0);
    let title = format!("Goodput over the fluid limit, R50, 25 ms, {workers} workers, by load");
    let mut table = TextTable::new(&title, FACTORS.iter().map(|factor| format!("{factor}x")));
    if workers == 1 {
        (effort.progress)("clairvoyant");
        table.row("clairvoyant", FACTORS.map(|factor| clairvoyant(&setting, factor, effort)));
    }
    let ours = [Contender::Adaptive];
    let all = contenders(setting.deadline);
    for contender in if effort.peers { &all[..] } else { &ours[..] } {
        (effort.progress)(&contender.to_string());
        let cells = FACTORS.map(|factor| {
            let rate = setting.fluid() * factor;
            let outcome = setting.play(contender, rate, effort.count, effort.seed);
            format!("{:.3}", outcome.goodput() / setting.fluid())
        });
        table.row(contender.to_string(), cells);
    }
    table
}

fn clairvoyant(setting: &Scenario, factor: f64, effort: &Effort<'_>) -> String {
    let jobs = setting.demand.jobs(setting.fluid() * factor, effort.count, effort.seed);
    let missed = bounds::clairvoyant(&setting.world.curve, &jobs, usize::MAX).unwrap_or(jobs.len());
    let share = 1.0 - missed as f64 / jobs.len() as f64;
    let span = (jobs[jobs.len() - 1].at - jobs[0].at) as f64 / 1e9;
    format!("{:.3}", share * jobs.len() as f64 / span / setting.fluid())
}

fn contenders(deadline: f64) -> Vec<Contender> {
    let timeout = ms(deadline / 2.0);
    let triton = triton::TritonSettings { timeout, ..triton::TritonSettings::eager(64) };
    vec![
        Contender::Eager,
        Contender::TorchServe(torchserve::TorchServeSettings::new(16, ms(5.0))),
        Contender::Ray(ray::RaySettings::DEFAULT),
        Contender::Clipper(clipper::ClipperSettings { objective: timeout, max_batch_size: 64 }),
        Contender::Triton(triton),
        Contender::BentoMl(bentoml::BentoMlSettings {
            max_batch_size: 64,
            max_latency: ms(deadline),
        }),
        Contender::Adaptive,
    ]
}
