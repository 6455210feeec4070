//! Takes bytes out of a coding, step by step.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::{Coding, CodingError};

/// The largest window of zstd, as a power of two: 8 MiB, which is what HTTP's clients may use (RFC 9659).
const ZSTD_WINDOW: u32 = 23;
/// gzip's window, as a power of two.
const GZIP_WINDOW: u8 = 15;
/// A step's output is at least and at most so long.
const STEP_MIN: usize = 4 << 10;
pub const STEP_MAX: usize = 128 << 10;
/// A first step expects that so much comes out of a byte.
const STEP_FACTOR: usize = 4;
/// A piece of gzip costs as much as some hundred bytes, however small it is: a body may have so many, and one more
/// for so many bytes that went in or came out.
const PIECES_FREE: u64 = 1000;
const PIECE_BYTES: u64 = 512;

/// Takes bytes out of a coding as they come.
pub struct Decompressor {
    coding: Coding,
    state: DecompressorState,
    step: usize,
    /// Pieces that have begun.
    pieces: u64,
    /// Bytes that went in or came out.
    moved: u64,
}

enum DecompressorState {
    /// Nothing has come.
    Start,
    /// Inside gzip or deflate.
    Deflate(Decompress),
    /// zstd, and whether a frame is at its end.
    Zstd(Decoder<'static>, bool),
    /// At the end of gzip or deflate.
    End,
}

impl Decompressor {
    /// Ready for the first bytes.
    pub fn new(coding: Coding) -> Self {
        Self { coding, state: DecompressorState::Start, step: 0, pieces: 0, moved: 0 }
    }

    /// The next bytes that come out of `input`, of which they are taken; nothing when all is out. Call it until
    /// then, with the same input. A step may have nothing to show.
    ///
    /// # Errors
    /// The input is not what its coding says.
    pub fn step(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, CodingError> {
        self.step = match self.step {
            0 => input.len().saturating_mul(STEP_FACTOR).clamp(STEP_MIN, STEP_MAX),
            _ => STEP_MAX,
        };
        let mut output = BytesMut::zeroed(self.step);
        let (given, mut filled) = (input.len(), 0);
        while filled < output.len() {
            let before = input.len();
            let written = self.run(input, &mut output[filled..])?;
            filled += written;
            self.moved += (written + before - input.len()) as u64;
            if written == 0 && input.len() == before {
                if input.is_empty() {
                    break;
                }
                return Err(self.broken("it cannot be read"));
            }
        }
        output.truncate(filled);
        Ok((filled > 0 || input.len() < given).then(|| output.freeze()))
    }

    /// Must be asked when all input was given.
    ///
    /// # Errors
    /// The input ended too early.
    pub fn finish(&self) -> Result<(), CodingError> {
        match &self.state {
            DecompressorState::Start
            | DecompressorState::End
            | DecompressorState::Zstd(_, true) => Ok(()),
            DecompressorState::Deflate(_) | DecompressorState::Zstd(_, false) => {
                Err(self.broken("it ends too early"))
            }
        }
    }

    /// Takes of the input and fills the output, as far as either goes.
    fn run(&mut self, input: &mut Bytes, output: &mut [u8]) -> Result<usize, CodingError> {
        // gzip may be several pieces one after another; so may zstd, which knows by itself.
        let again = self.coding == Coding::Gzip && matches!(self.state, DecompressorState::End);
        if let (Some(first), true) =
            (input.first(), again || matches!(self.state, DecompressorState::Start))
        {
            self.pieces += 1;
            if self.pieces > PIECES_FREE + self.moved / PIECE_BYTES {
                return Err(self.broken("it has too many small pieces"));
            }
            self.state = self.begin(*first)?;
        }
        match &mut self.state {
            DecompressorState::Start => Ok(0),
            DecompressorState::End if input.is_empty() => Ok(0),
            DecompressorState::End => Err(self.broken("there are bytes after its end")),
            DecompressorState::Deflate(stream) => {
                let (read, wrote) = (stream.total_in(), stream.total_out());
                let status = stream.decompress(input, output, FlushDecompress::None);
                input.advance((stream.total_in() - read) as usize);
                let written = (stream.total_out() - wrote) as usize;
                match status {
                    Ok(Status::StreamEnd) => self.state = DecompressorState::End,
                    Ok(Status::Ok | Status::BufError) => {}
                    Err(_) => return Err(self.broken("it cannot be read")),
                }
                Ok(written)
            }
            DecompressorState::Zstd(stream, whole) => {
                let ran = stream.run_on_buffers(input, output);
                let ran = ran.map_err(|error| broken(self.coding, &error.to_string()))?;
                input.advance(ran.bytes_read);
                if ran.bytes_read > 0 || ran.bytes_written > 0 {
                    *whole = ran.remaining == 0;
                }
                Ok(ran.bytes_written)
            }
        }
    }

    fn begin(&self, first: u8) -> Result<DecompressorState, CodingError> {
        Ok(match self.coding {
            Coding::Gzip => DecompressorState::Deflate(Decompress::new_gzip(GZIP_WINDOW)),
            // Some clients leave zlib's header away, whose first byte no stream of theirs begins with.
            Coding::Deflate => DecompressorState::Deflate(Decompress::new(first & 0xf == 8)),
            Coding::Zstd => {
                let stream = zstd_decoder().map_err(|error| self.broken(&error.to_string()))?;
                DecompressorState::Zstd(stream, true)
            }
        })
    }

    fn broken(&self, why: &str) -> CodingError {
        broken(self.coding, why)
    }
}

fn broken(coding: Coding, why: &str) -> CodingError {
    CodingError::Broken { coding, why: why.to_owned() }
}

fn zstd_decoder() -> io::Result<Decoder<'static>> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW))?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|at| b"0123456789abcdef"[(at * at / 7) % 16]).collect()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn encoded(content: &[u8]) -> Vec<(Coding, Vec<u8>)> {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(content).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(content).unwrap();
        vec![
            (Coding::Gzip, gzip(content)),
            (Coding::Deflate, zlib.finish().unwrap()),
            (Coding::Deflate, raw.finish().unwrap()),
            (Coding::Zstd, zstd::encode_all(content, 1).unwrap()),
        ]
    }

