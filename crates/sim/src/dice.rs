//! Chance that can be repeated: SplitMix64 and the few distributions the worlds need.
//!
//! A seed means the same story on every machine and in every year, so no library's generator is
//! used. Nothing here knows what the numbers are for.

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed always tells the same story; neighbouring seeds tell unrelated ones.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        dice.bits();
        dice
    }

    /// 64 even bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Even among 0..sides.
    pub fn below(&mut self, sides: usize) -> usize {
        (self.bits() % sides.max(1) as u64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normal with mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_tells_one_story() {
        let story =
            |seed| std::iter::repeat_with(|| 0).scan(Dice::new(seed), |d, _| Some(d.bits()));
        assert!(story(7).take(50).eq(story(7).take(50)));
        assert!(!story(7).take(50).eq(story(8).take(50)));
    }

    #[test]
    fn the_distributions_have_their_moments() {
        let mut dice = Dice::new(1);
        let n = 100_000;
        let mean = (0..n).map(|_| dice.exponential()).sum::<f64>() / f64::from(n);
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let square = (0..n).map(|_| dice.normal().powi(2)).sum::<f64>() / f64::from(n);
        assert!((square - 1.0).abs() < 0.02, "{square}");
    }
}
