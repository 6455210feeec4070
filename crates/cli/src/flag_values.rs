//! Values of flags that have a syntax of their own: arrival processes, slow-downs, worker exits.

use std::str::FromStr;

use jitney_sim::{Arrivals, Loss, ReuseOrder, ThinkSpread};

use crate::failure::Failure;
use crate::units::Millis;
use jitney_settings::did_you_mean;

const PROCESSES: [&str; 5] = ["poisson", "even", "bursts", "onoff", "hyper"];

/// An arrival process by name.
pub fn arrivals(name: &str) -> Result<Arrivals, Failure> {
    let known = [
        Arrivals::Poisson,
        Arrivals::Even,
        Arrivals::Bursts { ratio: 4.0, dwell: 0.5 },
        Arrivals::OnOff { dwell: 0.5 },
        Arrivals::Hyper { cv2: 4.0 },
    ];
    named(name, "arrival process", PROCESSES, known)
}

const ORDERS: [&str; 4] = ["last-freed", "longest-free", "random", "shared"];

/// Which free connection of a pool is used, by name.
pub fn pool_order(name: &str) -> Result<ReuseOrder, Failure> {
    let known =
        [ReuseOrder::LastFreed, ReuseOrder::LongestFree, ReuseOrder::Random, ReuseOrder::Shared];
    named(name, "order of a pool", ORDERS, known)
}

const THINK_KINDS: [&str; 3] = ["fixed", "exponential", "heavy"];

/// How the time is spread that clients think, by name.
pub fn think(name: &str) -> Result<ThinkSpread, Failure> {
    let known = [ThinkSpread::Fixed, ThinkSpread::Exponential, ThinkSpread::Heavy];
    named(name, "kind of think time", THINK_KINDS, known)
}

/// The value with this name.
fn named<T, const N: usize>(
    name: &str,
    what: &str,
    names: [&str; N],
    values: [T; N],
) -> Result<T, Failure> {
    let found = names.iter().zip(values).find(|(known, _)| **known == name);
    found.map(|(_, value)| value).ok_or_else(|| {
        let message = format!("{name:?} is no {what}; there are {}", names.join(", "));
        Failure::usage(message).maybe_hint(did_you_mean(name, names))
    })
}

/// `1.5@10s`: the time in nanoseconds and the factor.
pub fn slow_down(text: &str) -> Result<(u64, f64), Failure> {
    let bad = || Failure::usage(format!("{text:?} is not a slow-down; write it like 1.5@10s"));
    let (factor, at) = text.split_once('@').ok_or_else(bad)?;
    let factor: f64 = factor.trim_end_matches('x').parse().map_err(|_| bad())?;
    if !(factor > 0.0 && factor.is_finite()) {
        return Err(bad());
    }
    Ok((nanos(at).ok_or_else(bad)?, factor))
}

/// `5s` or `5s..8s`: the first worker exits, and starts again.
pub fn loss(text: &str) -> Result<Loss, Failure> {
    let bad = || Failure::usage(format!("{text:?} is not a loss; write it like 5s or 5s..8s"));
    let (at, back) = match text.split_once("..") {
        Some((at, back)) => (at, nanos(back).ok_or_else(bad)?),
        None => (text, u64::MAX),
    };
    let at = nanos(at).ok_or_else(bad)?;
    if back <= at { Err(bad()) } else { Ok(Loss { worker: 0, at, back }) }
}

fn nanos(text: &str) -> Option<u64> {
    Millis::from_str(text).ok().map(|time| time.0.as_nanos() as u64)
}
