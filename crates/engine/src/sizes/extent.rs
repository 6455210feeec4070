//! How large one value is: the dimensions of an array, or the length of a text or list as the only one.

/// Dimensions that are looked at; those behind them count for nothing.
pub(super) const DIMS_MAX: usize = 8;

/// The dimensions of a value, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    sizes: [u64; DIMS_MAX],
    rank: usize,
    /// Whether it came as an array, whatever its parameter's hint says.
    pub(super) is_array: bool,
}

impl Extent {
    /// Of a value with one dimension.
    pub(super) fn of_length(length: u64) -> Self {
        let mut extent = Self::default();
        extent.set(0, length);
        extent
    }

    /// Of an array.
    pub(super) fn of_array(dims: impl Iterator<Item = u64>) -> Self {
        let mut extent = Self { is_array: true, ..Self::default() };
        dims.enumerate().for_each(|(dim, size)| extent.set(dim, size));
        extent
    }

    /// Notes the size of a dimension.
    pub(super) fn set(&mut self, dim: usize, size: u64) {
        self.rank = self.rank.max(dim + 1);
        if let Some(known) = self.sizes.get_mut(dim) {
            *known = size;
        }
    }

    /// The size of a dimension, from the end if it is negative.
    pub(super) fn dim(&self, dim: i32) -> Option<u64> {
        let from_end = dim < 0;
        let distance = usize::try_from(dim.unsigned_abs()).ok()?;
        let at = if from_end { self.rank.checked_sub(distance)? } else { distance };
        self.sizes.get(at).copied().filter(|_| at < self.rank)
    }
}
