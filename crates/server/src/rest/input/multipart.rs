//! Cuts a multipart body where its values begin and end. The values stay where they came; what is left is short, and
//! read by multer, which would copy each value twice.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use jitney_engine::call::{PARAMETERS_MAX, ValueBytes};
use memchr::memmem;

const CRLF: &[u8] = b"\r\n";
const CRLF_CRLF: &[u8] = b"\r\n\r\n";
const DASHES: &[u8] = b"--";

/// The body without its values, and the values of its first parts. A part that has no end keeps its value, as
/// has every part beyond those that a model could be given.
pub(super) fn cut(body: &ValueBytes, boundary: &str) -> (Bytes, Vec<ValueBytes>) {
    let body = BodyPieces(body.pieces());
    let delimiter = [CRLF, DASHES, boundary.as_bytes()].concat();
    let (mut heads, mut values) = (BytesMut::new(), Vec::new());
    let mut at = 0;
    let mut next =
        body.find(&delimiter[CRLF.len()..], 0).map(|it| it + delimiter.len() - CRLF.len());
    while let Some(value) = next.and_then(|after| body.next_value(after, &delimiter))
        && values.len() <= PARAMETERS_MAX
    {
        body.copy(at..value.start, &mut heads);
        (at, next) = (value.end, Some(value.end + delimiter.len()));
        values.push(body.slice(value));
    }
    body.copy(at..usize::MAX, &mut heads);
    (heads.freeze(), values)
}

/// A body in pieces.
struct BodyPieces<'a>(&'a [Bytes]);

impl BodyPieces<'_> {
    /// The value of the part that begins behind a boundary; nothing behind the last one.
    fn next_value(&self, after: usize, delimiter: &[u8]) -> Option<Range<usize>> {
        if self.slices(after..after + DASHES.len()).flatten().eq(DASHES.iter().copied()) {
            return None;
        }
        let head = self.find(CRLF, after)? + CRLF.len();
        let start = self.find(CRLF_CRLF, head)? + CRLF_CRLF.len();
        Some(start..self.find(delimiter, start)?)
    }

    /// Where a text begins first, from here on.
    fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let mut begin = 0;
        // The last bytes before a piece: a text may begin there.
        let mut seam: Vec<u8> = Vec::new();
        for piece in self.0 {
            let part = piece.get(from.saturating_sub(begin)..).unwrap_or_default();
            begin += piece.len();
            let at = begin - part.len() - seam.len();
            let before = seam.len();
            seam.extend_from_slice(&part[..part.len().min(text.len() - 1)]);
            if let Some(found) = memmem::find(&seam, text) {
                return Some(at + found);
            }
            if let Some(found) = memmem::find(part, text) {
                return Some(at + before + found);
            }
            if part.len() >= text.len() {
                seam.clear();
                seam.extend_from_slice(&part[part.len() + 1 - text.len()..]);
            } else {
                seam.drain(..(seam.len() + 1).saturating_sub(text.len()));
            }
        }
        None
    }

    fn slices(&self, range: Range<usize>) -> impl Iterator<Item = Bytes> {
        let mut begin = 0;
        self.0.iter().filter_map(move |piece| {
            let start = range.start.saturating_sub(begin).min(piece.len());
            let end = range.end.saturating_sub(begin).min(piece.len());
            begin += piece.len();
            (start < end).then(|| piece.slice(start..end))
        })
    }

    fn slice(&self, range: Range<usize>) -> ValueBytes {
        ValueBytes::from_pieces(self.slices(range).collect())
    }

    fn copy(&self, range: Range<usize>, to: &mut BytesMut) {
        self.slices(range).for_each(|piece| to.extend_from_slice(&piece));
    }
}
