//! From the planes of a file to red, green and blue: chroma is made as large as luma with libjpeg's
//! triangle filter and its rounding, and converted with its constants.

use std::ops::Range;

use super::markers::{Component, JpegFrame};
use super::pass::{Column, Plane, ROWS, Strip, StripSource};

/// What the components of a file mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Color {
    Gray,
    Rgb,
    Luma,
    /// Inks, stored as what they leave of the light.
    Inks,
    LumaInks,
}

/// How a component becomes as large as the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enlarge {
    Not,
    Across,
    Down,
    Both,
    /// Samples are repeated, so often across and down.
    Repeat(usize, usize),
}

/// A decoded file.
#[derive(Debug)]
pub struct DecodedJpeg<'a> {
    pub(super) frame: &'a JpegFrame,
    pub(super) color: Color,
    pub(super) planes: &'a [Plane; 4],
}

impl StripSource for DecodedJpeg<'_> {
    fn channels(&self) -> usize {
        if self.color == Color::Gray { 1 } else { 3 }
    }

    #[inline(always)]
    fn read(&self, strip: usize, columns: Range<usize>, out: &mut Strip) {
        let [red, green, blue] = out;
        for (place, list) in [&mut *red, &mut *green, &mut *blue].into_iter().enumerate() {
            if place < self.frame.components.len() {
                self.component(place, strip, columns.clone(), list);
            }
        }
        match self.color {
            Color::Gray | Color::Rgb => {}
            Color::Luma => convert(red, green, blue),
            Color::Inks | Color::LumaInks => {
                if self.color == Color::LumaInks {
                    convert(red, green, blue);
                }
                let mut black = Vec::new();
                self.component(3, strip, columns, &mut black);
                let inverse = self.color == Color::Inks;
                for list in [red, green, blue] {
                    for (column, black) in list.iter_mut().zip(&black) {
                        for (sample, black) in column.iter_mut().zip(black) {
                            let ink = if inverse { 255 - *sample } else { *sample };
                            *sample = without(ink, *black);
                        }
                    }
                }
            }
        }
    }
}

/// What an ink leaves of the light that black leaves, as Pillow has it.
fn without(ink: u8, light: u8) -> u8 {
    let product = u32::from(ink) * u32::from(light) + 128;
    light.saturating_sub((((product >> 8) + product) >> 8) as u8)
}

/// Luma and chroma become red, green and blue.
#[inline(always)]
fn convert(first: &mut [Column], second: &mut [Column], third: &mut [Column]) {
    let (first, second, third) =
        (first.as_flattened_mut(), second.as_flattened_mut(), third.as_flattened_mut());
    for ((first, second), third) in first.iter_mut().zip(second).zip(third) {
        let (luma, blue, red) =
            (i32::from(*first), i32::from(*second) - 128, i32::from(*third) - 128);
        *first = byte(luma + ((91881 * red + 32768) >> 16));
        *second = byte(luma + ((-22554 * blue - 46802 * red + 32768) >> 16));
        *third = byte(luma + ((116_130 * blue + 32768) >> 16));
    }
}

#[inline(always)]
fn byte(value: i32) -> u8 {
    value.clamp(0, 255) as u8
}

type Wide = [u16; ROWS];

#[inline(always)]
fn wide(column: &Column) -> Wide {
    column.map(u16::from)
}

impl DecodedJpeg<'_> {
    fn enlarge(&self, component: &Component) -> Enlarge {
        let (across, down) =
            (self.frame.most.0 / component.blocks.0, self.frame.most.1 / component.blocks.1);
        let narrow = self.frame.samples(component).0 <= 2;
        match (across, down) {
            (1, 1) => Enlarge::Not,
            (1, 2) => Enlarge::Down,
            (2, 1) if !narrow => Enlarge::Across,
            (2, 2) if !narrow => Enlarge::Both,
            _ => Enlarge::Repeat(across, down),
        }
    }

    /// The columns of a component as they are in the image.
    #[inline(always)]
    fn component(&self, place: usize, strip: usize, columns: Range<usize>, out: &mut Vec<Column>) {
        let (plane, component) = (&self.planes[place], &self.frame.components[place]);
        out.clear();
        let reader = PlaneReader { plane, samples: self.frame.samples(component) };
        match self.enlarge(component) {
            Enlarge::Not => {
                let row = reader.strip(strip);
                let start = columns.start - plane.first.0;
                out.extend_from_slice(&row[start..start + columns.len()]);
            }
            Enlarge::Across => {
                let row = reader.strip(strip);
                reader.across(columns, out, |x| wide(&row[x]), (1, 2, 2));
            }
            Enlarge::Both => match reader.neighbours(strip) {
                Neighbours::Upper(before, own) => {
                    reader.across(columns, out, |x| upper(&before[x], &own[x]), (8, 7, 4));
                }
                Neighbours::Lower(own, after) => {
                    reader.across(columns, out, |x| lower(&own[x], &after[x]), (8, 7, 4));
                }
                Neighbours::Edge => {
                    reader.across(columns, out, |x| reader.edge(x, strip), (8, 7, 4))
                }
            },
            Enlarge::Down => {
                let start = columns.start - plane.first.0;
                let bias: Wide = [1, 2, 1, 2, 1, 2, 1, 2];
                out.extend((start..start + columns.len()).map(|x| {
                    let sums = reader.edge(x, strip);
                    std::array::from_fn(|row| ((sums[row] + bias[row]) >> 2) as u8)
                }));
            }
            Enlarge::Repeat(across, down) => out.extend(columns.map(|x| {
                std::array::from_fn(|row| reader.sample(x / across, (strip * ROWS + row) / down))
            })),
        }
    }
}

