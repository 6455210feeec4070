//! The sizes of which the service model keeps a cell: all up to 64, then steps of a quarter.
//!
//! Only arithmetic: it knows neither times nor batches.

/// Up to here every size has its own cell.
pub(crate) const DENSE: u64 = 64;
/// Cells; the last one stands for all sizes from about 2^31 on.
pub(crate) const CELLS: usize = 144;

/// The size each cell stands for.
pub(crate) static SIZES: [u64; CELLS] = sizes();

const fn sizes() -> [u64; CELLS] {
    let mut sizes = [0; CELLS];
    let mut at = 0;
    while at < CELLS {
        sizes[at] = if at < DENSE as usize { at as u64 + 1 } else { sizes[at - 1] * 5 / 4 };
        at += 1;
    }
    sizes
}

/// The cell of the largest size that is not above this one. No size is below 1.
pub(crate) fn floor(size: u64) -> usize {
    if size <= DENSE {
        return size.max(1) as usize - 1;
    }
    SIZES.partition_point(|&it| it <= size) - 1
}

/// The cell nearest to a size.
pub(crate) fn nearest(size: u64) -> usize {
    let at = floor(size);
    let above = SIZES.get(at + 1).is_some_and(|&next| next - size < size - SIZES[at]);
    at + usize::from(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sizes_have_their_own_cell_and_large_ones_the_nearest() {
        for size in 1..=64 {
            assert_eq!(SIZES[floor(size)], size);
            assert_eq!(nearest(size), floor(size));
        }
        assert_eq!((SIZES[64], SIZES[65]), (80, 100));
        assert_eq!((floor(99), nearest(99), nearest(82)), (64, 65, 64));
        assert_eq!(nearest(u64::MAX), CELLS - 1);
        assert!(SIZES[CELLS - 1] > 1 << 31);
    }
}
