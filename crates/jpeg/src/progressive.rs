//! Files that get finer pass by pass: all coefficients are kept, and each scan brings some bits of some
//! of them.

use super::bits::Bits;
use super::error::{CUT_OFF, DAMAGED, JpegError, NO_TABLE};
use super::huffman::Huffman;
use super::idct::Block;
use super::markers::{JpegFrame, NATURAL, ScanComponent, ScanHeader};
use super::pass::{Pass, Plane, Units};

/// The coefficients of one component in the order of the file, block by block.
pub(super) struct Coefficients {
    blocks: Vec<[i16; 64]>,
    across: usize,
}

impl Coefficients {
    /// Those of every component, all zero.
    pub(super) fn of(frame: &JpegFrame) -> Vec<Self> {
        let (across, down) = frame.units();
        let component = |blocks: (usize, usize)| Self {
            blocks: vec![[0; 64]; across * blocks.0 * down * blocks.1],
            across: across * blocks.0,
        };
        frame.components.iter().map(|it| component(it.blocks)).collect()
    }

    fn at(&mut self, x: usize, y: usize) -> &mut [i16; 64] {
        &mut self.blocks[y * self.across + x]
    }
}

/// The samples of blocks whose coefficients are all there.
#[inline(always)]
pub(super) fn transform(
    frame: &JpegFrame,
    coefficients: &[Coefficients],
    quantization: &[Option<Box<[i32; 64]>>; 4],
    units: &Units,
    planes: &mut [Plane; 4],
) -> Result<(), JpegError> {
    for (place, (kept, component)) in coefficients.iter().zip(&frame.components).enumerate() {
        let Some(table) = &quantization[place] else { return Err(CUT_OFF) };
        let (across, down) = component.blocks;
        for y in units.down.start * down..units.down.end * down {
            for x in units.across.start * across..units.across.end * across {
                let Some(out) = planes[place].block(x, y) else { continue };
                let values = &kept.blocks[y * kept.across + x];
                let mut block = Block::new(i32::from(values[0]).wrapping_mul(table[0]));
                for k in 1..64 {
                    if values[k] != 0 {
                        block.add(
                            usize::from(NATURAL[k]),
                            i32::from(values[k]).wrapping_mul(table[k]),
                        );
                    }
                }
                block.finish(out);
            }
        }
    }
    Ok(())
}

impl Pass<'_> {
    /// Decodes a scan that brings some bits of some coefficients; where it ends.
    pub(super) fn refine(&self, at: usize, kept: &mut [Coefficients]) -> Result<usize, JpegError> {
        match self.scan.components.as_slice() {
            [only] => self.refine_one(at, only, &mut kept[only.index]),
            several => self.refine_first(at, several, kept),
        }
    }

    /// A scan of one component.
    fn refine_one(
        &self,
        at: usize,
        only: &ScanComponent,
        kept: &mut Coefficients,
    ) -> Result<usize, JpegError> {
        let (mut bits, mut restarts) = (Bits::new(self.data, at), self.restarts());
        let (mut before, mut run) = (0i32, 0u32);
        let ScanHeader { from, to, high, low, .. } = *self.scan;
        let band = (from, to, low);
        let first = self.first_codes(only);
        let other = self.tables.other_codes.get(only.other_codes).and_then(Option::as_ref);
        let (across, down) = self.blocks_alone(only.index);
        for y in 0..down {
            for x in 0..across {
                if restarts.next(&mut bits)? {
                    (before, run) = (0, 0);
                }
                let (bits, block) = (&mut bits, kept.at(x, y));
                match (from, high) {
                    (0, 0) => first_bits(bits, first.ok_or(NO_TABLE)?, &mut before, low, block)?,
                    (0, _) => more_first_bits(bits, low, block),
                    (_, 0) => other_bits(bits, other.ok_or(NO_TABLE)?, &mut run, band, block)?,
                    _ => more_other_bits(bits, other.ok_or(NO_TABLE)?, &mut run, band, block)?,
                }
            }
            if bits.is_short() {
                return Err(CUT_OFF);
            }
        }
        Ok(bits.end())
    }

    /// A scan of several components, which brings bits of their first coefficients only.
    fn refine_first(
        &self,
        at: usize,
        components: &[ScanComponent],
        kept: &mut [Coefficients],
    ) -> Result<usize, JpegError> {
        let (mut bits, mut restarts) = (Bits::new(self.data, at), self.restarts());
        let (mut before, ScanHeader { high, low, .. }) = ([0i32; 4], self.scan);
        let (across, down) = self.frame.units();
        for y in 0..down {
            for x in 0..across {
                if restarts.next(&mut bits)? {
                    before = [0; 4];
                }
                for component in components {
                    let first = self.first_codes(component);
                    let (wide, tall) = self.frame.components[component.index].blocks;
                    for inner in 0..wide * tall {
                        let (bx, by) = (x * wide + inner % wide, y * tall + inner / wide);
                        let block = kept[component.index].at(bx, by);
                        if *high == 0 {
                            let before = &mut before[component.index];
                            first_bits(&mut bits, first.ok_or(NO_TABLE)?, before, *low, block)?;
                        } else {
                            more_first_bits(&mut bits, *low, block);
                        }
                    }
                }
            }
            if bits.is_short() {
                return Err(CUT_OFF);
            }
        }
        Ok(bits.end())
    }

    fn first_codes(&self, component: &ScanComponent) -> Option<&Huffman> {
        self.tables.first_codes.get(component.first_codes).and_then(Option::as_ref)
    }
}

