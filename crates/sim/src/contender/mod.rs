//! The policies that can be compared, by name: ours and the peers with their settings.

mod parse;

use std::fmt;

use jitney_batcher::{Adaptive, Config, Nanos, Policy};

pub use parse::NoContender;

use crate::jitney::JitneyScheduler;
use crate::peers::bentoml::{self, BentoMl};
use crate::peers::clipper::{self, Clipper};
use crate::peers::ray::{self, Ray};
use crate::peers::torchserve::{self, TorchServe};
use crate::peers::triton::{self, Triton};
use crate::scheduler::Scheduler;
use crate::world::World;

/// A policy with its settings. Sizes beyond the world's largest batch are cut to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Contender {
    /// JitneyScheduler; nothing to set.
    Adaptive,
    /// Our window: counted from the arrival of the oldest.
    Window(Nanos),
    /// An idle worker takes what is there: Triton without a delay, and our `opportunistic`.
    Eager,
    /// TorchServe.
    TorchServe(torchserve::TorchServeSettings),
    /// Ray Serve.
    Ray(ray::RaySettings),
    /// BentoML.
    BentoMl(bentoml::BentoMlSettings),
    /// Triton.
    Triton(triton::TritonSettings),
    /// Clipper.
    Clipper(clipper::ClipperSettings),
}

impl Contender {
    /// The scheduler for a world.
    #[must_use]
    pub fn build(&self, world: &World) -> Box<dyn Scheduler> {
        let (workers, max, seed) = (world.workers, world.curve.max(), world.seed);
        match self.clone() {
            Self::Adaptive => ours(Policy::Adaptive(Adaptive::default()), world),
            Self::Window(delay) => ours(Policy::Window { delay }, world),
            Self::Eager => Box::new(Triton::new(triton::TritonSettings::eager(max), workers)),
            Self::TorchServe(mut settings) => {
                settings.batch_size = settings.batch_size.clamp(1, max);
                Box::new(TorchServe::new(settings, workers))
            }
            Self::Ray(mut settings) => {
                settings.max_batch_size = settings.max_batch_size.clamp(1, max);
                Box::new(Ray::new(settings, workers, seed))
            }
            Self::BentoMl(mut settings) => {
                settings.max_batch_size = settings.max_batch_size.clamp(1, max);
                Box::new(BentoMl::new(settings, workers, seed))
            }
            Self::Triton(mut settings) => {
                settings.max_batch_size = settings.max_batch_size.clamp(1, max);
                settings.preferred.retain(|&size| size <= settings.max_batch_size);
                Box::new(Triton::new(settings, workers))
            }
            Self::Clipper(mut settings) => {
                settings.max_batch_size = settings.max_batch_size.clamp(1, max);
                Box::new(Clipper::new(settings, workers))
            }
        }
    }
}

fn ours(policy: Policy, world: &World) -> Box<dyn Scheduler> {
    let max_items = world.curve.max() as u32;
    Box::new(JitneyScheduler::new(Config { policy, max_items, ..Config::default() }, world.workers))
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
