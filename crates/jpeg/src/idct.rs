//! The inverse cosine transform, equal to the "slow integer" one of libjpeg bit for bit.
//!
//! Each of its two passes is exact whole-number arithmetic with one rounding at the end, hence the first
//! one is done coefficient by coefficient as they are decoded: most are zero. The second works on
//! eight rows at once.

use super::pass::{Column, ROWS};

type EightRows = [i32; ROWS];

const CONST_BITS: i32 = 13;
const PASS1_BITS: i32 = 2;

/// What coefficient `v` of a column adds to each of its eight rows.
const WEIGHTS: [EightRows; 8] = weights();

const fn weights() -> [EightRows; 8] {
    let mut all = [[0; 8]; 8];
    let mut frequency = 0;
    while frequency < 8 {
        let mut unit = [0; 8];
        unit[frequency] = 1;
        all[frequency] = one(unit);
        frequency += 1;
    }
    all
}

/// The transform of one row or column before it is rounded.
const fn one(c: [i32; 8]) -> [i32; 8] {
    let z1 = (c[2] + c[6]) * 4433;
    let (t2, t3) = (z1 - c[6] * 15137, z1 + c[2] * 6270);
    let (t0, t1) = ((c[0] + c[4]) << CONST_BITS, (c[0] - c[4]) << CONST_BITS);
    let even = [t0 + t3, t1 + t2, t1 - t2, t0 - t3];
    let (z1, z2, z3, z4) = (c[7] + c[1], c[5] + c[3], c[7] + c[3], c[5] + c[1]);
    let z5 = (z3 + z4) * 9633;
    let (z1, z2) = (-z1 * 7373, -z2 * 20995);
    let (z3, z4) = (z5 - z3 * 16069, z5 - z4 * 3196);
    let odd = [
        c[1] * 12299 + z1 + z4,
        c[3] * 25172 + z2 + z3,
        c[5] * 16819 + z2 + z4,
        c[7] * 2446 + z1 + z3,
    ];
    [
        even[0] + odd[0],
        even[1] + odd[1],
        even[2] + odd[2],
        even[3] + odd[3],
        even[3] - odd[3],
        even[2] - odd[2],
        even[1] - odd[1],
        even[0] - odd[0],
    ]
}

/// A block while its coefficients come in.
#[derive(Debug)]
pub(super) struct Block {
    /// By horizontal frequency: eight rows.
    sums: [EightRows; 8],
    first: i32,
    /// A bit for each horizontal frequency that has something other than the very first coefficient.
    touched: u32,
}

impl Block {
    #[inline(always)]
    pub(super) fn new(first: i32) -> Self {
        Self { sums: [[0; 8]; 8], first, touched: 0 }
    }

    /// Adds a coefficient at this place of the natural order.
    #[inline(always)]
    pub(super) fn add(&mut self, place: usize, coefficient: i32) {
        let (across, down) = (place & 7, (place >> 3) & 7);
        let sums = &mut self.sums[across];
        for (sum, weight) in sums.iter_mut().zip(&WEIGHTS[down]) {
            *sum = sum.wrapping_add(coefficient.wrapping_mul(*weight));
        }
        self.touched |= 1 << across;
    }

    /// The samples, column by column.
    #[inline(always)]
    pub(super) fn finish(mut self, out: &mut [Column; 8]) {
        if self.touched == 0 {
            let sample = ((self.first.wrapping_add(4)) >> 3).wrapping_add(128).clamp(0, 255);
            *out = [[sample as u8; ROWS]; 8];
            return;
        }
        let first = self.first << CONST_BITS;
        for sum in &mut self.sums[0] {
            *sum = sum.wrapping_add(first);
        }
        const HALF: i32 = 1 << (CONST_BITS - PASS1_BITS - 1);
        for sums in &mut self.sums {
            for sum in sums {
                *sum = sum.wrapping_add(HALF) >> (CONST_BITS - PASS1_BITS);
            }
        }
        if self.touched & 0xf0 == 0 {
            second::<4>(&self.sums, out);
        } else {
            second::<8>(&self.sums, out);
        }
    }
}

#[inline(always)]
fn map<const N: usize>(from: [&EightRows; N], with: impl Fn([i32; N]) -> i32) -> EightRows {
    std::array::from_fn(|row| with(from.map(|rows| rows[row])))
}

/// The pass along rows; only the first `USED` frequencies are there.
#[inline(always)]
fn second<const USED: usize>(c: &[EightRows; 8], out: &mut [Column; 8]) {
    const SHIFT: i32 = CONST_BITS + PASS1_BITS + 3;
    const HALF: i32 = (1 << (SHIFT - 1)) + (128 << SHIFT);
    let zero = [0; 8];
    let at = |place: usize| if place < USED { &c[place] } else { &zero };
    let t2 = map([at(2), at(6)], |[b, d]| {
        b.wrapping_add(d).wrapping_mul(4433).wrapping_sub(d.wrapping_mul(15137))
    });
    let t3 = map([at(2), at(6)], |[b, d]| {
        b.wrapping_add(d).wrapping_mul(4433).wrapping_add(b.wrapping_mul(6270))
    });
    let t0 = map([at(0), at(4)], |[a, c]| (a.wrapping_add(c) << CONST_BITS).wrapping_add(HALF));
    let t1 = map([at(0), at(4)], |[a, c]| (a.wrapping_sub(c) << CONST_BITS).wrapping_add(HALF));
    let even = [
        map([&t0, &t3], |[a, b]| a.wrapping_add(b)),
        map([&t1, &t2], |[a, b]| a.wrapping_add(b)),
        map([&t1, &t2], |[a, b]| a.wrapping_sub(b)),
        map([&t0, &t3], |[a, b]| a.wrapping_sub(b)),
    ];
    let (c1, c3, c5, c7) = (at(1), at(3), at(5), at(7));
    let z5 = map([c1, c3, c5, c7], |[a, b, c, d]| {
        a.wrapping_add(b).wrapping_add(c).wrapping_add(d).wrapping_mul(9633)
    });
    let z1 = map([c7, c1], |[a, b]| a.wrapping_add(b).wrapping_mul(7373));
    let z2 = map([c5, c3], |[a, b]| a.wrapping_add(b).wrapping_mul(20995));
    let z3 =
        map([&z5, c7, c3], |[z5, a, b]| z5.wrapping_sub(a.wrapping_add(b).wrapping_mul(16069)));
    let z4 = map([&z5, c5, c1], |[z5, a, b]| z5.wrapping_sub(a.wrapping_add(b).wrapping_mul(3196)));
    let odd = [
        map([c1, &z1, &z4], |[c, y, z]| c.wrapping_mul(12299).wrapping_sub(y).wrapping_add(z)),
        map([c3, &z2, &z3], |[c, y, z]| c.wrapping_mul(25172).wrapping_sub(y).wrapping_add(z)),
        map([c5, &z2, &z4], |[c, y, z]| c.wrapping_mul(16819).wrapping_sub(y).wrapping_add(z)),
        map([c7, &z1, &z3], |[c, y, z]| c.wrapping_mul(2446).wrapping_sub(y).wrapping_add(z)),
    ];
    for pair in 0..4 {
        let (even, odd) = (&even[pair], &odd[pair]);
        out[pair] = std::array::from_fn(|row| {
            (even[row].wrapping_add(odd[row]) >> SHIFT).clamp(0, 255) as u8
        });
        out[7 - pair] = std::array::from_fn(|row| {
            (even[row].wrapping_sub(odd[row]) >> SHIFT).clamp(0, 255) as u8
        });
    }
}