/// The upper bits of the first coefficient.
fn first_bits(
    bits: &mut Bits<'_>,
    codes: &Huffman,
    before: &mut i32,
    low: u32,
    block: &mut [i16; 64],
) -> Result<(), JpegError> {
    bits.fill();
    let size = u32::from(codes.symbol(bits).ok_or(DAMAGED)?);
    if size > 15 {
        return Err(DAMAGED);
    }
    *before = before.wrapping_add(bits.signed(size));
    block[0] = (*before << low) as i16;
    Ok(())
}

/// One more bit of the first coefficient.
fn more_first_bits(bits: &mut Bits<'_>, low: u32, block: &mut [i16; 64]) {
    bits.fill();
    block[0] |= (bits.take(1) << low) as i16;
}

/// The upper bits of other coefficients; `ended` counts blocks that have none.
fn other_bits(
    bits: &mut Bits<'_>,
    codes: &Huffman,
    ended: &mut u32,
    (from, to, low): (usize, usize, u32),
    block: &mut [i16; 64],
) -> Result<(), JpegError> {
    if *ended > 0 {
        *ended -= 1;
        return Ok(());
    }
    let mut k = from;
    while k <= to {
        bits.fill();
        let symbol = codes.symbol(bits).ok_or(DAMAGED)?;
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        if size == 0 {
            if run < 15 {
                *ended = (1 << run) - 1 + bits.take(run) as u32;
                break;
            }
            k += 16;
            continue;
        }
        k += run as usize;
        *block.get_mut(k).ok_or(DAMAGED)? = (bits.signed(size) << low) as i16;
        k += 1;
    }
    Ok(())
}

/// One more bit of other coefficients.
fn more_other_bits(
    bits: &mut Bits<'_>,
    codes: &Huffman,
    ended: &mut u32,
    (from, to, low): (usize, usize, u32),
    block: &mut [i16; 64],
) -> Result<(), JpegError> {
    let bit = 1i16 << low;
    let refine = |bits: &mut Bits<'_>, value: &mut i16| {
        bits.fill();
        if bits.take(1) == 1 && *value & bit == 0 {
            *value = value.wrapping_add(if *value > 0 { bit } else { -bit });
        }
    };
    let mut k = from;
    if *ended == 0 {
        while k <= to {
            bits.fill();
            let symbol = codes.symbol(bits).ok_or(DAMAGED)?;
            let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
            let mut value = 0;
            if size == 0 {
                if run < 15 {
                    *ended = (1 << run) + bits.take(run) as u32;
                    break;
                }
            } else {
                value = if bits.take(1) == 1 { bit } else { -bit };
            }
            while k <= to {
                let held = &mut block[k];
                if *held != 0 {
                    refine(bits, held);
                } else if run == 0 {
                    *held = value;
                    k += 1;
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
        }
    }
    if *ended > 0 {
        for value in &mut block[k..=to] {
            if *value != 0 {
                refine(bits, value);
            }
        }
        *ended -= 1;
    }
    Ok(())
}
