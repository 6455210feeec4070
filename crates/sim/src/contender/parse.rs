//! Policies by the names users type: `adaptive`, `torchserve:16,5`, `ray:10,10`.

use std::fmt;

use jitney_batcher::Nanos;

use super::Contender;
use crate::curve::ms;
use crate::peers::{bentoml, clipper, ray, torchserve, triton};

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

impl Contender {
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
            Self::Ray(ray::RaySettings {
                max_batch_size: size(10.0),
                batch_wait_timeout: ms(at(1, 10.0)),
                blocking,
            })
        };
        Ok(match name.trim() {
            "adaptive" => Self::Adaptive,
            "eager" | "opportunistic" => Self::Eager,
            "window" => Self::Window(ms(at(0, 5.0))),
            "torchserve" => {
                Self::TorchServe(torchserve::TorchServeSettings::new(size(16.0), ms(at(1, 5.0))))
            }
            "ray" => ray(false),
            "ray-blocking" => ray(true),
            "bentoml" => {
                let (max_batch_size, max_latency) = (size(100.0), ms(at(1, deadline)));
                Self::BentoMl(bentoml::BentoMlSettings { max_batch_size, max_latency })
            }
            "triton" => {
                let preferred = if preferred { vec![4, 8, 16, 32, 64] } else { Vec::new() };
                let delay = ms(at(1, 0.0));
                Self::Triton(triton::TritonSettings {
                    preferred,
                    delay,
                    ..triton::TritonSettings::eager(size(64.0))
                })
            }
            "clipper" => {
                let objective = ms(at(0, deadline / 2.0));
                Self::Clipper(clipper::ClipperSettings { objective, max_batch_size: 1024 })
            }
            _ => return Err(bad()),
        })
    }
}

fn number(word: &str) -> Option<f64> {
    let number: f64 = word.trim_end_matches("ms").trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
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
