//! Items that are padded to a common length: which lengths may share a batch, and what is wasted.
//!
//! Lengths of one half octave form a group; a batch that has room left may borrow from the group of
//! the next shorter lengths while at most a fifth of it is padding. Pure arithmetic, used only
//! where items are padded.

use crate::config::{Config, Measure};
use crate::request::Request;

/// The most that a batch may grow by padding for the sake of borrowed items: 5/4 of what is real.
const GROWTH: (u128, u128) = (5, 4);

/// The first 64 binary digits of the square root of 2.
const ROOT: u64 = 0xB504_F333_F9DE_6484;

/// What a batch costs without and with padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    /// Without padding.
    pub real: u64,
    /// As it is run: every item as long as the longest.
    pub padded: u64,
}

impl Padding {
    /// The share that is padding.
    #[must_use]
    pub fn waste(&self) -> f64 {
        self.padded.saturating_sub(self.real) as f64 / self.padded.max(1) as f64
    }
}

/// The sums of a padded batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix {
    pub(crate) items: u64,
    longest: u64,
    real: u128,
}

impl Mix {
    pub(crate) fn of<'a>(members: impl Iterator<Item = &'a Request>) -> Self {
        members.fold(Self::default(), |mix, request| mix.with(request.items, request.cost))
    }

    #[must_use]
    pub(crate) fn with(self, items: u32, cost: u64) -> Self {
        Self {
            items: self.items + u64::from(items),
            longest: self.longest.max(length(items, cost)),
            real: self.real + u128::from(cost),
        }
    }

    /// Whether so little of it is padding that it may hold borrowed items.
    pub(crate) fn wastes_little(self) -> bool {
        let (most, of) = GROWTH;
        self.padded().saturating_mul(of) <= self.real.saturating_mul(most)
    }

    /// What its time grows with: the lengths of a half octave take as long as its longest.
    pub(crate) fn size(self) -> u64 {
        self.items.saturating_mul(ceiling(class(self.longest)))
    }

    pub(crate) fn padding(self) -> Padding {
        let whole = |cost: u128| u64::try_from(cost).unwrap_or(u64::MAX);
        Padding { real: whole(self.real), padded: whole(self.padded()) }
    }

    /// Never less than what is real, also where the length of a request is unknown.
    fn padded(self) -> u128 {
        (u128::from(self.items) * u128::from(self.longest)).max(self.real)
    }
}

impl Config {
    /// The half octave whose group a request belongs to; one for all where nothing is padded.
    pub(crate) fn class(&self, request: &Request) -> u8 {
        match self.measure {
            Measure::Items | Measure::Packed => 0,
            Measure::Padded => class(length(request.items, request.cost)),
        }
    }

    /// What a batch of this half octave weighs against [`Config::max_cost`].
    pub(crate) fn weight(&self, class: u8, items: u64, cost: u128) -> u128 {
        match self.measure {
            Measure::Items | Measure::Packed => cost,
            Measure::Padded => u128::from(items) * u128::from(ceiling(class)),
        }
    }
}

/// What a request adds to the size of a batch.
pub(crate) fn size_of(items: u32, cost: u64, measure: Measure) -> u32 {
    let size = match measure {
        Measure::Items => return items.max(1),
        Measure::Packed => cost,
        Measure::Padded => Mix::default().with(items, cost).size(),
    };
    u32::try_from(size.max(1)).unwrap_or(u32::MAX)
}

/// The length of a request's items.
fn length(items: u32, cost: u64) -> u64 {
    cost.div_ceil(items.max(1).into()).max(1)
}

/// The half octave in which a length lies, from 0 for a length of 1.
fn class(length: u64) -> u8 {
    let square = u128::from(length.max(1)).pow(2);
    (u128::BITS - (square - 1).leading_zeros()) as u8
}

/// The longest length of a half octave: the square root of 2 to the power of its number.
fn ceiling(class: u8) -> u64 {
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
        lengths.iter().fold(Mix::default(), |mix, &length| mix.with(1, length))
    }

    fn borrows(mix: Mix, items: u32, cost: u64) -> bool {
        mix.with(items, cost).wastes_little()
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
        assert!(borrows(mix(&[128, 128]), 1, 90));
        assert!(borrows(mix(&[100]), 1, 60), "200 for 160 is just allowed");
        assert!(!borrows(mix(&[100]), 1, 59));
        assert!(!borrows(mix(&[128, 91, 91]), 1, 65), "padded within its own class already");
        assert!(borrows(mix(&[128; 7]), 1, 65) && !borrows(mix(&[128; 7]), 6, 6 * 65));
    }

    #[test]
    fn what_is_padded_is_items_times_the_longest() {
        let mix = mix(&[100, 80]).with(2, 2 * 90);
        assert_eq!(mix.padding(), Padding { real: 360, padded: 400 });
        assert_eq!(mix.size(), 4 * 128);
        assert_eq!([mix.padding().waste(), Padding::default().waste()], [0.1, 0.0]);
        let odd = Mix::default().with(3, 0);
        assert_eq!(odd.padding(), Padding { real: 0, padded: 3 });
        let huge = Mix::default().with(1, u64::MAX).with(1, u64::MAX);
        assert_eq!(huge.padding(), Padding { real: u64::MAX, padded: u64::MAX });
    }

    #[test]
    fn a_request_weighs_its_items_its_cost_or_its_padded_lengths() {
        let size = |cost, measure| size_of(3, cost, measure);
        assert_eq!(size(300, Measure::Items), 3);
        assert_eq!(size(300, Measure::Packed), 300);
        assert_eq!(size(300, Measure::Padded), 3 * 128);
        assert_eq!(size(270, Measure::Padded), 3 * 90);
        assert_eq!(size_of(1, 0, Measure::Padded), 1);
    }

    #[test]
    fn a_group_weighs_its_items_as_long_as_its_longest_may_be() {
        let config = |measure| Config { measure, ..Config::default() };
        assert_eq!(config(Measure::Packed).weight(0, 3, 270), 270);
        assert_eq!(config(Measure::Padded).weight(class(90), 3, 250), 270);
        let classes = [Measure::Items, Measure::Padded].map(|it| config(it).class(&of(3, 270)));
        assert_eq!(classes, [0, 13]);
    }
}
