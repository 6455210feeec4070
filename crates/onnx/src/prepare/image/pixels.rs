//! Images that are decoded as a whole: PNG, WebP, and photos that have to be turned upright.

use std::io::Cursor;
use std::ops::Range;

use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder, ImageError as DecoderError, Limits};

use super::super::jpeg::orientation;
use super::super::plane::{Column, ROWS, Strip, StripSource};

/// Why an image is not decoded.
#[derive(Debug, thiserror::Error)]
#[error("the image cannot be decoded: {0}")]
pub(in super::super) struct PixelError(DecoderError);

/// The bytes of an image, row by row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    data: Vec<u8>,
    width: usize,
    height: usize,
    channels: usize,
}

/// The decoder that a file asks for; `None` where there is none.
fn decoder(body: &[u8]) -> Option<Result<Box<dyn ImageDecoder + '_>, DecoderError>> {
    let reader = Cursor::new(body);
    if body.starts_with(b"\x89PNG\r\n\x1a\n") {
        let mut limits = Limits::no_limits();
        // Beyond the pixels, which have a limit of their own: tables and texts.
        limits.max_alloc = Some(1 << 31);
        let decoder = PngDecoder::with_limits(reader, limits);
        return Some(decoder.map(|decoder| Box::new(decoder) as Box<dyn ImageDecoder>));
    }
    if body.starts_with(b"RIFF") && body.get(8..12) == Some(b"WEBP") {
        let decoder = WebPDecoder::new(reader);
        return Some(decoder.map(|decoder| Box::new(decoder) as Box<dyn ImageDecoder>));
    }
    None
}

/// Width and height by the header alone; `None` for files of another kind.
pub(super) fn size(body: &[u8]) -> Result<Option<(usize, usize)>, PixelError> {
    let Some(decoder) = decoder(body) else { return Ok(None) };
    let (width, height) = decoder.map_err(PixelError)?.dimensions();
    Ok(Some((width as usize, height as usize)))
}

/// Decodes an image whose size was found to be good.
pub(super) fn decode(body: &[u8], exif: bool) -> Result<Pixels, PixelError> {
    let unknown = || {
        let hint = image::error::ImageFormatHint::Unknown;
        PixelError(DecoderError::Unsupported(hint.into()))
    };
    let mut decoder = decoder(body).ok_or_else(unknown)?.map_err(PixelError)?;
    let (width, height) = decoder.dimensions();
    let (width, height, color) = (width as usize, height as usize, decoder.color_type());
    let turn = if exif { decoder.exif_metadata().ok().flatten() } else { None };
    let turn =
        turn.and_then(|block| orientation(block.strip_prefix(b"Exif\0\0").unwrap_or(&block)));
    let mut raw = vec![0; decoder.total_bytes() as usize];
    decoder.read_image_boxed(&mut raw).map_err(PixelError)?;
    let (samples, wide) = match color {
        ColorType::L8 => (1, false),
        ColorType::La8 => (2, false),
        ColorType::Rgb8 => (3, false),
        ColorType::Rgba8 => (4, false),
        ColorType::L16 => (1, true),
        ColorType::La16 => (2, true),
        ColorType::Rgb16 => (3, true),
        ColorType::Rgba16 => (4, true),
        ColorType::Rgb32F | ColorType::Rgba32F | _ => return Err(unknown()),
    };
    // Of 16 bits the upper 8 count; transparency does not. Gray of 16 bits alone is cut off at 255, as
    // Pillow does it.
    let step = if wide { 2 } else { 1 };
    let upper = if wide && cfg!(target_endian = "little") { 1 } else { 0 };
    let channels = if samples < 3 { 1 } else { 3 };
    let data = if color == ColorType::L16 {
        let (samples, _) = raw.as_chunks::<2>();
        samples.iter().map(|sample| u16::from_ne_bytes(*sample).min(255) as u8).collect()
    } else if (step, samples) == (1, channels) {
        raw
    } else {
        let pixels = raw.chunks_exact(samples * step);
        pixels.flat_map(|pixel| (0..channels).map(move |it| pixel[it * step + upper])).collect()
    };
    let image = Pixels { data, width, height, channels };
    Ok(match turn {
        Some(turn) if turn > 1 => image.turned(turn),
        _ => image,
    })
}

