//! Samples of an image in strips of eight rows. Inside a strip the eight samples of a column lie side by
//! side: what a block of a JPEG is decoded to, and what the horizontal pass of a resize reads, both with
//! eight rows at once and without ever turning the image around.

use std::ops::Range;

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
