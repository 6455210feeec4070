//! Sizes: what an image is resized to, and what of it is kept.

use serde::Deserialize;

use super::super::resample::{Interpolation, Taps};

/// A size on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    /// Of the shorter side, or of both for a crop.
    Side(usize),
    /// Height and width.
    Both([usize; 2]),
}

impl Size {
    /// Height and width, where both are known.
    pub(super) fn both(self) -> Option<(usize, usize)> {
        match self {
            Self::Side(_) => None,
            Self::Both([height, width]) => Some((height, width)),
        }
    }

    /// Height and width of a crop.
    pub(super) fn square(self) -> (usize, usize) {
        match self {
            Self::Side(side) => (side, side),
            Self::Both([height, width]) => (height, width),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        let (height, width) = self.square();
        height == 0 || width == 0
    }

    /// The width and height that an image is resized to.
    pub(super) fn resized(self, width: usize, height: usize) -> (usize, usize) {
        let long = |side: usize, long: usize, short: usize| {
            // As Python divides; 2^53 is far away.
            ((side * long) as f64 / short as f64) as usize
        };
        match self {
            Self::Both([height, width]) => (width, height),
            Self::Side(side) if width <= height => (side, long(side, height, width)),
            Self::Side(side) => (long(side, width, height), side),
        }
    }
}

/// One direction: the samples that are kept, and where they stand in the tensor.
#[derive(Debug)]
pub(super) struct Axis {
    pub taps: Taps,
    /// Samples of the tensor before the image begins.
    pub offset: usize,
    size: usize,
}

impl Axis {
    /// The middle `size` of `to` samples that `from` are resized to, as torchvision's center crop has it.
    pub(super) fn new(by: Interpolation, from: usize, to: usize, size: usize) -> Self {
        let (kept, offset) = if to < size {
            (0..to, (size - to) / 2)
        } else {
            // Halves go to the even neighbour, as in Python.
            let start = ((to - size) as f64 / 2.0).round_ties_even() as usize;
            (start..start + size, 0)
        };
        Self { taps: Taps::new(by, from, to, kept), offset, size }
    }

    /// Whether the image is smaller than the tensor.
    pub(super) fn is_padded(&self) -> bool {
        self.taps.len() < self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_side_gets_the_size_and_the_longer_one_is_cut_down_to_whole_pixels() {
        assert_eq!(Size::Side(256).resized(640, 427), (383, 256));
        assert_eq!(Size::Side(256).resized(427, 640), (256, 383));
        assert_eq!(Size::Side(256).resized(300, 300), (256, 256));
        assert_eq!(Size::Both([10, 20]).resized(640, 427), (20, 10));
    }

    #[test]
    fn the_middle_is_kept_and_halves_go_to_the_even_neighbour() {
        let check = |to: usize, size: usize, kept: std::ops::Range<usize>, offset: usize| {
            let axis = Axis::new(Interpolation::Bilinear, to, to, size);
            let taps = Taps::new(Interpolation::Bilinear, to, to, kept);
            assert_eq!((&axis.taps, axis.offset), (&taps, offset), "{size} of {to}");
            assert_eq!(axis.is_padded(), to < size);
        };
        check(8, 4, 2..6, 0);
        check(7, 4, 2..6, 0);
        check(9, 4, 2..6, 0);
        check(5, 8, 0..5, 1);
    }
}
