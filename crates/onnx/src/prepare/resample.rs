//! Resizes an image as Pillow does, bit for bit: weights of 22 bits, first along rows, then along columns,
//! rounded to bytes between the two. Only what is kept of the result is computed.

use std::ops::Range;

use jitney_jpeg::{Column, ROWS, Strip, StripSource, Window};

const PRECISION: u32 = 22;
const HALF: i32 = 1 << (PRECISION - 1);

/// Columns of a group that is turned around at once, and samples that are summed up at once.
const GROUP: usize = 32;

/// How pixels between pixels are made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Interpolation {
    /// Pillow's BILINEAR.
    Bilinear,
    /// Pillow's BICUBIC.
    Bicubic,
}

impl Interpolation {
    /// How far it reaches.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn weight(self, at: f64) -> f64 {
        const A: f64 = -0.5;
        let at = at.abs();
        match self {
            Self::Bilinear => (1.0 - at).max(0.0),
            Self::Bicubic if at < 1.0 => ((A + 2.0) * at - (A + 3.0)) * at * at + 1.0,
            Self::Bicubic if at < 2.0 => (((at - 5.0) * at + 8.0) * at - 4.0) * A,
            Self::Bicubic => 0.0,
        }
    }
}

/// What each of some neighbouring samples of the result is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taps {
    /// The first source sample of each, and where its weights begin and end.
    spans: Vec<(usize, Range<usize>)>,
    weights: Vec<i32>,
}

impl Taps {
    /// The samples `kept` of `to` that `from` are resized to.
    pub(super) fn new(by: Interpolation, from: usize, to: usize, kept: Range<usize>) -> Self {
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        let support = by.support() * stretch;
        let (mut places, mut weights) = (Vec::with_capacity(kept.len()), Vec::new());
        for place in kept {
            let center = (place as f64 + 0.5) * scale;
            let first = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            let weight = |at: usize| by.weight((at as f64 - center + 0.5) * (1.0 / stretch));
            let total: f64 = (first..end).map(weight).sum();
            let start = weights.len();
            weights.extend((first..end).map(|at| {
                let part = if total == 0.0 { 0.0 } else { weight(at) / total };
                let part = part * f64::from(1u32 << PRECISION);
                // Towards zero after half a step away from it, as C does it.
                (part + 0.5f64.copysign(part)) as i32
            }));
            places.push((first, start..weights.len()));
        }
        Self { spans: places, weights }
    }

    /// The source samples that are needed.
    pub(super) fn needed(&self) -> Range<usize> {
        let ends = self.spans.iter().map(|(first, weights)| first + weights.len());
        let start = self.spans.iter().map(|(first, _)| *first).min();
        // An even number begins, since two neighbours may be made of one sample.
        start.unwrap_or(0) & !1..ends.max().unwrap_or(0)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }
}

/// The memory in which images are resized, one after the other.
#[derive(Debug, Default)]
pub(super) struct ResampleBuffers {
    strip: Strip,
    /// Per channel: the rows that are needed, in their final width.
    narrow: [Vec<u8>; 3],
}

/// Resizes an image and hands out each row of each channel, byte for byte. A row has room for more
/// samples than are kept.
#[inline(always)]
pub(super) fn resample(
    source: &impl StripSource,
    (columns, rows): (&Taps, &Taps),
    buffers: &mut ResampleBuffers,
    mut row: impl FnMut(usize, usize, &[u8]),
) {
    let window = Window { x: columns.needed(), y: rows.needed() };
    let (strips, stride) = (window.strips(), columns.len().next_multiple_of(GROUP));
    let ResampleBuffers { strip, narrow } = buffers;
    let channels = source.channels();
    for narrow in &mut narrow[..channels] {
        narrow.clear();
        narrow.resize(strips.len() * ROWS * stride, 0);
    }
    for (place, index) in strips.clone().enumerate() {
        source.read(index, window.x.clone(), strip);
        for (strip, narrow) in strip.iter().zip(narrow.iter_mut()).take(channels) {
            let rows = &mut narrow[place * ROWS * stride..(place + 1) * ROWS * stride];
            along_rows(strip, columns, window.x.start, rows, stride);
        }
    }
    let top = strips.start * ROWS;
    let mut line = vec![0; stride];
    for (channel, narrow) in narrow.iter().enumerate().take(channels) {
        for (place, (first, weights)) in rows.spans.iter().enumerate() {
            let weights = &rows.weights[weights.clone()];
            let from = &narrow[(first - top) * stride..];
            along_columns(from, weights, stride, &mut line);
            row(channel, place, &line);
        }
    }
}

/// Eight rows at once.
#[inline(always)]
fn along_rows(strip: &[Column], taps: &Taps, start: usize, rows: &mut [u8], stride: usize) {
    for (group, places) in taps.spans.chunks(ROWS).enumerate() {
        let mut block = [[0u8; ROWS]; ROWS];
        for (out, (first, weights)) in block.iter_mut().zip(places) {
            let weights = &taps.weights[weights.clone()];
            let mut sums = [HALF; ROWS];
            for (column, weight) in strip[first - start..].iter().zip(weights) {
                for (sum, sample) in sums.iter_mut().zip(column) {
                    *sum += i32::from(*sample) * weight;
                }
            }
            *out = sums.map(|sum| (sum >> PRECISION).clamp(0, 255) as u8);
        }
        let block = turned(block);
        for (row, samples) in rows.chunks_exact_mut(stride).zip(&block) {
            if let Some(room) = row[group * ROWS..].first_chunk_mut() {
                *room = *samples;
            }
        }
    }
}

/// Columns become rows.
#[inline(always)]
fn turned(block: [[u8; 8]; 8]) -> [[u8; 8]; 8] {
    let mut lines = block.map(u64::from_le_bytes);
    // Squares of four, two and one samples change places.
    for (step, mask, shift) in [
        (4, 0x0000_0000_ffff_ffffu64, 32),
        (2, 0x0000_ffff_0000_ffff, 16),
        (1, 0x00ff_00ff_00ff_00ff, 8),
    ] {
        for place in 0..8 {
            if place & step == 0 {
                let (upper, lower) = (lines[place], lines[place + step]);
                lines[place] = (upper & mask) | ((lower & mask) << shift);
                lines[place + step] = ((upper >> shift) & mask) | (lower & !mask);
            }
        }
    }
    lines.map(u64::to_le_bytes)
}

/// One row of the result from as many rows as there are weights.
#[inline(always)]
fn along_columns(from: &[u8], weights: &[i32], stride: usize, line: &mut [u8]) {
    for (group, out) in line.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        let mut sums = [HALF; GROUP];
        for (row, weight) in from.chunks_exact(stride).zip(weights) {
            let Some(samples) = row[group * GROUP..].first_chunk::<GROUP>() else { continue };
            for (sum, sample) in sums.iter_mut().zip(samples) {
                *sum += i32::from(*sample) * weight;
            }
        }
        *out = sums.map(|sum| (sum >> PRECISION).clamp(0, 255) as u8);
    }
}
