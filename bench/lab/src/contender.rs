//! The policies that can be compared, ours and the peers with their settings, and the names by which
//! the laboratory asks for them: `adaptive`, `torchserve:16,5`, `ray:10,10`.

use std::fmt;

use jitney_batcher::Nanos;

use crate::peers::bentoml::{BentoMl, BentoMlSettings};
use crate::peers::clipper::{Clipper, ClipperSettings};
use crate::peers::pool::Pooled;
use crate::peers::ray::{Ray, RaySettings};
use crate::peers::torchserve::{TorchServe, TorchServeSettings};
use crate::peers::triton::{Triton, TritonSettings};
use jitney_sim::curve::ms;
use jitney_sim::policy::SimulatedPolicy;
use jitney_sim::scheduler::Scheduler;
use jitney_sim::world::World;

/// A policy with its settings. Sizes beyond the world's largest batch are cut to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Contender {
    /// Ours; nothing to set.
    Adaptive,
    /// Our window: counted from the arrival of the oldest.
    Window(Nanos),
    /// An idle worker takes what is there: Triton without a delay, and our `opportunistic`.
    Eager,
    /// TorchServe.
    TorchServe(TorchServeSettings),
    /// Ray Serve.
    Ray(RaySettings),
    /// BentoML.
    BentoMl(BentoMlSettings),
    /// Triton.
    Triton(TritonSettings),
    /// Clipper.
    Clipper(ClipperSettings),
}

impl Contender {
    /// The scheduler for a world.
    #[must_use]
    pub fn build(&self, world: &World) -> Box<dyn Scheduler> {
        let (workers, max, seed) = (world.workers, world.curve.max(), world.seed);
        let cut = |size: usize| size.clamp(1, max);
        match self.clone() {
            Self::Adaptive => Box::new(SimulatedPolicy::Adaptive.build(world)),
            Self::Window(delay) => Box::new(SimulatedPolicy::Window(delay).build(world)),
            Self::Eager => Box::new(Pooled(Triton::new(TritonSettings::eager(max), workers))),
            Self::TorchServe(mut settings) => {
                settings.batch_size = cut(settings.batch_size);
                Box::new(Pooled(TorchServe::new(settings, workers)))
            }
            Self::Ray(mut settings) => {
                settings.max_batch_size = cut(settings.max_batch_size);
                Box::new(Ray::new(settings, workers, seed))
            }
            Self::BentoMl(mut settings) => {
                settings.max_batch_size = cut(settings.max_batch_size);
                Box::new(BentoMl::new(settings, workers, seed))
            }
            Self::Triton(mut settings) => {
                settings.max_batch_size = cut(settings.max_batch_size);
                settings.preferred.retain(|&size| size <= settings.max_batch_size);
                Box::new(Pooled(Triton::new(settings, workers)))
            }
            Self::Clipper(mut settings) => {
                settings.max_batch_size = cut(settings.max_batch_size);
                Box::new(Pooled(Clipper::new(settings, workers)))
            }
        }
    }

