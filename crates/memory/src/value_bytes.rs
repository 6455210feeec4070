//! A parameter's value: bytes in one piece, or in the pieces in which they came from the network.
//!
//! Large bodies stay in pieces on their way to a worker, since putting them together costs as much as
//! receiving them. Whoever needs them in one piece gets that; the pieces are joined once.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// The bytes of a value. Cloning shares them.
#[derive(Clone)]
pub struct ValueBytes(Held);

#[derive(Clone)]
enum Held {
    Whole(Bytes),
    Pieces(Arc<Pieces>),
}

struct Pieces {
    pieces: Box<[Bytes]>,
    length: usize,
    joined: OnceLock<Bytes>,
}

impl ValueBytes {
    /// The value that these pieces are, one after another.
    pub fn from_pieces(mut pieces: Vec<Bytes>) -> Self {
        if pieces.len() <= 1 {
            return Self(Held::Whole(pieces.pop().unwrap_or_default()));
        }
        let length = pieces.iter().map(Bytes::len).sum();
        let pieces = pieces.into_boxed_slice();
        Self(Held::Pieces(Arc::new(Pieces { pieces, length, joined: OnceLock::new() })))
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Whole(bytes) => bytes.len(),
            Held::Pieces(held) => held.length,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in their order.
    pub fn pieces(&self) -> &[Bytes] {
        match &self.0 {
            Held::Whole(bytes) => std::slice::from_ref(bytes),
            Held::Pieces(held) => &held.pieces,
        }
    }

    /// All in one piece.
    pub fn whole(&self) -> &Bytes {
        match &self.0 {
            Held::Whole(bytes) => bytes,
            Held::Pieces(held) => held.joined.get_or_init(|| held.pieces.concat().into()),
        }
    }

    /// Gives the pieces up if somebody has needed them in one.
    pub fn settle(&mut self) {
        if let Held::Pieces(held) = &self.0
            && let Some(joined) = held.joined.get()
        {
            self.0 = Held::Whole(joined.clone());
        }
    }

    /// Whether these are its first bytes; the pieces stay as they are.
    pub fn starts_with(&self, start: &[u8]) -> bool {
        self.pieces().iter().flatten().take(start.len()).eq(start)
    }

    /// All in one piece, and the pieces given up.
    pub fn into_whole(self) -> Bytes {
        self.whole().clone()
    }
}

impl Deref for ValueBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.whole()
    }
}

impl Default for ValueBytes {
    fn default() -> Self {
        Self(Held::Whole(Bytes::new()))
    }
}

impl From<Bytes> for ValueBytes {
    fn from(bytes: Bytes) -> Self {
        Self(Held::Whole(bytes))
    }
}

impl From<&'static str> for ValueBytes {
    fn from(text: &'static str) -> Self {
        Self(Held::Whole(Bytes::from_static(text.as_bytes())))
    }
}

impl From<Vec<u8>> for ValueBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Held::Whole(bytes.into()))
    }
}

impl PartialEq for ValueBytes {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.whole() == other.whole()
    }
}

impl Eq for ValueBytes {}

/// With the length, and without regard to how the bytes are cut.
impl Hash for ValueBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        for piece in self.pieces() {
            state.write(piece);
        }
    }
}

impl std::fmt::Debug for ValueBytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.whole().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn pieces_are_the_value_that_they_are_together() {
        let whole = ValueBytes::from(Bytes::from_static(b"one two"));
        let cut = ["one", "", " t", "wo"].map(|piece| Bytes::from_static(piece.as_bytes()));
        let pieces = ValueBytes::from_pieces(cut.to_vec());
        assert_eq!((pieces.len(), pieces.pieces().len()), (7, 4));
        assert_eq!(&*pieces, b"one two");
        assert_eq!(pieces, whole);
        let hasher = std::hash::RandomState::new();
        assert_eq!(hasher.hash_one(&pieces), hasher.hash_one(&whole));
        // They are joined once, and then not needed any more.
        let mut again = pieces.clone();
        assert_eq!(pieces.whole().as_ptr(), again.whole().as_ptr());
        again.settle();
        assert_eq!((again.pieces().len(), &*again), (1, &b"one two"[..]));
    }

    #[test]
    fn the_start_is_looked_at_without_joining() {
        let cut = ["o", "ne", " two"].map(|piece| Bytes::from_static(piece.as_bytes()));
        let mut value = ValueBytes::from_pieces(cut.to_vec());
        let starts =
            ["", "on", "one t", "one two"].map(|start| value.starts_with(start.as_bytes()));
        assert_eq!(starts, [true; 4]);
        assert!(!value.starts_with(b"one two three") && !value.starts_with(b"two"));
        value.settle();
        assert_eq!(value.pieces().len(), 3);
    }

    #[test]
    fn one_piece_or_none_is_a_whole_value() {
        let piece = Bytes::from_static(b"x");
        let alone = ValueBytes::from_pieces(vec![piece.clone()]);
        assert_eq!(alone.whole().as_ptr(), piece.as_ptr());
        assert!(ValueBytes::from_pieces(Vec::new()).is_empty());
    }
}
