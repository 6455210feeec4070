//! Files that get finer pass by pass: what one scan brings of one block.

use super::bits::Bits;
use super::error::JpegError;
use super::huffman::Huffman;

const DAMAGED: JpegError = JpegError::Broken("its data is damaged");

/// The upper bits of the first coefficient.
pub(super) fn first_bits(
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
pub(super) fn more_first_bits(bits: &mut Bits<'_>, low: u32, block: &mut [i16; 64]) {
    bits.fill();
    block[0] |= (bits.take(1) << low) as i16;
}

/// The upper bits of other coefficients; `ended` counts blocks that have none.
pub(super) fn other_bits(
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
pub(super) fn more_other_bits(
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
