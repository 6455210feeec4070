//! Decodes JPEG files: equal to libjpeg-turbo, which Pillow uses, bit for bit, and only the part of the
//! image that is needed.
//!
//! ADR 0032 says why this is not a library that others wrote. It reads untrusted bytes: it must not
//! panic, whatever they are, and it needs no dependency and no `unsafe`. Scaling and what images mean
//! are not its business.
#![forbid(unsafe_code)]

mod bits;
mod color;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod huffman;
mod idct;
mod markers;
mod pass;
mod progressive;
mod scan;

use self::color::Color;
pub use self::color::DecodedJpeg;
pub use self::error::JpegError;
pub use self::markers::orientation;
use self::markers::{Next, ScanHeader, Tables};
pub use self::pass::{Column, ROWS, Strip, StripSource, Window};
use self::pass::{Plane, Units};

/// A file whose header has been read.
#[derive(Debug)]
pub struct JpegFile<'a> {
    data: &'a [u8],
    tables: Tables,
    scan: (ScanHeader, usize),
    width: usize,
    height: usize,
}

/// The memory in which files are decoded, one after the other.
#[derive(Debug, Default)]
pub struct JpegPlanes([Plane; 4]);

impl<'a> JpegFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is no JPEG file, or one that is not decoded here.
    pub fn open(data: &'a [u8]) -> Result<Self, JpegError> {
        let mut tables = Tables::default();
        match tables.read(data, 0)? {
            Next::End => Err(JpegError::Broken("it has no image")),
            Next::Scan(scan, at) => {
                let frame = tables.frame.as_ref().ok_or(JpegError::Broken("it has no frame"))?;
                let (width, height) = (frame.width, frame.height);
                Ok(Self { data, tables, scan: (scan, at), width, height })
            }
        }
    }

    /// Its width and height.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// How the camera was held; 1 for upright.
    #[must_use]
    pub fn orientation(&self) -> u16 {
        self.tables.orientation.max(1)
    }

    /// Decodes a part of the image.
    ///
    /// # Errors
    /// The file is damaged or cut off.
    #[inline(always)]
    pub fn decode(
        &'a mut self,
        window: &Window,
        planes: &'a mut JpegPlanes,
    ) -> Result<DecodedJpeg<'a>, JpegError> {
        let color = self.color();
        let frame = self.tables.frame.as_ref().ok_or(JpegError::Broken("it has no frame"))?;
        let (unit_width, unit_height) = (8 * frame.most.0, 8 * frame.most.1);
        let (across, down) = frame.units();
        // Strips are read as a whole, and samples of chroma reach two pixels far.
        let (top, bottom) = (window.strips().start * ROWS, window.strips().end * ROWS);
        let units = Units {
            across: window.x.start.saturating_sub(2) / unit_width
                ..(window.x.end + 2).div_ceil(unit_width).min(across),
            down: top.saturating_sub(2) / unit_height..(bottom + 2).div_ceil(unit_height).min(down),
        };
        scan::decode(self.data, &mut self.tables, self.scan.clone(), &units, &mut planes.0)?;
        let frame = self.tables.frame.as_ref().ok_or(JpegError::Broken("it has no frame"))?;
        Ok(DecodedJpeg { frame, color, planes: &planes.0 })
    }

    /// What the components mean, by the rules of libjpeg.
    fn color(&self) -> Color {
        let components = self.tables.frame.as_ref().map(|frame| frame.components.as_slice());
        let adobe = self.tables.adobe;
        match components.unwrap_or_default() {
            [_] => Color::Gray,
            [_, _, _, _] if adobe.is_none_or(|transform| transform == 0) => Color::Inks,
            [_, _, _, _] => Color::LumaInks,
            [red, green, blue] if !self.tables.is_jfif => match adobe {
                Some(0) => Color::Rgb,
                None if [red.id, green.id, blue.id] == *b"RGB" => Color::Rgb,
                _ => Color::Luma,
            },
            _ => Color::Luma,
        }
    }
}
