//! The highest rate at which nearly all requests are on time, by halving an interval.

/// The highest rate that `good` accepts, to within `precision` of it; 0 if none is found.
///
/// `good` is expected to change from yes to no once; where it wavers, one of the changes is found.
pub fn highest(guess: f64, precision: f64, mut good: impl FnMut(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, guess);
    while high < guess * 64.0 && good(high) {
        low = high;
        high *= 1.5;
    }
    while high - low > precision * high && high > guess * 1e-3 {
        let middle = 0.5 * (low + high);
        if good(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_is_found_from_below_and_above() {
        for guess in [0.3, 3.0, 30.0] {
            let found = highest(guess, 0.001, |rate| rate <= 3.7);
            assert!((3.69..=3.7).contains(&found), "{guess}: {found}");
        }
        assert!(highest(1.0, 0.001, |_| false) == 0.0);
    }
}