/// Reads a plane by the places of its samples in the whole image.
#[derive(Clone, Copy)]
struct PlaneReader<'a> {
    plane: &'a Plane,
    /// The samples that there are, across and down.
    samples: (usize, usize),
}

impl<'a> PlaneReader<'a> {
    fn strip(&self, strip: usize) -> &'a [Column] {
        let start = (strip - self.plane.first.1) * self.plane.width;
        &self.plane.columns[start..start + self.plane.width]
    }

    /// A sample, or the nearest one that there is.
    fn sample(&self, x: usize, y: usize) -> u8 {
        let (x, y) = (x.min(self.samples.0 - 1), y.min(self.samples.1 - 1));
        self.strip(y / ROWS)[x - self.plane.first.0][y % ROWS]
    }

    /// Twice as many columns: three parts of the nearest sample, one of the next. Columns begin with an
    /// even one.
    #[inline(always)]
    fn across(
        &self,
        columns: Range<usize>,
        out: &mut Vec<Column>,
        at: impl Fn(usize) -> Wide,
        (left, right, shift): (u16, u16, u16),
    ) {
        let (first, last) = (self.plane.first.0, self.samples.0 - 1);
        let (start, end) = (columns.start / 2, columns.end.div_ceil(2));
        // The samples with one more on either side, of which there may be none.
        let mut sums = Vec::with_capacity(end - start + 2);
        sums.push(at(start.saturating_sub(1).max(first) - first));
        sums.extend((start - first..end - first).map(&at));
        sums.push(at(end.min(last) - first));
        out.resize(2 * (end - start), [0; ROWS]);
        let (pairs, _) = out.as_chunks_mut::<2>();
        for (pair, near) in pairs.iter_mut().zip(sums.windows(3)) {
            let (before, this, next) = (&near[0], &near[1], &near[2]);
            pair[0] =
                std::array::from_fn(|row| ((3 * this[row] + before[row] + left) >> shift) as u8);
            pair[1] =
                std::array::from_fn(|row| ((3 * this[row] + next[row] + right) >> shift) as u8);
        }
        out.truncate(columns.len());
    }

    /// The samples that the eight rows of a strip of the image lie among, where there are half as many.
    fn neighbours(&self, strip: usize) -> Neighbours<'a> {
        let first = strip * ROWS / 2;
        if first == 0 || first + 4 >= self.samples.1 {
            Neighbours::Edge
        } else if strip.is_multiple_of(2) {
            Neighbours::Upper(self.strip(strip / 2 - 1), self.strip(strip / 2))
        } else {
            Neighbours::Lower(self.strip(strip / 2), self.strip(first / ROWS + 1))
        }
    }

    /// The rows of a strip at the upper or lower end of the image, where samples repeat.
    fn edge(&self, x: usize, strip: usize) -> Wide {
        let (first, x) = (strip * ROWS / 2, x + self.plane.first.0);
        let sample = |place: usize| u16::from(self.sample(x, (first + place).saturating_sub(1)));
        blend(std::array::from_fn(sample))
    }
}

/// Where the rows of a strip of the image lie in a plane that has half as many.
enum Neighbours<'a> {
    /// In the upper half of a strip, which follows another.
    Upper(&'a [Column], &'a [Column]),
    /// In the lower half of a strip, which another follows.
    Lower(&'a [Column], &'a [Column]),
    /// At an end of the image.
    Edge,
}

#[inline(always)]
fn upper(before: &Column, own: &Column) -> Wide {
    blend([before[7], own[0], own[1], own[2], own[3], own[4]].map(u16::from))
}

#[inline(always)]
fn lower(own: &Column, after: &Column) -> Wide {
    blend([own[3], own[4], own[5], own[6], own[7], after[0]].map(u16::from))
}

/// Eight rows among six samples: three parts of the nearest and one of the next, as a sum.
#[inline(always)]
fn blend(s: [u16; 6]) -> Wide {
    let near = [s[1], s[1], s[2], s[2], s[3], s[3], s[4], s[4]];
    let far = [s[0], s[2], s[1], s[3], s[2], s[4], s[3], s[5]];
    std::array::from_fn(|row| 3 * near[row] + far[row])
}
