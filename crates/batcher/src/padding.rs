//! Items that are padded to a common length: which lengths may share a batch, and what is wasted.
//!
//! Lengths of one half octave form a group, or those that run at one of the lengths of the model. A
//! batch that has room left may borrow from the group of the next shorter lengths while at most a
//! fifth of it is padding, and fill rows that are run in any case. Pure arithmetic, used only where
//! items are padded.

use crate::config::Config;
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
    /// As it is run: every item as long as the longest, or at the sizes and lengths of the model.
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

    /// Whether this batch may borrow what makes it the other one: so little of that is padding, or
    /// the rows are run in any case.
    pub(crate) fn may_become(self, grown: Self, config: &Config) -> bool {
        let (most, of) = GROWTH;
        let padded = match config.lengths.is_empty() {
            true => grown.longest_of_all(),
            false => u128::from(grown.items) * u128::from(grown.ceiling(config)),
        };
        let little = padded.saturating_mul(of) <= grown.real.saturating_mul(most);
        let rows = |mix: Self| config.run_rows(mix.items);
        little || !config.lengths.is_empty() && rows(self) == rows(grown)
    }

    /// What its time grows with: lengths of one group take as long as its longest.
    pub(crate) fn size(self, config: &Config) -> u64 {
        config.run_rows(self.items).saturating_mul(self.ceiling(config))
    }

    /// What it weighs against [`Config::max_cost`].
    pub(crate) fn weight(self, config: &Config) -> u128 {
        u128::from(self.items.saturating_mul(self.ceiling(config)))
    }

    pub(crate) fn padding(self, config: &Config) -> Padding {
        let whole = |cost: u128| u64::try_from(cost).unwrap_or(u64::MAX);
        let padded = match config.lengths.is_empty() {
            true => self.longest_of_all(),
            false => self.real.max(self.size(config).into()),
        };
        Padding { real: whole(self.real), padded: whole(padded) }
    }

    fn ceiling(self, config: &Config) -> u64 {
        config.ceiling(config.class_of(self.longest))
    }

    /// All items as long as the longest. Never less than what is real, also where the length of a
    /// request is unknown.
    fn longest_of_all(self) -> u128 {
        (u128::from(self.items) * u128::from(self.longest)).max(self.real)
    }
}

impl Config {
    /// The class of lengths to which so many items of this cost belong.
    pub(crate) fn padded_class(&self, items: u32, cost: u64) -> u8 {
        self.class_of(length(items, cost))
    }

    /// How many items are run for so many; this many where any number is.
    pub(crate) fn run_rows(&self, items: u64) -> u64 {
        u32::try_from(items).map_or(items, |items| self.run_size(items).into())
    }

    // The classes: first the lengths of the model, then half octaves above the last of them.

    fn class_of(&self, length: u64) -> u8 {
        let Some(&last) = self.lengths.last() else { return class(length) };
        let below = self.lengths.partition_point(|&it| u64::from(it) < length);
        let above = if below < self.lengths.len() { 0 } else { class(length) - class(last.into()) };
        below as u8 + above
    }

    /// The longest length of a class.
    pub(crate) fn ceiling(&self, number: u8) -> u64 {
        let Some(&last) = self.lengths.last() else { return ceiling(number) };
        match self.lengths.get(usize::from(number)) {
            Some(&length) => length.into(),
            None => ceiling(class(last.into()) + (number - self.lengths.len() as u8)),
        }
    }

