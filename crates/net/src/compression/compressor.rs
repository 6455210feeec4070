//! Puts a body into a coding, step by step.

use std::cell::RefCell;

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

use super::Coding;

/// How much of the input a step takes.
const STEP: usize = 64 << 10;
const ZSTD_LEVEL: i32 = 1;
const GZIP_WINDOW: u8 = 15;
/// What is looked at to tell whether a body of unknown kind pays.
const SAMPLE: usize = 4 << 10;

thread_local! {
    /// One of each coding, between two bodies: making one costs more than a small body.
    static SPARE: RefCell<[Option<Compressor>; 3]> = const { RefCell::new([const { None }; 3]) };
}

enum Compressor {
    Deflate(Compress),
    Zstd(Encoder<'static>),
}

/// The body in this coding, made in steps between which other tasks run; nothing if that is no shorter.
pub async fn compress(coding: Coding, body: &[u8]) -> Option<Bytes> {
    let mut compressor = Compressor::take(coding)?;
    let mut output = Vec::with_capacity(body.len());
    compressor.expect(body.len());
    let steps = body.len().div_ceil(STEP);
    for (number, piece) in body.chunks(STEP).enumerate() {
        let last = number + 1 == steps;
        compressor.step(piece, last, &mut output)?;
        if !last {
            tokio::task::yield_now().await;
        }
    }
    compressor.give_back(coding);
    Some(Bytes::from(output))
}

/// Whether a body of unknown kind gets so much shorter that it pays: its first bytes are tried.
pub fn pays(body: &[u8]) -> bool {
    let sample = &body[..body.len().min(SAMPLE)];
    let Some(mut compressor) = Compressor::take(Coding::Zstd) else { return false };
    // A fifth must be saved.
    let mut output = Vec::with_capacity(sample.len() / 5 * 4);
    compressor.expect(sample.len());
    let fits = compressor.step(sample, true, &mut output).is_some();
    if fits {
        compressor.give_back(Coding::Zstd);
    }
    fits
}

impl Compressor {
    fn take(coding: Coding) -> Option<Self> {
        let spare = SPARE.with_borrow_mut(|spare| spare[coding as usize].take());
        spare.or_else(|| match coding {
            Coding::Zstd => Encoder::new(ZSTD_LEVEL).ok().map(Self::Zstd),
            Coding::Gzip => {
                Some(Self::Deflate(Compress::new_gzip(Compression::fast(), GZIP_WINDOW)))
            }
            Coding::Deflate => Some(Self::Deflate(Compress::new(Compression::fast(), true))),
        })
    }

    /// Keeps it for the next body. One that has not reached its end is dropped instead.
    fn give_back(mut self, coding: Coding) {
        let clean = match &mut self {
            Self::Deflate(stream) => {
                stream.reset();
                true
            }
            Self::Zstd(stream) => stream.reinit().is_ok(),
        };
        if clean {
            SPARE.with_borrow_mut(|spare| spare[coding as usize] = Some(self));
        }
    }

    /// Tells the length of what comes, which makes the tables of zstd fit it.
    fn expect(&mut self, length: usize) {
        if let Self::Zstd(stream) = self {
            // Without it the body is only compressed less well.
            let _ = stream.set_pledged_src_size(Some(length as u64));
        }
    }

    /// Adds a piece; nothing when the output is full, or cannot be made.
    fn step(&mut self, piece: &[u8], last: bool, output: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Deflate(stream) => {
                let flush = if last { FlushCompress::Finish } else { FlushCompress::None };
                let before = stream.total_in();
                let status = stream.compress_vec(piece, output, flush).ok()?;
                let taken = (stream.total_in() - before) as usize == piece.len();
                (taken && (!last || status == Status::StreamEnd)).then_some(())
            }
            Self::Zstd(stream) => {
                let start = output.len();
                let mut input = InBuffer::around(piece);
                let mut output = OutBuffer::around_pos(output, start);
                stream.run(&mut input, &mut output).ok()?;
                let left = if last { stream.finish(&mut output, true).ok()? } else { 0 };
                (input.pos() == piece.len() && left == 0).then_some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Decompressor;

    fn decoded(coding: Coding, mut input: Bytes) -> Vec<u8> {
        let (mut decompressor, mut out) = (Decompressor::new(coding), Vec::new());
        while let Some(bytes) = decompressor.step(&mut input).unwrap() {
            out.extend_from_slice(&bytes);
        }
        decompressor.finish().unwrap();
        out
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut dice = 1_u64;
        let mut roll = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 56) as u8
        };
        (0..length).map(|_| roll()).collect()
    }

    #[tokio::test]
    async fn what_goes_in_is_shorter_and_comes_out() {
        for length in [100, STEP - 1, STEP, STEP + 1, 10 * STEP] {
            let body: Vec<u8> = (0..length).map(|at| b"abc,\n"[(at * at) % 5]).collect();
            for coding in Coding::ALL {
                // The second one comes from a used one.
                for _ in 0..2 {
                    let made = compress(coding, &body).await.unwrap();
                    assert!(made.len() < length, "{coding:?}");
                    assert!(decoded(coding, made) == body, "{coding:?}, {length}");
                }
            }
        }
    }

    #[tokio::test]
    async fn what_gets_no_shorter_stays_and_spoils_nothing() {
        let body = noise(3 * STEP);
        for coding in Coding::ALL {
            assert_eq!(compress(coding, &body).await, None, "{coding:?}");
            let made = compress(coding, &[b'a'; 1000]).await.unwrap();
            assert_eq!(decoded(coding, made), [b'a'; 1000]);
        }
    }

    #[test]
    fn a_look_tells_whether_it_pays() {
        let floats: Vec<u8> = noise(8000).chunks(3).flat_map(|it| [it[0], it[1], 0, 63]).collect();
        assert!(pays(&[b'a'; 10_000]) && pays(&floats));
        assert!(!pays(&noise(10_000)) && !pays(b"short"));
    }
}
