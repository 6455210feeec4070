//! One pass over an image, and the planes of samples that it fills: what files in one pass and files that
//! get finer pass by pass have in common. It decodes nothing.
//!
//! Samples lie in strips of eight rows. Inside a strip the eight samples of a column lie side by
//! side: what a block of a JPEG is decoded to, and what the horizontal pass of a resize reads, both with
//! eight rows at once and without ever turning the image around.

use std::ops::Range;

use super::bits::Bits;
use super::error::{DAMAGED, JpegError};
use super::markers::{JpegFrame, ScanHeader, Tables};

/// The samples of one component in the units that are needed.
#[derive(Debug, Default)]
pub(super) struct Plane {
    /// Strip by strip.
    pub columns: Vec<Column>,
    /// Columns in a strip.
    pub width: usize,
    /// The first column and strip that are here.
    pub first: (usize, usize),
}

/// The units that are needed.
#[derive(Clone, Debug)]
pub(super) struct Units {
    pub across: Range<usize>,
    pub down: Range<usize>,
}

impl Plane {
    pub(super) fn clear(&mut self, frame: &JpegFrame, blocks: (usize, usize), units: &Units) {
        debug_assert!(units.across.end <= frame.units().0);
        self.width = units.across.len() * blocks.0 * 8;
        self.first = (units.across.start * blocks.0 * 8, units.down.start * blocks.1);
        self.columns.clear();
        self.columns.resize(self.width * units.down.len() * blocks.1, [128; 8]);
    }

    /// The samples of a block, by its place in the image; `None` outside of the units.
    #[inline(always)]
    pub(super) fn block(&mut self, across: usize, down: usize) -> Option<&mut [Column; 8]> {
        let x = (across * 8).checked_sub(self.first.0).filter(|x| *x < self.width)?;
        let start = down.checked_sub(self.first.1)? * self.width + x;
        self.columns.get_mut(start..)?.first_chunk_mut()
    }
}

/// One pass over the image.
pub(super) struct Pass<'a> {
    pub(super) data: &'a [u8],
    pub(super) tables: &'a Tables,
    pub(super) frame: &'a JpegFrame,
    pub(super) scan: &'a ScanHeader,
}

/// Where restarts are in a pass.
pub(super) struct Restarts {
    interval: usize,
    left: usize,
}

impl Restarts {
    /// Whether the next unit begins anew.
    #[inline(always)]
    pub(super) fn next(&mut self, bits: &mut Bits<'_>) -> Result<bool, JpegError> {
        if self.interval == 0 {
            return Ok(false);
        }
        if self.left > 0 {
            self.left -= 1;
            return Ok(false);
        }
        self.left = self.interval - 1;
        if bits.is_short() || !bits.restart() { Err(DAMAGED) } else { Ok(true) }
    }
}

impl Pass<'_> {
    pub(super) fn restarts(&self) -> Restarts {
        let interval = self.tables.restart_interval;
        Restarts { interval, left: interval }
    }

    /// The blocks of a component, across and down, of a scan that has no other.
    pub(super) fn blocks_alone(&self, place: usize) -> (usize, usize) {
        let (width, height) = self.frame.samples(&self.frame.components[place]);
        (width.div_ceil(8), height.div_ceil(8))
    }
}

/// Rows of a strip.
pub const ROWS: usize = 8;

/// Eight rows of one column.
pub type Column = [u8; ROWS];

/// The part of an image that is needed, in pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Columns.
    pub x: Range<usize>,
    /// Rows.
    pub y: Range<usize>,
}

impl Window {
    /// The strips that its rows lie in.
    #[must_use]
    pub fn strips(&self) -> Range<usize> {
        self.y.start / ROWS..self.y.end.div_ceil(ROWS)
    }
}

/// One strip of a window: a list of columns per channel.
pub type Strip = [Vec<Column>; 3];

/// An image that is read strip by strip.
pub trait StripSource {
    /// 3 for red, green and blue, 1 where they are equal.
    fn channels(&self) -> usize;

    /// Writes the columns of the window in a strip of the image. Rows outside of the window hold anything.
    fn read(&self, strip: usize, columns: Range<usize>, out: &mut Strip);
}
