//! What a worker held in the last ten minutes, and whether that only grows.

use std::collections::VecDeque;

const KEPT_MS: u64 = 600_000;
/// Growth is believed after this time.
const GROWTH_MS: u64 = 60_000;
/// A leak grows with the traffic, so the whole past need not be one straight line.
const WINDOWS_MS: [u64; 3] = [600_000, 240_000, 90_000];
const BYTES_PER_MINUTE_MIN: f64 = 1e6;
const FIT_MIN: f64 = 0.8;

/// Bytes at times in milliseconds.
#[derive(Debug, Default)]
pub(super) struct MemoryTrail(VecDeque<(u64, f64)>);

impl MemoryTrail {
    pub(super) fn push(&mut self, time: u64, bytes: u64) {
        self.0.push_back((time, bytes as f64));
        while self.0.pop_front_if(|(then, _)| *then + KEPT_MS < time).is_some() {}
    }

    /// Bytes per second, if memory has grown evenly for long enough, up to now.
    pub(super) fn growth(&self) -> Option<f64> {
        let (end, _) = *self.0.back()?;
        WINDOWS_MS.into_iter().find_map(|window| {
            let points = self.0.iter().filter(|(time, _)| time + window >= end);
            steady(&points.copied().collect::<Vec<_>>())
        })
    }
}

fn steady(points: &[(u64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    // None where the clock was set back.
    if last.0.saturating_sub(first.0) < GROWTH_MS {
        return None;
    }
    let (slope, fit) = trend(points)?;
    // It must have grown in the later half too: a model that fills its caches once is no leak.
    let (later, _) = trend(&points[points.len() / 2..])?;
    let even = fit >= FIT_MIN && later >= slope / 3.0;
    let much = slope * 60.0 >= BYTES_PER_MINUTE_MIN && last.1 - first.1 > first.1 * 0.02;
    (even && much).then_some(slope)
}

/// The slope of a straight line through the points, per second, and how well it fits (0 to 1).
fn trend(points: &[(u64, f64)]) -> Option<(f64, f64)> {
    let (start, _) = *points.first()?;
    let count = points.len() as f64;
    let seconds = |time: u64| time.saturating_sub(start) as f64 / 1e3;
    let mean_x = points.iter().map(|(time, _)| seconds(*time)).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, bytes)| bytes).sum::<f64>() / count;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (time, bytes) in points {
        let (x, y) = (seconds(*time) - mean_x, bytes - mean_y);
        (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
    }
    (xx > 0.0 && yy > 0.0).then(|| (xy / xx, xy * xy / (xx * yy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(seconds: u64, bytes: impl Fn(u64) -> f64) -> Option<f64> {
        let mut trail = MemoryTrail::default();
        (0..seconds).for_each(|second| trail.push(second * 1000, bytes(second) as u64));
        trail.growth()
    }

    #[test]
    fn memory_that_only_grows_is_a_leak_and_caches_that_fill_once_are_none() {
        let slope = growth(120, |second| 3e8 + second as f64 * 2e5).unwrap();
        assert!((slope - 2e5).abs() < 1.0, "{slope}");
        assert_eq!(growth(120, |second| 1e8 + second.min(40) as f64 * 1e6), None);
        let late = growth(400, |second| 5e7 + second.saturating_sub(320) as f64 * 2e6);
        assert!(late.is_some_and(|slope| slope > 1.5e6), "it began with the traffic: {late:?}");
        assert_eq!(growth(50, |second| 3e8 + second as f64 * 2e6), None);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_leak() {
        let mut trail = MemoryTrail::default();
        for time in [9_000_000, 9_100_000, 0, 100_000] {
            trail.push(time, time / 100);
            assert_eq!(trail.growth(), None);
        }
    }
}