impl Pixels {
    /// All of an image that is read strip by strip.
    pub(super) fn of(source: &impl StripSource, (width, height): (usize, usize)) -> Self {
        let channels = source.channels();
        let mut data = vec![0; width * height * channels];
        let mut strip = Strip::default();
        for (index, rows) in data.chunks_mut(width * channels * ROWS).enumerate() {
            source.read(index, 0..width, &mut strip);
            for (row, line) in rows.chunks_exact_mut(width * channels).enumerate() {
                for (x, pixel) in line.chunks_exact_mut(channels).enumerate() {
                    pixel.iter_mut().zip(&strip).for_each(|(out, list)| *out = list[x][row]);
                }
            }
        }
        Self { data, width, height, channels }
    }

    /// Width and height.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Upright, if it was taken with the camera held in this of the eight ways.
    pub(super) fn turned(&self, orientation: u16) -> Self {
        let (width, height, channels) = (self.width, self.height, self.channels);
        let swaps = orientation >= 5;
        let (new_width, new_height) = if swaps { (height, width) } else { (width, height) };
        let mut data = Vec::with_capacity(self.data.len());
        for y in 0..new_height {
            for x in 0..new_width {
                let (from_x, from_y) = match orientation {
                    2 => (width - 1 - x, y),
                    3 => (width - 1 - x, height - 1 - y),
                    4 => (x, height - 1 - y),
                    5 => (y, x),
                    6 => (y, height - 1 - x),
                    7 => (width - 1 - y, height - 1 - x),
                    8 => (width - 1 - y, x),
                    _ => (x, y),
                };
                let start = (from_y * width + from_x) * channels;
                data.extend_from_slice(&self.data[start..start + channels]);
            }
        }
        Self { data, width: new_width, height: new_height, channels }
    }
}

impl StripSource for Pixels {
    fn channels(&self) -> usize {
        self.channels
    }

    #[inline(always)]
    fn read(&self, strip: usize, columns: Range<usize>, out: &mut Strip) {
        let (row, channels) = (self.width * self.channels, self.channels);
        for (channel, list) in out.iter_mut().enumerate().take(channels) {
            list.clear();
            list.resize(columns.len(), [0; ROWS]);
            for inner in 0..ROWS {
                let y = (strip * ROWS + inner).min(self.height - 1);
                let line = &self.data[y * row + columns.start * channels + channel..];
                for (column, sample) in list.iter_mut().zip(line.iter().step_by(channels)) {
                    column[inner] = *sample;
                }
            }
        }
    }
}

/// An image in gray, as Pillow weighs the colors.
pub(super) struct GrayOf<'a, S>(pub &'a S);

impl<S: StripSource> StripSource for GrayOf<'_, S> {
    fn channels(&self) -> usize {
        1
    }

    #[inline(always)]
    fn read(&self, strip: usize, columns: Range<usize>, out: &mut Strip) {
        self.0.read(strip, columns, out);
        let [red, green, blue] = out;
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            let gray: Column = std::array::from_fn(|row| {
                let weighed = |list: &Column, weight: u32| u32::from(list[row]) * weight;
                let sum = weighed(red, 19595) + weighed(green, 38470) + weighed(blue, 7471);
                ((sum + 0x8000) >> 16) as u8
            });
            *red = gray;
        }
    }
}

#[cfg(test)]
impl Pixels {
    /// Red, green and blue of every pixel.
    pub(super) fn rgb(&self) -> impl Iterator<Item = u8> {
        let pixel = |pixel: &[u8]| match pixel {
            [gray] => [*gray; 3],
            [red, green, blue, ..] => [*red, *green, *blue],
            _ => [0; 3],
        };
        self.data.chunks_exact(self.channels).flat_map(pixel)
    }
}
