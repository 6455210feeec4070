//! How a file becomes a row of integers: its first and its last bytes, as Magika and models like it
//! see a file. Any bytes will do, so nothing is rejected here; the work is bounded by the block
//! size, however large the file is.

use serde::Deserialize;

/// The card's `input: {kind: file-bytes, ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FileBytes {
    /// Bytes taken from the beginning.
    pub begin: usize,
    /// Bytes taken from the end.
    pub end: usize,
    /// How far from either end bytes are looked at, whitespace included.
    pub block: usize,
    /// Whether whitespace around the file is passed over first.
    #[serde(default)]
    pub strip: bool,
    /// What stands for a byte that the file does not have.
    pub padding: i32,
}

impl FileBytes {
    /// How long a row is.
    pub fn width(&self) -> usize {
        self.begin + self.end
    }

    /// The row: the beginning padded behind, then the end padded in front.
    pub fn row(&self, file: &[u8]) -> Vec<i32> {
        let block = self.block.min(file.len());
        let (mut head, mut tail) = (&file[..block], &file[file.len() - block..]);
        if self.strip {
            head = &head[head.iter().take_while(|byte| is_space(**byte)).count()..];
            let spaces = tail.iter().rev().take_while(|byte| is_space(**byte)).count();
            tail = &tail[..tail.len() - spaces];
        }
        head = &head[..head.len().min(self.begin)];
        tail = &tail[tail.len().saturating_sub(self.end)..];
        let mut row = vec![self.padding; self.width()];
        fill(&mut row[..head.len()], head);
        let width = row.len();
        fill(&mut row[width - tail.len()..], tail);
        row
    }
}

fn fill(row: &mut [i32], bytes: &[u8]) {
    for (number, byte) in row.iter_mut().zip(bytes) {
        *number = i32::from(*byte);
    }
}

/// What Python's `bytes.strip` passes over; Rust's own notion leaves the vertical tab out.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &[u8], strip: bool, expected: &[i32]) {
        let features = FileBytes { begin: 3, end: 3, block: 6, strip, padding: 256 };
        assert_eq!(features.row(file), expected, "{file:?}");
    }

    #[test]
    fn a_row_is_the_stripped_beginning_and_end_with_padding_between() {
        check(b"abcdefgh", true, &[97, 98, 99, 102, 103, 104]);
        check(b"ab", true, &[97, 98, 256, 256, 97, 98]);
        check(b" \x0bab\n", true, &[97, 98, 10, 11, 97, 98]);
        check(b"", true, &[256; 6]);
        check(b"      ", true, &[256; 6]);
        check(b" a ", false, &[32, 97, 32, 32, 97, 32]);
    }

    #[test]
    fn whitespace_beyond_the_block_counts_as_content_of_neither_end() {
        check(b"       abc", true, &[256, 256, 256, 97, 98, 99]);
    }
}
