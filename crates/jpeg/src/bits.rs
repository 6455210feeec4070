//! The bits of a scan: stuffed zeros are taken out, a marker ends them, and zeros follow, whose use is
//! noticed.

/// Reads bits, the highest first.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    next: usize,
    /// The bits to come, from the highest down.
    held: u64,
    count: u32,
    /// Zeros that stand for what the data does not have.
    made_up: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8], next: usize) -> Self {
        Self { data, next, held: 0, count: 0, made_up: 0 }
    }

    /// Holds 32 bits at least afterwards.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some(word) = self.data.get(self.next..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_be_bytes(*word);
            // No byte is 0xff: none of the complement is zero.
            let inverse = !word;
            let zeros = inverse.wrapping_sub(0x0101_0101_0101_0101) & word & 0x8080_8080_8080_8080;
            if zeros == 0 {
                self.held |= word >> self.count;
                let bytes = (63 - self.count) >> 3;
                self.next += bytes as usize;
                self.count += bytes * 8;
                // What lies below the counted bits is read again later.
                self.held &= u64::MAX << (64 - self.count);
                return;
            }
        }
        self.fill_slowly();
    }

    #[cold]
    #[inline(never)]
    fn fill_slowly(&mut self) {
        while self.count <= 56 {
            let byte = match (self.data.get(self.next), self.data.get(self.next + 1)) {
                (Some(0xff), Some(0)) => {
                    self.next += 2;
                    0xff
                }
                // Any number of 0xff may precede a marker; what follows them says what they are.
                (Some(0xff), Some(0xff)) => {
                    self.next += 1;
                    continue;
                }
                (Some(0xff) | None, _) => {
                    self.made_up = (self.made_up + 8).min(1 << 20);
                    0
                }
                (Some(byte), _) => {
                    self.next += 1;
                    *byte
                }
            };
            self.held |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// The next bits, at most 16, which stay.
    #[inline(always)]
    pub(super) fn peek(&self, bits: u32) -> usize {
        (self.held >> (64 - bits)) as usize
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, bits: u32) {
        self.held <<= bits;
        self.count = self.count.wrapping_sub(bits);
    }

    /// The next bits as a number; 0 for none.
    #[inline(always)]
    pub(super) fn take(&mut self, bits: u32) -> i32 {
        let value = (self.held >> 1) >> (63 - bits);
        self.skip(bits);
        value as i32
    }

    /// A number of so many bits whose highest one says its sign.
    #[inline(always)]
    pub(super) fn signed(&mut self, bits: u32) -> i32 {
        extend(self.take(bits), bits)
    }

    /// Whether more was read than there is.
    pub(super) fn is_short(&self) -> bool {
        self.made_up > self.count
    }

    /// Goes past the next marker if it restarts the scan.
    pub(super) fn restart(&mut self) -> bool {
        // Whole bytes may have been read ahead only where no marker lay in them.
        let from = self.data.get(self.next..).unwrap_or_default();
        match from.iter().position(|byte| *byte == 0xff) {
            Some(at) if matches!(from.get(at + 1), Some(0xd0..=0xd7)) => {
                *self = Self::new(self.data, self.next + at + 2);
                true
            }
            _ => false,
        }
    }

    /// Where the data goes on after the scan.
    pub(super) fn end(&self) -> usize {
        self.next
    }
}

/// Undoes the way in which numbers are written: of n bits, those whose highest bit is 0 are negative.
#[inline(always)]
pub(super) fn extend(value: i32, bits: u32) -> i32 {
    let is_negative = value < (1i32 << bits) >> 1;
    value + (if is_negative { (-1i32 << bits) + 1 } else { 0 })
}
