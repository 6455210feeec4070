//! Open arrival processes: requests come whether or not earlier ones were answered.
//!
//! Every process is made for a mean rate from the same chance, so that a search over rates plays
//! the same story faster or slower. What the requests want (deadline, tenant) is added by `demand`.

use jitney_batcher::Nanos;

use crate::dice::Dice;

/// An arrival process, without its rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Independent requests.
    Poisson,
    /// Every gap the same.
    Even,
    /// A Poisson process that switches between two rates.
    Bursts {
        /// How many times faster the fast state is than the slow one.
        ratio: f64,
        /// Mean time in each state, in seconds.
        dwell: f64,
    },
    /// A Poisson process that is switched off half of the time.
    OnOff {
        /// Mean time in each state, in seconds.
        dwell: f64,
    },
    /// Gaps with this squared coefficient of variation (two exponentials, balanced means).
    Hyper {
        /// Variance over squared mean of the gaps; at least 1.
        cv2: f64,
    },
    /// A clock that is never quite right: each request is off its time by up to half of this share
    /// of a gap, to either side.
    Jittered {
        /// At most 1.
        share: f64,
    },
    /// Several at the same moment: groups of independent clients' calls, of geometric size.
    Groups {
        /// Mean size of a group; at least 1.
        mean: f64,
    },
    /// Independent events, each of which makes several ask within a while: bursts without a rhythm.
    Clusters {
        /// Mean number that an event makes ask; at least 1.
        mean: f64,
        /// Mean time from the event to each of them, in seconds.
        spread: f64,
    },
    /// A Poisson process whose rate swings like the day, as a sine does.
    Wave {
        /// How far it swings, as a share of the mean rate; below 1.
        depth: f64,
        /// Length of a day in seconds.
        period: f64,
    },
    /// Recorded times in seconds from the start, sorted; played at the speed that gives the rate
    /// and again from the start when they end.
    Recorded(Vec<f64>),
}

impl Arrivals {
    /// The times of `count` requests at `rate` per second.
    #[must_use]
    pub fn times(&self, rate: f64, count: usize, seed: u64) -> Vec<Nanos> {
        let mut dice = Dice::new(seed);
        let seconds: Vec<f64> = match self {
            Self::Poisson => gaps(count, || dice.exponential() / rate),
            Self::Even => gaps(count, || 1.0 / rate),
            Self::Bursts { ratio, dwell } => {
                let slow = 2.0 * rate / (1.0 + ratio);
                switched([slow, slow * ratio], *dwell, count, &mut dice)
            }
            Self::OnOff { dwell } => switched([0.0, 2.0 * rate], *dwell, count, &mut dice),
            Self::Hyper { cv2 } => {
                let share = 0.5 * (1.0 + ((cv2 - 1.0).max(0.0) / (cv2 + 1.0)).sqrt());
                gaps(count, || {
                    let branch = if dice.chance(share) { share } else { 1.0 - share };
                    dice.exponential() / (2.0 * branch * rate)
                })
            }
            Self::Jittered { share } => (0..count)
                .map(|at| (at as f64 + 0.5 + share * (dice.unit() - 0.5)) / rate)
                .collect(),
            Self::Groups { mean } => gaps(count, || match dice.chance(1.0 / mean) {
                true => dice.exponential() * mean / rate,
                false => 0.0,
            }),
            Self::Clusters { mean, spread } => clusters(*mean, *spread, rate, count, &mut dice),
            Self::Wave { depth, period } => wave(*depth, *period, rate, count, &mut dice),
            Self::Recorded(times) => recorded(times, rate, count),
        };
        seconds.into_iter().map(|at| (at * 1e9) as Nanos).collect()
    }
}

fn gaps(count: usize, mut gap: impl FnMut() -> f64) -> Vec<f64> {
    let mut now = 0.0;
    let mut next = || {
        now += gap();
        now
    };
    (0..count).map(|_| next()).collect()
}

/// A Poisson process whose rate switches between two values after exponential times.
fn switched(rates: [f64; 2], dwell: f64, count: usize, dice: &mut Dice) -> Vec<f64> {
    let (mut now, mut state) = (0.0, 0);
    let mut left = dwell * dice.exponential();
    let mut times = Vec::with_capacity(count);
    while times.len() < count {
        let gap = dice.exponential() / rates[state];
        if gap < left {
            now += gap;
            left -= gap;
            times.push(now);
        } else {
            now += left;
            left = dwell * dice.exponential();
            state = 1 - state;
        }
    }
    times
}

/// Events come independently; those they make ask are mixed with those of the events around.
fn clusters(mean: f64, spread: f64, rate: f64, count: usize, dice: &mut Dice) -> Vec<f64> {
    let (mut event, mut times) = (0.0, Vec::with_capacity(count));
    while times.len() < count {
        event += dice.exponential() * mean / rate;
        times.push(event + spread * dice.exponential());
        while !dice.chance(1.0 / mean) {
            times.push(event + spread * dice.exponential());
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    times.truncate(count);
    times
}

/// A Poisson process of the highest rate, of which the part is kept that the hour asks for.
fn wave(depth: f64, period: f64, rate: f64, count: usize, dice: &mut Dice) -> Vec<f64> {
    let (mut now, mut times) = (0.0, Vec::with_capacity(count));
    while times.len() < count {
        now += dice.exponential() / (rate * (1.0 + depth));
        let hour = (std::f64::consts::TAU * now / period).sin();
        if dice.chance((1.0 + depth * hour) / (1.0 + depth)) {
            times.push(now);
        }
    }
    times
}

fn recorded(times: &[f64], rate: f64, count: usize) -> Vec<f64> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Vec::new() };
    let span = (last - first).max(1e-9) * times.len() as f64 / (times.len() as f64 - 1.0).max(1.0);
    let speed = rate * span / times.len() as f64;
    let played = |at: usize| span * (at / times.len()) as f64 + times[at % times.len()] - first;
    (0..count).map(|at| played(at) / speed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_keeps_its_mean_rate() {
        let recording = vec![0.0, 0.1, 0.15, 3.0, 3.1];
        let processes = [
            Arrivals::Poisson,
            Arrivals::Even,
            Arrivals::Bursts { ratio: 4.0, dwell: 0.05 },
            Arrivals::OnOff { dwell: 0.05 },
            Arrivals::Hyper { cv2: 4.0 },
            Arrivals::Jittered { share: 1.0 },
            Arrivals::Groups { mean: 5.0 },
            Arrivals::Clusters { mean: 10.0, spread: 0.02 },
            Arrivals::Wave { depth: 0.8, period: 1.0 },
            Arrivals::Recorded(recording),
        ];
        for process in processes {
            let times = process.times(1000.0, 200_000, 3);
            assert!(times.is_sorted(), "{process:?}");
            let rate = times.len() as f64 / (*times.last().expect("many") as f64 / 1e9);
            assert!((rate / 1000.0 - 1.0).abs() < 0.03, "{process:?}: {rate}");
        }
    }

    #[test]
    fn gaps_of_a_hyper_process_vary_as_asked() {
        let times = Arrivals::Hyper { cv2: 4.0 }.times(1000.0, 200_000, 3);
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let variance = gaps.iter().map(|gap| (gap - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance - 4.0).abs() < 0.4, "{variance}");
    }
}