    /// What comes out of input that comes in pieces of this size.
    fn decoded(coding: Coding, input: &[u8], size: usize) -> Result<Vec<u8>, CodingError> {
        let (mut decompressor, mut out) = (Decompressor::new(coding), Vec::new());
        for piece in input.chunks(size) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(bytes) = decompressor.step(&mut piece)? {
                assert!(bytes.len() <= STEP_MAX);
                out.extend_from_slice(&bytes);
            }
            assert!(piece.is_empty());
        }
        decompressor.finish().map(|()| out)
    }

    #[test]
    fn what_was_put_in_comes_out_however_it_is_cut() {
        for length in [0, 1, 100, STEP_MIN, STEP_MAX, 1_000_000] {
            let content = text(length);
            for (coding, input) in encoded(&content) {
                for size in [1, 7, 4096, usize::MAX] {
                    let out = decoded(coding, &input, size);
                    assert!(
                        out.as_ref() == Ok(&content),
                        "{coding:?}, {length} by {size}: {out:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_empty_body_is_empty_in_every_coding() {
        for coding in Coding::ALL {
            assert_eq!(decoded(coding, b"", 1), Ok(Vec::new()));
        }
    }

    #[test]
    fn several_pieces_of_gzip_or_zstd_are_one_body() {
        let zstd = |content| zstd::encode_all(content, 1).unwrap();
        for size in [1, usize::MAX] {
            let twice = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
            assert_eq!(decoded(Coding::Gzip, &twice, size).unwrap(), b"one two");
            let twice = [zstd(&b"one "[..]), zstd(b"two")].concat();
            assert_eq!(decoded(Coding::Zstd, &twice, size).unwrap(), b"one two");
        }
    }

    #[test]
    fn pieces_of_gzip_are_as_many_as_their_bytes_pay_for() {
        let empty = gzip(b"").repeat(100_000);
        let some = &empty[..empty.len() / 100];
        assert_eq!(decoded(Coding::Gzip, some, usize::MAX), Ok(Vec::new()));
        for size in [100, usize::MAX] {
            let error = decoded(Coding::Gzip, &empty, size).unwrap_err();
            assert_eq!(error, broken(Coding::Gzip, "it has too many small pieces"));
        }
        let blocks = gzip(&[0; 1024]).repeat(5000);
        assert_eq!(decoded(Coding::Gzip, &blocks, usize::MAX).unwrap().len(), 5000 * 1024);
    }

    #[test]
    fn what_is_broken_says_so() {
        let content = text(5000);
        for (coding, input) in encoded(&content) {
            for size in [1, usize::MAX] {
                let early = decoded(coding, &input[..input.len() - 1], size).unwrap_err();
                assert_eq!(early, broken(coding, "it ends too early"));
                let after = [&input[..], b"\xffmore"].concat();
                assert!(decoded(coding, &after, size).is_err(), "{coding:?}");
                let other = decoded(coding, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", size);
                assert!(other.is_err(), "{coding:?}");
            }
        }
        let mut changed = gzip(&content);
        let middle = changed.len() / 2;
        changed[middle] ^= 0x55;
        assert!(decoded(Coding::Gzip, &changed, 100).is_err());
    }

    #[test]
    fn a_bomb_comes_out_in_small_steps() {
        for (coding, input) in encoded(&vec![0; 10_000_000]) {
            assert!(input.len() < 500_000);
            let (mut decompressor, mut rest) = (Decompressor::new(coding), Bytes::from(input));
            let bytes = decompressor.step(&mut rest).unwrap().unwrap();
            assert!(bytes.len() <= STEP_MAX);
        }
    }

    #[test]
    fn a_window_beyond_what_http_allows_is_not_reserved() {
        let mut encoder = zstd::stream::raw::Encoder::new(1).unwrap();
        encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(27)).unwrap();
        let mut out = vec![0; 1 << 16];
        let written = encoder.run_on_buffers(&text(1000), &mut out).unwrap().bytes_written;
        let mut buffer = zstd::stream::raw::OutBuffer::around_pos(&mut out[..], written);
        encoder.finish(&mut buffer, true).unwrap();
        let end = buffer.pos();
        let problem = decoded(Coding::Zstd, &out[..end], usize::MAX).unwrap_err();
        assert!(problem.to_string().contains("memory"), "{problem}");
    }
}
