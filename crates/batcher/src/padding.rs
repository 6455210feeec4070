//! Items that are padded to a common length: which lengths may meet in a batch, and what it wastes.
//!
//! Lengths of one half octave share a lane; a batch that has room left may borrow from the lane of
//! the next shorter lengths while no more than a fifth of it is padding. Both kinds of lanes act by
//! these rules. Pure arithmetic: it never looks at who waits, and where nothing is padded it is
//! never asked.

use crate::config::{Config, Measure};
use crate::request::Request;

/// The most that a batch may grow by padding for the sake of borrowed items: 5/4 of what is real.
const GROWTH: (u128, u128) = (5, 4);

/// The first 64 binary digits of the square root of 2.
const ROOT: u64 = 0xB504_F333_F9DE_6484;

/// What a batch costs, and what it costs as it is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    /// Of its items as they came.
    pub real: u64,
    /// Of as many items as it is run with, each as long as the longest.
    pub padded: u64,
}

impl Padding {
    /// The share of it that is padding.
    #[must_use]
    pub fn waste(&self) -> f64 {
        self.padded.saturating_sub(self.real) as f64 / self.padded.max(1) as f64
    }
}

/// A padded batch as far as it is put together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix {
    items: u64,
    longest: u64,
    real: u128,
}

impl Mix {
    pub(crate) fn of<'a>(members: impl Iterator<Item = &'a Request>) -> Self {
        members.fold(Self::default(), Self::with)
    }

    #[must_use]
    pub(crate) fn with(self, request: &Request) -> Self {
        Self {
            items: self.items + u64::from(request.items),
            longest: self.longest.max(length(request)),
            real: self.real + u128::from(request.cost),
        }
    }

    pub(crate) fn items(self) -> u64 {
        self.items
    }

    /// Whether this one may be borrowed from the shorter neighbours.
    pub(crate) fn borrows(self, request: &Request) -> bool {
        let grown = self.with(request);
        let (most, of) = GROWTH;
        grown.padded().saturating_mul(of) <= grown.real.saturating_mul(most)
    }

    /// What its time grows with: the lengths of a half octave take as long as its longest.
    pub(crate) fn size(self) -> u64 {
        self.items.saturating_mul(ceiling(class(self.longest)))
    }

    pub(crate) fn padding(self) -> Padding {
        let whole = |cost: u128| u64::try_from(cost).unwrap_or(u64::MAX);
        Padding { real: whole(self.real), padded: whole(self.padded()) }
    }

    /// Never less than what is real, also where a request says nothing about its length.
    fn padded(self) -> u128 {
        (u128::from(self.items) * u128::from(self.longest)).max(self.real)
    }
}

impl Config {
    /// The half octave whose lane a request belongs to; one for all where nothing is padded.
    pub(crate) fn class(&self, request: &Request) -> u8 {
        if self.measure == Measure::Padded { class(length(request)) } else { 0 }
    }

    /// What a batch of this lane weighs, of [`Config::max_cost`].
    pub(crate) fn weight(&self, class: u8, items: u64, cost: u128) -> u128 {
        match self.measure {
            Measure::Items | Measure::Packed => cost,
            Measure::Padded => u128::from(items) * u128::from(ceiling(class)),
        }
    }
}

/// The length of a request's items.
pub(crate) fn length(request: &Request) -> u64 {
    request.cost.div_ceil(request.items.max(1).into()).max(1)
}

/// The half octave in which a length lies, from 0 for a length of 1.
pub(crate) fn class(length: u64) -> u8 {
    let square = u128::from(length.max(1)).pow(2);
    (u128::BITS - (square - 1).leading_zeros()) as u8
}

/// The longest length of a half octave: the square root of 2 to the power of its number.
pub(crate) fn ceiling(class: u8) -> u64 {
    let octave = u32::from(class / 2);
    match class % 2 {
        _ if octave > 63 => u64::MAX,
        0 => 1 << octave,
        _ => ROOT >> (63 - octave),
    }
}

/// The half octave of the next shorter lengths. No whole number lies in the first two odd ones.
pub(crate) fn shorter(class: u8) -> Option<u8> {
    match class {
        0 | 1 => None,
        2 | 4 => Some(class - 2),
        _ => Some(class - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestId;

    fn of(items: u32, cost: u64) -> Request {
        Request { items, cost, ..Request::new(RequestId::new(0, 0)) }
    }

    fn mix(lengths: &[u64]) -> Mix {
        lengths.iter().fold(Mix::default(), |mix, &length| mix.with(&of(1, length)))
    }

    #[test]
    fn a_class_is_half_an_octave_wide() {
        let ceilings: Vec<_> = (4..16).map(ceiling).collect();
        assert_eq!(ceilings, [4, 5, 8, 11, 16, 22, 32, 45, 64, 90, 128, 181]);
        for length in (1..5000).chain([u64::MAX / 2, u64::MAX - 1, u64::MAX]) {
            let class = class(length);
            assert!(length <= ceiling(class), "{length} in {class}");
            assert!(class == 0 || length > ceiling(class - 1), "{length} in {class}");
        }
    }

    #[test]
    fn the_shorter_neighbour_is_the_class_of_the_next_shorter_length() {
        for longest in 1..5000 {
            let class_here = class(longest);
            let next = (1..longest).rev().map(class).find(|&it| it != class_here);
            assert_eq!(shorter(class_here), next, "{longest}");
        }
    }

    #[test]
    fn shorter_ones_are_borrowed_while_a_fifth_of_the_batch_is_padding_at_most() {
        assert!(mix(&[128, 128]).borrows(&of(1, 90)));
        assert!(mix(&[100]).borrows(&of(1, 60)), "200 for 160 is just in the measure");
        assert!(!mix(&[100]).borrows(&of(1, 59)));
        assert!(!mix(&[128, 91, 91]).borrows(&of(1, 65)), "padded within its own class already");
        assert!(mix(&[128; 7]).borrows(&of(1, 65)) && !mix(&[128; 7]).borrows(&of(6, 6 * 65)));
    }

    #[test]
    fn what_is_padded_is_items_times_the_longest() {
        let mix = mix(&[100, 80]).with(&of(2, 2 * 90));
        assert_eq!(mix.padding(), Padding { real: 360, padded: 400 });
        assert_eq!(mix.size(), 4 * 128);
        assert_eq!([mix.padding().waste(), Padding::default().waste()], [0.1, 0.0]);
        let odd = Mix::default().with(&of(3, 0));
        assert_eq!(odd.padding(), Padding { real: 0, padded: 3 });
        let huge = Mix::default().with(&of(1, u64::MAX)).with(&of(1, u64::MAX));
        assert_eq!(huge.padding(), Padding { real: u64::MAX, padded: u64::MAX });
    }

    #[test]
    fn a_lane_weighs_its_items_as_long_as_its_longest_may_be() {
        let config = |measure| Config { measure, ..Config::default() };
        assert_eq!(config(Measure::Packed).weight(0, 3, 270), 270);
        assert_eq!(config(Measure::Padded).weight(class(90), 3, 250), 270);
        let classes = [Measure::Items, Measure::Padded].map(|it| config(it).class(&of(3, 270)));
        assert_eq!(classes, [0, 13]);
    }
}