    /// The class of the next shorter lengths.
    pub(crate) fn shorter(&self, number: u8) -> Option<u8> {
        let Some(&last) = self.lengths.last() else { return shorter(number) };
        let below = number.checked_sub(1)?;
        // No length lies between the last one and its half octave where it ends that.
        let empty = usize::from(below) == self.lengths.len() && self.ceiling(below) == last.into();
        if empty { below.checked_sub(1) } else { Some(below) }
    }
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
fn shorter(class: u8) -> Option<u8> {
    match class {
        0 | 1 => None,
        2 | 4 => Some(class - 2),
        _ => Some(class - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Measure;
    use crate::request::RequestId;

    fn of(items: u32, cost: u64) -> Request {
        Request { items, cost, ..Request::new(RequestId::new(0, 0)) }
    }

    fn mix(lengths: &[u64]) -> Mix {
        lengths.iter().fold(Mix::default(), |mix, &length| mix.with(1, length))
    }

    fn padded() -> Config {
        Config { measure: Measure::Padded, max_items: 64, ..Config::default() }
    }

    fn borrows(mix: Mix, items: u32, cost: u64) -> bool {
        mix.may_become(mix.with(items, cost), &padded())
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
        assert_eq!(mix.padding(&padded()), Padding { real: 360, padded: 400 });
        assert_eq!(mix.size(&padded()), 4 * 128);
        assert_eq!([mix.padding(&padded()).waste(), Padding::default().waste()], [0.1, 0.0]);
        let odd = Mix::default().with(3, 0);
        assert_eq!(odd.padding(&padded()), Padding { real: 0, padded: 3 });
        let huge = Mix::default().with(1, u64::MAX).with(1, u64::MAX);
        assert_eq!(huge.padding(&padded()), Padding { real: u64::MAX, padded: u64::MAX });
    }

    #[test]
    fn a_request_weighs_its_items_its_cost_or_its_padded_lengths() {
        let size = |cost, measure| Config { measure, ..padded() }.size_of(3, cost);
        assert_eq!(size(300, Measure::Items), 3);
        assert_eq!(size(300, Measure::Packed), 300);
        assert_eq!(size(300, Measure::Padded), 3 * 128);
        assert_eq!(size(270, Measure::Padded), 3 * 90);
        assert_eq!(padded().size_of(1, 0), 1);
    }

    #[test]
    fn a_group_weighs_its_items_as_long_as_its_longest_may_be() {
        let config = |measure| Config { measure, ..Config::default() };
        assert_eq!(config(Measure::Packed).weight(0, 3, 270), 270);
        assert_eq!(config(Measure::Padded).weight(class(90), 3, 250), 270);
        let classes = [Measure::Items, Measure::Padded].map(|it| config(it).class(&of(3, 270)));
        assert_eq!(classes, [0, 13]);
    }
    /// A model that runs texts of 32, 64, 128 and 512 tokens, up to 64 of them.
    fn with_lengths() -> Config {
        let (lengths, sizes) = (vec![512, 32, 64, 128, 0, 64], vec![1, 4, 16, 64]);
        Config { lengths, sizes, ..padded() }.normal()
    }

    #[test]
    fn lengths_of_the_model_are_classes_and_longer_ones_half_octaves() {
        let config = with_lengths();
        assert_eq!(config.lengths, [32, 64, 128, 512]);
        let classes = [1, 32, 33, 128, 129, 512, 513, 724, 725].map(|it| config.class_of(it));
        assert_eq!(classes, [0, 0, 1, 2, 3, 3, 5, 5, 6]);
        assert_eq!([0, 3, 5, 6].map(|it| config.ceiling(it)), [32, 512, 724, 1024]);
        assert_eq!(
            [0, 1, 3, 5, 6].map(|it| config.shorter(it)),
            [None, Some(0), Some(2), Some(3), Some(5)]
        );
        let odd = Config { lengths: vec![100], ..padded() }.normal();
        assert_eq!([100, 101, 128, 129].map(|it| odd.class_of(it)), [0, 1, 1, 2]);
        assert_eq!((odd.ceiling(1), odd.shorter(1), odd.shorter(2)), (128, Some(0), Some(1)));
    }

    #[test]
    fn both_dimensions_are_run_at_the_next_larger_value() {
        let (config, batch) = (with_lengths(), mix(&[100, 80, 70, 128, 90]));
        assert_eq!((batch.size(&config), batch.weight(&config)), (16 * 128, 5 * 128));
        assert_eq!(batch.padding(&config), Padding { real: 468, padded: 16 * 128 });
        assert_eq!((config.size_of(2, 200), config.ran(2, 5 * 128)), (256, 16 * 128));
        assert_eq!(config.ran(2, 100 * 128), 100 * 128, "more than the largest size");
    }

    #[test]
    fn rows_that_are_run_in_any_case_are_filled_with_shorter_ones() {
        let config = with_lengths();
        let borrows = |mix: Mix, length| mix.may_become(mix.with(1, length), &config);
        assert!(borrows(mix(&[100; 5]), 40), "sixteen rows are run");
        assert!(!borrows(mix(&[100; 16]), 40), "64 rows would be");
        assert!(borrows(mix(&[128; 16]), 64), "little of it is padding");
    }
}
