//! Decodes the scans of a file into planes of samples. A file in one pass is decoded block by block, and
//! only where the window needs it. What a scan of a file brings that gets finer pass by pass is read in
//! `progressive`.

use super::bits::Bits;
use super::error::{CUT_OFF, DAMAGED, JpegError, NO_TABLE};
use super::huffman::Huffman;
use super::idct::Block;
use super::markers::{NATURAL, Next, ScanComponent, ScanHeader, Tables};
use super::pass::{Column, Pass, Plane, Units};
use super::progressive::{self, Coefficients};

/// No encoder makes as many; each one costs a walk over the whole image.
const SCANS_MAX: usize = 100;

/// Decodes all scans from the one whose data begins at `at`.
#[inline(always)]
pub(super) fn decode(
    data: &[u8],
    tables: &mut Tables,
    (mut scan, mut at): (ScanHeader, usize),
    units: &Units,
    planes: &mut [Plane; 4],
) -> Result<(), JpegError> {
    let frame = tables.frame.clone().ok_or(CUT_OFF)?;
    for (plane, component) in planes.iter_mut().zip(&frame.components) {
        plane.clear(&frame, component.blocks, units);
    }
    let mut coefficients = if frame.progressive { Coefficients::of(&frame) } else { Vec::new() };
    let mut quantization: [Option<Box<[i32; 64]>>; 4] = Default::default();
    for _ in 0..SCANS_MAX {
        for component in &scan.components {
            let table = tables.quantization[frame.components[component.index].quantization].clone();
            let held = &mut quantization[component.index];
            if held.is_none() {
                *held = Some(table.ok_or(NO_TABLE)?);
            }
        }
        let pass = Pass { data, tables, frame: &frame, scan: &scan };
        at = if frame.progressive {
            pass.refine(at, &mut coefficients)?
        } else {
            let at = pass.samples(at, &quantization, units, planes)?;
            if quantization.iter().flatten().count() == frame.components.len() {
                return ends(data, at);
            }
            at
        };
        match tables.read(data, at)? {
            Next::Scan(next, from) => (scan, at) = (next, from),
            Next::End if frame.progressive => {
                return progressive::transform(&frame, &coefficients, &quantization, units, planes);
            }
            Next::End => return Err(CUT_OFF),
        }
    }
    Err(JpegError::Unsupported("its number of scans"))
}

/// What the window does not need is not decoded, but it has to be there.
fn ends(data: &[u8], at: usize) -> Result<(), JpegError> {
    let rest = data.get(at..).unwrap_or_default();
    let end = rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]);
    if end { Ok(()) } else { Err(CUT_OFF) }
}

impl Pass<'_> {
    /// Decodes a scan of whole blocks into samples; where it ends.
    #[inline(always)]
    fn samples(
        &self,
        at: usize,
        quantization: &[Option<Box<[i32; 64]>>; 4],
        units: &Units,
        planes: &mut [Plane; 4],
    ) -> Result<usize, JpegError> {
        let mut bits = Bits::new(self.data, at);
        let mut before = [0i32; 4];
        let mut restarts = self.restarts();
        let alone = match self.scan.components.as_slice() {
            [only] => Some(self.blocks_alone(only.index)),
            _ => None,
        };
        let (across, down) = alone.unwrap_or_else(|| self.frame.units());
        let mut decoders = Vec::with_capacity(4);
        for component in &self.scan.components {
            let blocks = &self.frame.components[component.index].blocks;
            let blocks = if alone.is_some() { (1, 1) } else { *blocks };
            let table = quantization[component.index].as_deref().ok_or(NO_TABLE)?;
            decoders.push((component.index, blocks, self.codes(component)?, table));
        }
        let alone_rows = alone.map(|_| {
            let place = self.scan.components[0].index;
            units.down.end * self.frame.components[place].blocks.1
        });
        let last = alone_rows.unwrap_or(units.down.end).min(down);
        for y in 0..last {
            for x in 0..across {
                if restarts.next(&mut bits)? {
                    before = [0; 4];
                }
                for (place, blocks, codes, table) in &decoders {
                    for inner in 0..blocks.0 * blocks.1 {
                        let (bx, by) =
                            (x * blocks.0 + inner % blocks.0, y * blocks.1 + inner / blocks.0);
                        match planes[*place].block(bx, by) {
                            Some(out) => codes.block(&mut bits, &mut before[*place], table, out)?,
                            None => codes.pass_over(&mut bits, &mut before[*place])?,
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

    fn codes(&self, component: &ScanComponent) -> Result<BlockCodes<'_>, JpegError> {
        let first = self.tables.first_codes.get(component.first_codes).and_then(Option::as_ref);
        let other = self.tables.other_codes.get(component.other_codes).and_then(Option::as_ref);
        Ok(BlockCodes { first: first.ok_or(NO_TABLE)?, other: other.ok_or(NO_TABLE)? })
    }
}

/// The codes of a component.
struct BlockCodes<'a> {
    first: &'a Huffman,
    other: &'a Huffman,
}

impl BlockCodes<'_> {
    #[inline(always)]
    fn first(&self, bits: &mut Bits<'_>, before: &mut i32) -> Result<i32, JpegError> {
        bits.fill();
        let size = u32::from(self.first.symbol(bits).ok_or(DAMAGED)?);
        if size > 15 {
            return Err(DAMAGED);
        }
        *before = before.wrapping_add(bits.signed(size));
        Ok(*before)
    }

    /// Decodes a block into samples.
    #[inline(always)]
    fn block(
        &self,
        bits: &mut Bits<'_>,
        before: &mut i32,
        table: &[i32; 64],
        out: &mut [Column; 8],
    ) -> Result<(), JpegError> {
        let mut block = Block::new(self.first(bits, before)?.wrapping_mul(table[0]));
        let mut k = 1;
        while k < 64 {
            bits.fill();
            let short = self.other.short(bits);
            let value = if short.bits > 0 {
                bits.skip(u32::from(short.bits));
                k += usize::from(short.run);
                i32::from(short.value)
            } else {
                let symbol = self.other.symbol(bits).ok_or(DAMAGED)?;
                let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
                if size == 0 {
                    if run < 15 {
                        break;
                    }
                    k += 16;
                    continue;
                }
                k += run;
                bits.signed(size)
            };
            let place = NATURAL.get(k).ok_or(DAMAGED)?;
            block.add(usize::from(*place), value.wrapping_mul(table[k]));
            k += 1;
        }
        block.finish(out);
        Ok(())
    }

    /// Goes past a block.
    #[inline(always)]
    fn pass_over(&self, bits: &mut Bits<'_>, before: &mut i32) -> Result<(), JpegError> {
        self.first(bits, before)?;
        let mut k = 1;
        while k < 64 {
            bits.fill();
            let short = self.other.short(bits);
            if short.bits > 0 {
                bits.skip(u32::from(short.bits));
                k += usize::from(short.run) + 1;
                continue;
            }
            let symbol = self.other.symbol(bits).ok_or(DAMAGED)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 && run < 15 {
                break;
            }
            bits.skip(size);
            k += run + 1;
        }
        Ok(())
    }
}
