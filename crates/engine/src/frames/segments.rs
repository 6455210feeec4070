//! Pieces of frames that lie apart in memory and are written together.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Pieces of a frame, written with as few system calls as the kernel allows.
#[derive(Default)]
pub(super) struct Segments(pub(super) VecDeque<Bytes>);

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |first| first)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let count = slices.len().min(self.0.len());
        for (slice, piece) in slices.iter_mut().zip(&self.0) {
            *slice = IoSlice::new(piece);
        }
        count
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.0.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.0.pop_front();
        }
    }
}
