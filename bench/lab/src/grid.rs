//! The settings tried for each peer, so that no peer loses by a bad setting.

use jitney_batcher::Nanos;

use crate::contender::Contender;
use crate::peers::{bentoml, clipper, ray, torchserve, triton};
use jitney_sim::curve::ms;

const SIZES: [usize; 5] = [4, 8, 16, 32, 64];
/// The shortest is shorter than TorchServe can be told: an oracle may.
const DELAYS: [f64; 5] = [0.1, 1.0, 2.0, 5.0, 10.0];

/// A peer and the settings tried for it.
#[derive(Clone, Debug)]
pub struct PolicyFamily {
    /// Its name in a table; a star means that the best setting was chosen.
    pub name: &'static str,
    /// The settings.
    pub members: Vec<Contender>,
}

/// Every policy of the tables with its settings, for a deadline. JitneyScheduler has one.
#[must_use]
pub fn families(deadline: Nanos) -> Vec<PolicyFamily> {
    let family = |name, members| PolicyFamily { name, members };
    vec![
        family("eager = Triton {}", vec![Contender::Eager]),
        family("TorchServe*", torchserve()),
        family("Ray default (10, 10 ms)", vec![Contender::Ray(ray::RaySettings::DEFAULT)]),
        family("Ray*", ray(false)),
        family("Ray blocking handler*", ray(true)),
        family("BentoML*", bentoml(deadline)),
        family("Triton*", triton(deadline)),
        family("Clipper AIMD*", clipper(deadline)),
        family("ours (no tuning, learned)", vec![Contender::Adaptive]),
    ]
}

fn pairs() -> impl Iterator<Item = (usize, Nanos)> {
    SIZES.into_iter().flat_map(|size| DELAYS.map(|delay| (size, ms(delay))))
}

/// 25 settings.
#[must_use]
pub fn torchserve() -> Vec<Contender> {
    let build =
        |(size, delay)| Contender::TorchServe(torchserve::TorchServeSettings::new(size, delay));
    pairs().map(build).collect()
}

/// 25 settings.
#[must_use]
pub fn ray(blocking: bool) -> Vec<Contender> {
    let build = |(max_batch_size, batch_wait_timeout)| {
        Contender::Ray(ray::RaySettings { max_batch_size, batch_wait_timeout, blocking })
    };
    pairs().map(build).collect()
}

/// 9 settings.
fn bentoml(deadline: Nanos) -> Vec<Contender> {
    let bounds = [deadline / 10 * 7, deadline, ms(60_000.0)];
    let build = |max_batch_size, max_latency| {
        Contender::BentoMl(bentoml::BentoMlSettings { max_batch_size, max_latency })
    };
    [16, 32, 64].into_iter().flat_map(|size| bounds.map(|bound| build(size, bound))).collect()
}

/// 45 settings.
fn triton(deadline: Nanos) -> Vec<Contender> {
    let mut all = Vec::new();
    for max_batch_size in [8, 16, 64] {
        for timeout in [Nanos::MAX, deadline / 2, deadline / 4 * 3] {
            for (delay, preferred) in
                [(0.0, false), (2.0, false), (2.0, true), (5.0, false), (5.0, true)]
            {
                let preferred = if preferred { vec![4, 8, 16, 32, 64] } else { Vec::new() };
                let delay = ms(delay);
                let settings = triton::TritonSettings { max_batch_size, preferred, delay, timeout };
                all.push(Contender::Triton(settings));
            }
        }
    }
    all
}

/// 4 settings.
fn clipper(deadline: Nanos) -> Vec<Contender> {
    let build = |quarters| {
        let objective = deadline / 4 * quarters;
        Contender::Clipper(clipper::ClipperSettings { objective, max_batch_size: 64 })
    };
    (1..=4).map(build).collect()
}
