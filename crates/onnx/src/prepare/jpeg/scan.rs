//! Decodes the scans of a file into planes of samples. A file in one pass is decoded block by block, and
//! only where the window needs it; of one that gets finer pass by pass all coefficients are kept first.

use std::ops::Range;

use super::super::plane::Column;
use super::bits::Bits;
use super::error::JpegError;
use super::huffman::Huffman;
use super::idct::Block;
use super::markers::{JpegFrame, NATURAL, Next, ScanComponent, ScanHeader, Tables};
use super::refine::{first_bits, more_first_bits, more_other_bits, other_bits};

const DAMAGED: JpegError = JpegError::Broken("its data is damaged");
const CUT_OFF: JpegError = JpegError::Broken("it is cut off");
/// No encoder makes as many; each one costs a walk over the whole image.
const SCANS_MAX: usize = 100;
const NO_TABLE: JpegError = JpegError::Broken("a table is missing");

/// The samples of one component in the units that are needed.
#[derive(Debug, Default)]
pub(super) struct Plane {
    /// Strip by strip; see `plane`.
    pub columns: Vec<Column>,
    /// Columns in a strip.
    pub width: usize,
    /// The first column and strip that are here.
    pub first: (usize, usize),
}

/// The units that are needed.
#[derive(Clone, Debug)]
pub(super) struct Units {
    pub across: Range<usize>,
    pub down: Range<usize>,
}

impl Plane {
    fn clear(&mut self, frame: &JpegFrame, blocks: (usize, usize), units: &Units) {
        debug_assert!(units.across.end <= frame.units().0);
        self.width = units.across.len() * blocks.0 * 8;
        self.first = (units.across.start * blocks.0 * 8, units.down.start * blocks.1);
        self.columns.clear();
        self.columns.resize(self.width * units.down.len() * blocks.1, [128; 8]);
    }

    /// The samples of a block, by its place in the image; `None` outside of the units.
    #[inline(always)]
    fn block(&mut self, across: usize, down: usize) -> Option<&mut [Column; 8]> {
        let x = (across * 8).checked_sub(self.first.0).filter(|x| *x < self.width)?;
        let start = down.checked_sub(self.first.1)? * self.width + x;
        self.columns.get_mut(start..)?.first_chunk_mut()
    }
}

/// The coefficients of one component in the order of the file, block by block.
struct Coefficients {
    blocks: Vec<[i16; 64]>,
    across: usize,
}

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
    let mut coefficients = if frame.progressive { kept(&frame) } else { Vec::new() };
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
                return transform(&frame, &coefficients, &quantization, units, planes);
            }
            Next::End => return Err(CUT_OFF),
        }
    }
    Err(JpegError::Unsupported("its number of scans"))
}

/// The samples of blocks whose coefficients are all there.
#[inline(always)]
fn transform(
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

/// What the window does not need is not decoded, but it has to be there.
fn ends(data: &[u8], at: usize) -> Result<(), JpegError> {
    let rest = data.get(at..).unwrap_or_default();
    let end = rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]);
    if end { Ok(()) } else { Err(CUT_OFF) }
}

fn kept(frame: &JpegFrame) -> Vec<Coefficients> {
    let (across, down) = frame.units();
    let component = |blocks: (usize, usize)| Coefficients {
        blocks: vec![[0; 64]; across * blocks.0 * down * blocks.1],
        across: across * blocks.0,
    };
    frame.components.iter().map(|it| component(it.blocks)).collect()
}

/// One pass over the image.
struct Pass<'a> {
    data: &'a [u8],
    tables: &'a Tables,
    frame: &'a JpegFrame,
    scan: &'a ScanHeader,
}

/// Where restarts are in a pass.
struct Restarts {
    interval: usize,
    left: usize,
}

impl Restarts {
    /// Whether the next unit begins anew.
    #[inline(always)]
    fn next(&mut self, bits: &mut Bits<'_>) -> Result<bool, JpegError> {
        if self.interval == 0 {
            return Ok(false);
        }
        if self.left > 0 {
            self.left -= 1;
            return Ok(false);
        }
        self.left = self.interval - 1;
        if bits.is_short() || !bits.restart() { Err(DAMAGED) } else { Ok(true) }
    }
}

impl Pass<'_> {
    fn restarts(&self) -> Restarts {
        let interval = self.tables.restart_interval;
        Restarts { interval, left: interval }
    }

    /// The blocks of a component, across and down, of a scan that has no other.
    fn blocks_alone(&self, place: usize) -> (usize, usize) {
        let (width, height) = self.frame.samples(&self.frame.components[place]);
        (width.div_ceil(8), height.div_ceil(8))
    }

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

    /// Decodes a scan that brings some bits of some coefficients; where it ends.
    fn refine(&self, at: usize, kept: &mut [Coefficients]) -> Result<usize, JpegError> {
        let mut bits = Bits::new(self.data, at);
        let mut restarts = self.restarts();
        let (mut before, mut run) = ([0i32; 4], 0u32);
        let ScanHeader { components, from, to, high, low } = self.scan;
        if let [only] = components.as_slice() {
            let (across, down) = self.blocks_alone(only.index);
            let kept = &mut kept[only.index];
            let first = self.tables.first_codes.get(only.first_codes).and_then(Option::as_ref);
            let other = self.tables.other_codes.get(only.other_codes).and_then(Option::as_ref);
            for y in 0..down {
                for x in 0..across {
                    if restarts.next(&mut bits)? {
                        (before, run) = ([0; 4], 0);
                    }
                    let block = &mut kept.blocks[y * kept.across + x];
                    match (*from, *high) {
                        (0, 0) => first_bits(
                            &mut bits,
                            first.ok_or(NO_TABLE)?,
                            &mut before[0],
                            *low,
                            block,
                        )?,
                        (0, _) => more_first_bits(&mut bits, *low, block),
                        (_, 0) => {
                            let band = (*from, *to, *low);
                            other_bits(&mut bits, other.ok_or(NO_TABLE)?, &mut run, band, block)?;
                        }
                        _ => {
                            let band = (*from, *to, *low);
                            more_other_bits(
                                &mut bits,
                                other.ok_or(NO_TABLE)?,
                                &mut run,
                                band,
                                block,
                            )?;
                        }
                    }
                }
                if bits.is_short() {
                    return Err(CUT_OFF);
                }
            }
            return Ok(bits.end());
        }
        let (across, down) = self.frame.units();
        for y in 0..down {
            for x in 0..across {
                if restarts.next(&mut bits)? {
                    before = [0; 4];
                }
                for component in components {
                    let first =
                        self.tables.first_codes.get(component.first_codes).and_then(Option::as_ref);
                    let blocks = self.frame.components[component.index].blocks;
                    let kept = &mut kept[component.index];
                    for inner in 0..blocks.0 * blocks.1 {
                        let (bx, by) =
                            (x * blocks.0 + inner % blocks.0, y * blocks.1 + inner / blocks.0);
                        let block = &mut kept.blocks[by * kept.across + bx];
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
