//! A bound on what is read for one row, for parsers that would otherwise take in a whole file after
//! a quote that is never closed.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::infer::row::ROW_BYTES_MAX;

/// How much was read since the last row; shared by the reader and the one who counts rows.
#[derive(Clone, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    /// A row is complete.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the last row had no end.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) > ROW_BYTES_MAX
    }
}

/// A reader that ends a row without end.
pub struct Limited<R> {
    inner: R,
    meter: Meter,
}

impl<R> Limited<R> {
    /// Counts on the meter.
    pub fn new(inner: R, meter: Meter) -> Self {
        Self { inner, meter }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.meter.is_over() {
            return Err(io::Error::other("a row is too long"));
        }
        let read = self.inner.read(buffer)?;
        self.meter.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: Seek> Seek for Limited<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
