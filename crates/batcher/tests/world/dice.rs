//! Chance that can be repeated: SplitMix64, a few lines, so that a seed means the same story on
//! every machine and in every year.

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.roll(100) < chance
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize].clone()
    }
}
