//! Mixed deadlines, a machine that becomes slower, a cold start, a heavy neighbour, a lost worker.

use super::{Effort, Scenario, bert, r50};
use crate::contender::Contender;
use jitney_sim::curve::ms;
use jitney_sim::demand::Class;
use jitney_sim::outcome::Outcome;
use jitney_sim::text_table::TextTable;
use jitney_sim::world::Loss;

/// Share on time in situations that are not one steady stream.
pub fn table(effort: &mut Effort<'_>) -> TextTable {
    let title = "Share on time: 25/100 ms at 1.0x (k4), 1.5x slow-down half-way at .6 (k4), first \
                 200 of BERT k1 at .6, light tenant (5 %) at 2x (k1), one of four lost at .5";
    let names = ["tight", "loose", "drift", "cold", "light", "all", "loss"];
    let mut table = TextTable::new(title, names.map(str::to_owned));
    let ours = [Contender::Adaptive];
    let all = [Contender::Eager, Contender::Adaptive];
    for contender in if effort.peers { &all[..] } else { &ours[..] } {
        (effort.progress)(&contender.to_string());
        let shares = shares(contender, effort);
        table.row(contender.to_string(), shares.map(|share| format!("{share:.3}")));
    }
    table
}

/// The share on time in every column.
#[must_use]
pub fn shares(contender: &Contender, effort: &Effort<'_>) -> [f64; 7] {
    let (tight, loose) = mixed(contender, effort);
    let (light, whole) = neighbours(contender, effort);
    let drift = drift(contender, effort).on_time_share();
    let cold = cold(contender, effort).on_time_share();
    let loss = loss(contender, effort).on_time_share();
    [tight, loose, drift, cold, light, whole, loss]
}

fn play(setting: &Scenario, load: f64, contender: &Contender, effort: &Effort<'_>) -> Outcome {
    setting.play(contender, setting.fluid() * load, effort.count, effort.seed)
}

fn mixed(contender: &Contender, effort: &Effort<'_>) -> (f64, f64) {
    let mut setting = Scenario::new("mixed", r50(), 4, 25.0);
    let class = |deadline| Class { share: 0.5, deadline, tenant: 0 };
    setting.demand.classes = vec![class(25.0), class(100.0)];
    let outcome = play(&setting, 1.0, contender, effort);
    let tight = |job: &jitney_sim::job::Job| job.deadline - job.at == ms(25.0);
    (outcome.share_of(tight), outcome.share_of(|job| !tight(job)))
}

fn drift(contender: &Contender, effort: &Effort<'_>) -> Outcome {
    let mut setting = Scenario::new("drift", r50(), 4, 25.0);
    let half = effort.count as f64 / 2.0 / (setting.fluid() * 0.6);
    setting.world.noise.slow = Some((ms(half * 1e3), 1.5));
    play(&setting, 0.6, contender, effort)
}

fn cold(contender: &Contender, effort: &Effort<'_>) -> Outcome {
    let setting = Scenario::new("cold", bert(), 1, 30.0);
    setting.play(contender, setting.fluid() * 0.6, 200, effort.seed)
}

fn neighbours(contender: &Contender, effort: &Effort<'_>) -> (f64, f64) {
    let mut setting = Scenario::new("tenants", r50(), 1, 25.0);
    let class = |share, tenant| Class { share, deadline: 25.0, tenant };
    setting.demand.classes = vec![class(0.95, 0), class(0.05, 1)];
    let outcome = play(&setting, 2.0, contender, effort);
    (outcome.share_of(|job| job.tenant == 1), outcome.on_time_share())
}

fn loss(contender: &Contender, effort: &Effort<'_>) -> Outcome {
    let mut setting = Scenario::new("loss", r50(), 4, 25.0);
    let seconds = effort.count as f64 / (setting.fluid() * 0.5);
    let (at, back) = (ms(seconds * 300.0), ms(seconds * 600.0));
    setting.world.losses = vec![Loss { worker: 1, at, back }];
    play(&setting, 0.5, contender, effort)
}
