//! Images that are decoded as a whole: PNG, WebP, and photos that have to be turned upright.

use std::io::Cursor;
use std::ops::Range;

use jitney_jpeg::{Column, ROWS, Strip, StripSource, orientation};

/// Beyond the pixels, which have a limit of their own: the tables of a PNG.
const PNG_LIMITS: png::Limits = png::Limits { bytes: 1 << 31 };

/// Why an image is not decoded.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum PixelError {
    #[error("the image cannot be decoded: {0}")]
    Png(#[from] png::DecodingError),
    #[error("the image cannot be decoded: {0}")]
    WebP(#[from] image_webp::DecodingError),
    #[error("the image cannot be decoded: it is of no known kind")]
    UnknownKind,
}

/// The bytes of an image, row by row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    data: Vec<u8>,
    width: usize,
    height: usize,
    channels: usize,
}

/// The decoder that a file asks for.
enum PixelDecoder<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    WebP(Box<image_webp::WebPDecoder<Cursor<&'a [u8]>>>),
}

impl<'a> PixelDecoder<'a> {
    /// Reads the header; `None` for files of another kind.
    fn open(body: &'a [u8]) -> Result<Option<Self>, PixelError> {
        let reader = Cursor::new(body);
        if body.starts_with(b"\x89PNG\r\n\x1a\n") {
            let mut decoder = png::Decoder::new_with_limits(reader, PNG_LIMITS);
            decoder.set_ignore_text_chunk(true);
            // Palettes and fewer than 8 bits become bytes; 16 bits stay.
            decoder.set_transformations(png::Transformations::EXPAND);
            return Ok(Some(Self::Png(Box::new(decoder.read_info()?))));
        }
        if body.starts_with(b"RIFF") && body.get(8..12) == Some(b"WEBP") {
            return Ok(Some(Self::WebP(Box::new(image_webp::WebPDecoder::new(reader)?))));
        }
        Ok(None)
    }

    fn size(&self) -> (usize, usize) {
        let (width, height) = match self {
            Self::Png(reader) => reader.info().size(),
            Self::WebP(decoder) => decoder.dimensions(),
        };
        (width as usize, height as usize)
    }

    /// How many samples a pixel has, and whether each is of 16 bits.
    fn samples(&self) -> (usize, bool) {
        match self {
            Self::Png(reader) => {
                let (color, depth) = reader.output_color_type();
                (color.samples(), depth == png::BitDepth::Sixteen)
            }
            Self::WebP(decoder) => (if decoder.has_alpha() { 4 } else { 3 }, false),
        }
    }

    /// In which of the eight ways the camera was held.
    fn orientation(&mut self) -> Option<u16> {
        let block = match self {
            Self::Png(reader) => reader.info().exif_metadata.as_ref().map(|block| block.to_vec()),
            Self::WebP(decoder) => decoder.exif_metadata().ok().flatten(),
        }?;
        orientation(block.strip_prefix(b"Exif\0\0").unwrap_or(&block))
    }

    /// The samples as they are in the file; those of 16 bits have their upper half first.
    fn read(self) -> Result<Vec<u8>, PixelError> {
        let bytes = match &self {
            Self::Png(reader) => reader.output_buffer_size(),
            Self::WebP(decoder) => decoder.output_buffer_size(),
        };
        let mut raw = vec![0; bytes.ok_or(PixelError::UnknownKind)?];
        match self {
            Self::Png(mut reader) => reader.next_frame(&mut raw).map(drop)?,
            Self::WebP(mut decoder) => decoder.read_image(&mut raw)?,
        }
        Ok(raw)
    }
}

/// Width and height by the header alone; `None` for files of another kind.
pub(super) fn size(body: &[u8]) -> Result<Option<(usize, usize)>, PixelError> {
    Ok(PixelDecoder::open(body)?.map(|decoder| decoder.size()))
}

/// Decodes an image whose size was found to be good.
pub(super) fn decode(body: &[u8], exif: bool) -> Result<Pixels, PixelError> {
    let mut decoder = PixelDecoder::open(body)?.ok_or(PixelError::UnknownKind)?;
    let (width, height) = decoder.size();
    let (samples, wide) = decoder.samples();
    let turn = if exif { decoder.orientation() } else { None };
    let raw = decoder.read()?;
    // Of 16 bits the upper 8 count; transparency does not. Gray of 16 bits alone is cut off at 255, as
    // Pillow does it.
    let step = if wide { 2 } else { 1 };
    let channels = if samples < 3 { 1 } else { 3 };
    let data = if wide && samples == 1 {
        let (samples, _) = raw.as_chunks::<2>();
        samples.iter().map(|sample| u16::from_be_bytes(*sample).min(255) as u8).collect()
    } else if (step, samples) == (1, channels) {
        raw
    } else {
        let pixels = raw.chunks_exact(samples * step);
        pixels.flat_map(|pixel| (0..channels).map(move |it| pixel[it * step])).collect()
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