    /// Reads a policy; numbers left out are the peer's defaults, or follow from the deadline.
    ///
    /// # Errors
    /// No policy is called so, or a number is none.
    pub fn parse(text: &str, deadline: Nanos) -> Result<Self, NoContender> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let bad = || NoContender(text.to_owned());
        let words: Vec<&str> = rest.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
        let preferred = words.contains(&"preferred");
        let numbers = words.iter().filter(|word| **word != "preferred");
        let numbers: Vec<f64> =
            numbers.map(|word| number(word)).collect::<Option<_>>().ok_or_else(bad)?;
        let at = |at: usize, other: f64| numbers.get(at).copied().unwrap_or(other);
        let size = |other: f64| (at(0, other) as usize).max(1);
        let deadline = (deadline as f64 / 1e6).min(60_000.0);
        let ray = |blocking| {
            Self::Ray(RaySettings {
                max_batch_size: size(10.0),
                batch_wait_timeout: ms(at(1, 10.0)),
                blocking,
            })
        };
        Ok(match name.trim() {
            "adaptive" => Self::Adaptive,
            "eager" | "opportunistic" => Self::Eager,
            "window" => Self::Window(ms(at(0, 5.0))),
            "torchserve" => Self::TorchServe(TorchServeSettings::new(size(16.0), ms(at(1, 5.0)))),
            "ray" => ray(false),
            "ray-blocking" => ray(true),
            "bentoml" => {
                let (max_batch_size, max_latency) = (size(100.0), ms(at(1, deadline)));
                Self::BentoMl(BentoMlSettings { max_batch_size, max_latency })
            }
            "triton" => {
                let preferred = if preferred { vec![4, 8, 16, 32, 64] } else { Vec::new() };
                let delay = ms(at(1, 0.0));
                Self::Triton(TritonSettings {
                    preferred,
                    delay,
                    ..TritonSettings::eager(size(64.0))
                })
            }
            "clipper" => {
                let objective = ms(at(0, deadline / 2.0));
                Self::Clipper(ClipperSettings { objective, max_batch_size: 1024 })
            }
            _ => return Err(bad()),
        })
    }
}

/// A name that no policy has, or numbers it cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoContender(String);

impl fmt::Display for NoContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a policy; there are adaptive, eager, window:MS, torchserve:SIZE,MS, \
             ray:SIZE,MS, ray-blocking:SIZE,MS, bentoml:SIZE,MS, triton:SIZE,MS[,preferred] and \
             clipper:MS",
            self.0
        )
    }
}

impl std::error::Error for NoContender {}

fn number(word: &str) -> Option<f64> {
    let number: f64 = word.trim_end_matches("ms").trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Milliseconds as people write them.
struct Ms(Nanos);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", (self.0 as f64 / 1e4).round() / 100.0)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => write!(f, "jitney adaptive"),
            Self::Window(delay) => write!(f, "jitney window {}", Ms(*delay)),
            Self::Eager => write!(f, "eager (Triton {{}})"),
            Self::TorchServe(s) => {
                write!(f, "TorchServe {}, {}", s.batch_size, Ms(s.max_batch_delay))
            }
            Self::Ray(s) => {
                let handler = if s.blocking { ", blocking" } else { "" };
                write!(f, "Ray {}, {}{handler}", s.max_batch_size, Ms(s.batch_wait_timeout))
            }
            Self::BentoMl(s) => write!(f, "BentoML {}, {}", s.max_batch_size, Ms(s.max_latency)),
            Self::Triton(s) => {
                write!(f, "Triton {}, {}", s.max_batch_size, Ms(s.delay))?;
                if let Some(first) = s.preferred.first() {
                    write!(f, ", preferred {first}..")?;
                }
                if s.timeout < Nanos::MAX {
                    write!(f, ", timeout {}", Ms(s.timeout))?;
                }
                Ok(())
            }
            Self::Clipper(s) => write!(f, "Clipper {}", Ms(s.objective)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, name: &str) {
        let contender = Contender::parse(text, ms(50.0)).expect(text);
        assert_eq!(contender.to_string(), name, "{text}");
    }

    #[test]
    fn every_policy_has_a_name_and_defaults() {
        check("adaptive", "jitney adaptive");
        check("eager", "eager (Triton {})");
        check("window:2.5ms", "jitney window 2.5 ms");
        check("torchserve:8,2", "TorchServe 8, 2 ms");
        check("ray", "Ray 10, 10 ms");
        check("ray-blocking:4,1", "Ray 4, 1 ms, blocking");
        check("bentoml", "BentoML 100, 50 ms");
        check("triton:32,2,preferred", "Triton 32, 2 ms, preferred 4..");
        check("clipper", "Clipper 25 ms");
    }

    #[test]
    fn what_is_no_policy_is_told_the_names() {
        for text in ["", "adaptve", "ray:x", "torchserve:-1,5"] {
            let error = Contender::parse(text, 0).expect_err(text);
            assert!(error.to_string().contains("torchserve:SIZE,MS"));
        }
    }
}
