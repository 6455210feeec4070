//! Huffman codes, read with one look at a table where they are short, as nearly all are.

use super::bits::{Bits, extend};

const FAST: u32 = 10;

/// What a code together with the number that follows it says, where both are short.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    pub value: i16,
    pub run: u8,
    /// Bits of the code and the number; 0 where they are not short.
    pub bits: u8,
}

/// One table of codes.
#[derive(Clone, Debug)]
pub(super) struct Huffman {
    /// Length of the code and its symbol; a length of 0 where the code is longer.
    fast: Box<[(u8, u8); 1 << FAST]>,
    short: Box<[Short; 1 << FAST]>,
    /// By length: the first code beyond, aligned to 16 bits.
    beyond: [u32; 18],
    /// By length: what leads from a code to the place of its symbol.
    offset: [i32; 17],
    symbols: [u8; 256],
}

impl Huffman {
    /// A table of the codes that a file describes; `None` where they contradict each other.
    pub(super) fn new(counts: &[u8; 16], listed: &[u8]) -> Option<Self> {
        let mut table = Self {
            fast: Box::new([(0, 0); 1 << FAST]),
            short: Box::new([Short::default(); 1 << FAST]),
            beyond: [0; 18],
            offset: [0; 17],
            symbols: [0; 256],
        };
        table.symbols.get_mut(..listed.len())?.copy_from_slice(listed);
        let (mut code, mut place) = (0u32, 0usize);
        for (length, count) in (1u32..).zip(counts) {
            table.offset[length as usize] = place as i32 - code as i32;
            for _ in 0..*count {
                if code >= 1 << length {
                    return None;
                }
                if length <= FAST {
                    let first = (code << (FAST - length)) as usize;
                    let symbol = *listed.get(place)?;
                    table.fast[first..first + (1 << (FAST - length))].fill((length as u8, symbol));
                }
                (code, place) = (code + 1, place + 1);
            }
            table.beyond[length as usize] = code << (16 - length);
            code <<= 1;
        }
        table.beyond[17] = u32::MAX;
        table.shorten();
        Some(table)
    }

    fn shorten(&mut self) {
        for (look, (short, (length, symbol))) in self.short.iter_mut().zip(&*self.fast).enumerate()
        {
            let (length, run, size) = (u32::from(*length), symbol >> 4, u32::from(symbol & 15));
            if length > 0 && size > 0 && length + size <= FAST {
                let value = (look as i32 >> (FAST - length - size)) & ((1 << size) - 1);
                let value = extend(value, size) as i16;
                *short = Short { value, run, bits: (length + size) as u8 };
            }
        }
    }

    /// The next code and number, if both are short, without going past them.
    #[inline(always)]
    pub(super) fn short(&self, bits: &Bits<'_>) -> Short {
        self.short[bits.peek(FAST) & ((1 << FAST) - 1)]
    }

    /// The symbol of the next code; `None` where no code begins so.
    #[inline(always)]
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Option<u8> {
        let (length, symbol) = self.fast[bits.peek(FAST) & ((1 << FAST) - 1)];
        if length > 0 {
            bits.skip(u32::from(length));
            return Some(symbol);
        }
        self.long_symbol(bits)
    }

    #[cold]
    #[inline(never)]
    fn long_symbol(&self, bits: &mut Bits<'_>) -> Option<u8> {
        let look = bits.peek(16) as u32;
        let length = (FAST as usize + 1..17).find(|length| look < self.beyond[*length])?;
        let code = (look >> (16 - length)) as i32;
        bits.skip(length as u32);
        self.symbols.get(usize::try_from(code + self.offset[length]).ok()?).copied()
    }
}
