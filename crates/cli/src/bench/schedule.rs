//! When the requests of an open loop are due. The times are the simulator's.

use std::path::Path;
use std::time::Duration;

use jitney_load::LoadPhase;
use jitney_sim::Arrivals;
use jitney_sim::trace::Trace;

use crate::failure::Failure;
use crate::flag_values;
use crate::flags::bench::{BenchFlags, PhaseFlag};

/// Times that are kept in memory; 16 hours at 1,000 per second.
const REQUESTS_MAX: f64 = 60_000_000.0;
const DURATION: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(1);

/// How long a closed loop or a single rate lasts.
pub fn duration(flags: &BenchFlags) -> Duration {
    flags.duration.map_or(DURATION, |span| span.0)
}

/// How long the load lasts that does not count.
pub fn warm_up(flags: &BenchFlags) -> Duration {
    let default = if flags.requests.is_some() { Duration::ZERO } else { WARM_UP };
    flags.warm_up.map_or(default, |span| span.0)
}

/// The phases of an open loop; none for a closed one.
pub fn phases(flags: &BenchFlags) -> Result<Option<Vec<LoadPhase>>, Failure> {
    let trace = flags.trace.as_deref().map(recording).transpose()?;
    // A recording is played once, unless a time is given.
    let recorded = trace.as_ref().filter(|_| flags.duration.is_none());
    let count = flags.requests.or(recorded.map(|trace| trace.times.len() as u64));
    let steps: Vec<Step> = match flags.rate.or(trace.as_ref().map(Trace::rate)) {
        Some(rate) => vec![Step {
            rate,
            end: count.map_or(StepEnd::After(duration(flags)), StepEnd::Requests),
        }],
        None => flags.phase.iter().map(Step::from).collect(),
    };
    let Some(first) = steps.first() else { return Ok(None) };
    let arrivals = match trace {
        Some(trace) => Arrivals::Recorded(trace.times),
        None => named(flags.arrivals.as_deref().unwrap_or("poisson"))?,
    };
    let mut phases = Vec::new();
    let warm_up = warm_up(flags);
    if !warm_up.is_zero() {
        let step = Step { rate: first.rate, end: StepEnd::After(warm_up) };
        // Chance of its own, so that what counts does not depend on the warm-up.
        phases.push(step.phase(&arrivals, flags.seed ^ u64::MAX, false)?);
    }
    for (number, step) in steps.iter().enumerate() {
        phases.push(step.phase(&arrivals, flags.seed.wrapping_add(number as u64), true)?);
    }
    Ok(Some(phases))
}

/// A rate, and what ends it.
struct Step {
    rate: f64,
    end: StepEnd,
}

enum StepEnd {
    After(Duration),
    Requests(u64),
}

impl From<&PhaseFlag> for Step {
    fn from(flag: &PhaseFlag) -> Self {
        Self { rate: flag.rate, end: StepEnd::After(flag.length.0) }
    }
}

impl Step {
    fn phase(&self, arrivals: &Arrivals, seed: u64, counted: bool) -> Result<LoadPhase, Failure> {
        let rate = self.rate;
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(Failure::usage(format!("a rate must be above 0, not {rate}")));
        }
        let expected = match self.end {
            StepEnd::After(length) => rate * length.as_secs_f64(),
            StepEnd::Requests(count) => count as f64,
        };
        if expected > REQUESTS_MAX {
            let message = format!("{expected:.0} requests are too many; give a shorter time");
            return Err(Failure::usage(message));
        }
        let (due, length) = match self.end {
            StepEnd::After(length) => (until(length, rate, arrivals, seed), length),
            StepEnd::Requests(count) => {
                let due = arrivals.times(rate, count as usize, seed);
                let last = Duration::from_nanos(due.last().copied().unwrap_or(0));
                let length = Duration::try_from_secs_f64(expected / rate).unwrap_or(Duration::MAX);
                (due, length.max(last))
            }
        };
        Ok(LoadPhase { rate, length, due, counted })
    }
}

/// The times before an end.
fn until(length: Duration, rate: f64, arrivals: &Arrivals, seed: u64) -> Vec<u64> {
    let (end, expected) = (length.as_nanos(), rate * length.as_secs_f64());
    let mut count = (expected + 8.0 * expected.sqrt() + 16.0) as usize;
    let mut due = arrivals.times(rate, count, seed);
    while due.last().is_some_and(|last| u128::from(*last) < end) {
        count *= 2;
        due = arrivals.times(rate, count, seed);
    }
    due.retain(|at| u128::from(*at) < end);
    due
}

fn named(name: &str) -> Result<Arrivals, Failure> {
    flag_values::arrivals(if name == "constant" { "even" } else { name })
}

fn recording(path: &Path) -> Result<Trace, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    Trace::parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    fn flags(rate: f64) -> BenchFlags {
        BenchFlags { rate: Some(rate), seed: 42, ..BenchFlags::default() }
    }

    fn made(flags: &BenchFlags) -> Vec<LoadPhase> {
        phases(flags).expect("valid").expect("an open loop")
    }

    #[test]
    fn a_rate_has_a_warm_up_that_does_not_count() {
        let made = made(&flags(1000.0));
        let lengths: Vec<_> = made.iter().map(|phase| (phase.counted, phase.length)).collect();
        assert_eq!(lengths, [(false, WARM_UP), (true, DURATION)]);
        assert!((9_500..10_500).contains(&made[1].due.len()), "{}", made[1].due.len());
        assert!(made[1].due.is_sorted() && made[1].due.last() < Some(&10_000_000_000));
    }

    #[test]
    fn a_constant_rate_is_even_and_a_count_is_kept() {
        let arrivals = Some("constant".to_owned());
        let made = made(&BenchFlags { arrivals, requests: Some(5), ..flags(1000.0) });
        assert_eq!(made.len(), 1, "no warm-up with a count");
        assert_eq!(made[0].due, [1, 2, 3, 4, 5].map(|at| at * 1_000_000));
    }

    #[test]
    fn steps_follow_one_another_and_chance_differs() {
        let phase: Vec<PhaseFlag> =
            ["100x2s", "100x2s"].iter().flat_map(|text| text.parse()).collect();
        let warm_up = Some(Span(Duration::ZERO));
        let made = made(&BenchFlags { rate: None, phase, warm_up, ..flags(1.0) });
        assert_eq!(made.len(), 2);
        assert_ne!(made[0].due, made[1].due);
    }

    #[test]
    fn a_recording_is_played_once_at_its_speed() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("trace.csv");
        std::fs::write(&file, "0.0\n0.5\n0.6\n2.0\n").expect("a file");
        let made = made(&BenchFlags {
            rate: None,
            trace: Some(file),
            warm_up: Some(Span(Duration::ZERO)),
            ..flags(1.0)
        });
        let times: Vec<f64> =
            made[0].due.iter().map(|at| (*at as f64 / 1e8).round() / 10.0).collect();
        assert_eq!(times, [0.0, 0.5, 0.6, 2.0]);
    }

    #[test]
    fn senseless_rates_are_usage_errors() {
        for rate in [0.0, -1.0, f64::NAN, 1e12] {
            assert_eq!(
                phases(&flags(rate)).expect_err("an error").code,
                crate::failure::USAGE,
                "{rate}"
            );
        }
        assert!(phases(&BenchFlags::default()).expect("valid").is_none(), "a closed loop");
    }
}
