//! How the bytes of an image become a tensor: decoded, resized, cropped and normalised as torchvision does
//! it on Pillow's images.
//!
//! What the crop leaves out is neither decoded nor resized where that can be helped, and the numbers
//! that bytes become are looked up in a table.

mod geometry;
mod pixels;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use half::f16;
use jitney_engine::local::{Dim, Signature};
use jitney_engine::tensors::Datatype;
use jitney_jpeg::{JpegError, JpegFile, JpegPlanes, StripSource, Window};
use rten_simd::{Isa, SimdOp};
use serde::Deserialize;

use self::geometry::{Axis, Size};
use self::pixels::{GrayOf, PixelError, Pixels};
use super::resample::{Interpolation, ResampleBuffers, resample};

/// The keys of the card's section.
pub(in super::super) const IMAGE_KEYS: &[&str] = &[
    "resize",
    "crop",
    "mean",
    "std",
    "scale",
    "layout",
    "interpolation",
    "color",
    "exif",
    "max_pixels",
];

/// Pillow's limit.
const MAX_PIXELS_DEFAULT: u64 = 89_478_485;

/// The card's `image: {...}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ImageRule {
    resize: Option<Size>,
    crop: Option<Size>,
    mean: Option<PerChannel>,
    std: Option<PerChannel>,
    scale: Option<f64>,
    layout: Option<Layout>,
    #[serde(default = "bilinear")]
    interpolation: Interpolation,
    #[serde(default)]
    color: ColorOrder,
    #[serde(default)]
    exif: bool,
    #[serde(default = "max_pixels")]
    max_pixels: u64,
}

fn bilinear() -> Interpolation {
    Interpolation::Bilinear
}

fn max_pixels() -> u64 {
    MAX_PIXELS_DEFAULT
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum PerChannel {
    Same(f64),
    Each(Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Layout {
    Nchw,
    Nhwc,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ColorOrder {
    #[default]
    Rgb,
    Bgr,
    Gray,
}

impl ColorOrder {
    fn channels(self) -> usize {
        if self == Self::Gray { 1 } else { 3 }
    }
}

/// Why an image does not become a tensor, in words for its client.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageError {
    #[error("the body is neither a JPEG nor a PNG nor a WebP image")]
    UnknownKind,
    #[error("the image has {width} x {height} pixels; at most {most} in all are accepted")]
    TooLarge { width: usize, height: usize, most: u64 },
    #[error("the JPEG image cannot be decoded: {0}")]
    Jpeg(#[from] JpegError),
    #[error(transparent)]
    Pixels(#[from] PixelError),
    #[error("the image cannot be decoded")]
    Panicked,
}

/// A rule that was fitted to a model.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct ImagePreparation {
    rule: ImageRule,
    layout: Layout,
    /// Height and width of what the model takes.
    size: (usize, usize),
    /// The model's element type.
    pub datatype: Datatype,
    /// What each byte becomes, by channel of the tensor.
    numbers: Vec<Vec<f32>>,
}

/// What a thread needs to prepare one image after the other.
#[derive(Debug, Default)]
struct ImageBuffers {
    planes: JpegPlanes,
    resample: ResampleBuffers,
}

thread_local! {
    static BUFFERS: RefCell<ImageBuffers> = RefCell::default();
}

impl ImageRule {
    /// The rule with what the model says; a sentence where the two do not fit.
    pub(in super::super) fn fit(&self, signature: &Signature) -> Result<ImagePreparation, String> {
        let [spec] = signature.inputs.as_slice() else {
            return Err(format!("image: the model has {} inputs, not one", signature.inputs.len()));
        };
        let whole = self.crop.or(self.resize).and_then(Size::both);
        let whole = whole.or_else(|| self.crop.map(Size::square));
        let (height, width) = whole.ok_or(
            "image: the size of the tensor is not known: add \"crop\", or say \"resize: [height, width]\"",
        )?;
        if height == 0 || width == 0 || self.resize.is_some_and(Size::is_empty) {
            return Err("image: a size is 0".to_owned());
        }
        let channels = self.color.channels();
        let shape = spec.shape.as_deref().unwrap_or_default();
        let last_fits = matches!(shape, [_, first, _, Dim::Fixed(last)] if *last == channels
            && *first != Dim::Fixed(channels));
        let layout = self.layout.unwrap_or(if last_fits { Layout::Nhwc } else { Layout::Nchw });
        let sizes = match layout {
            Layout::Nchw => [channels, height, width],
            Layout::Nhwc => [height, width, channels],
        };
        let fits = |(dim, size): (&Dim, &usize)| match dim {
            Dim::Fixed(fixed) => fixed == size,
            Dim::Open(_) => true,
        };
        let shape_fits =
            spec.shape.is_none() || shape.len() == 4 && shape[1..].iter().zip(&sizes).all(fits);
        let type_fits = matches!(spec.datatype, Datatype::Fp32 | Datatype::Fp16 | Datatype::Uint8);
        if !shape_fits || !type_fits {
            let [first, second, third] = sizes;
            return Err(format!(
                "image makes FP32, FP16 or UINT8 of shape [n, {first}, {second}, {third}], the \
                 model takes {spec}"
            ));
        }
        let numbers = (0..channels).map(|channel| self.numbers(channel, spec.datatype));
        let numbers = numbers.collect::<Result<_, _>>()?;
        let (rule, size, datatype) = (self.clone(), (height, width), spec.datatype);
        Ok(ImagePreparation { rule, layout, size, datatype, numbers })
    }

    /// What each byte of a channel becomes.
    fn numbers(&self, channel: usize, datatype: Datatype) -> Result<Vec<f32>, String> {
        let channels = self.color.channels();
        let of = |list: &Option<PerChannel>, key: &str, default: f64| match list {
            None => Ok(default),
            Some(PerChannel::Same(value)) => Ok(*value),
            Some(PerChannel::Each(values)) if values.len() == channels => Ok(values[channel]),
            Some(PerChannel::Each(values)) => {
                Err(format!("image.{key}: {} numbers for {channels} channels", values.len()))
            }
        };
        let (mean, std) = (of(&self.mean, "mean", 0.0)? as f32, of(&self.std, "std", 1.0)? as f32);
        if std == 0.0 || ![mean, std].iter().all(|number| number.is_finite()) {
            return Err("image.std: a number is 0 or not finite".to_owned());
        }
        if datatype == Datatype::Uint8 {
            let plain =
                [&self.mean, &self.std].iter().all(|it| it.is_none()) && self.scale.is_none();
            return if plain {
                Ok((0..=255u8).map(f32::from).collect())
            } else {
                Err("image: the model takes bytes, so that mean, std and scale do not fit"
                    .to_owned())
            };
        }
        let number = |byte: u8| {
            let byte = f32::from(byte);
            let scaled = self.scale.map_or(byte / 255.0, |scale| byte * scale as f32);
            (scaled - mean) / std
        };
        Ok((0..=255).map(number).collect())
    }
}

impl ImagePreparation {
    /// The shape of one image, with the batch dimension.
    pub(in super::super) fn shape(&self) -> Vec<usize> {
        let ((height, width), channels) = (self.size, self.rule.color.channels());
        match self.layout {
            Layout::Nchw => vec![1, channels, height, width],
            Layout::Nhwc => vec![1, height, width, channels],
        }
    }

    /// The elements of the tensor, raw.
    pub(in super::super) fn prepare(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        // A decoder that panics must not take the neighbours with it.
        let prepared = catch_unwind(AssertUnwindSafe(|| {
            BUFFERS.with_borrow_mut(|buffers| self.prepare_in(body, buffers))
        }));
        let prepared = prepared.unwrap_or(Err(ImageError::Panicked));
        prepared.map_err(|error| error.to_string())
    }

    fn prepare_in(&self, body: &[u8], buffers: &mut ImageBuffers) -> Result<Vec<u8>, ImageError> {
        if self.datatype == Datatype::Fp16 {
            self.elements(body, buffers, |number| f16::from_f32(number).to_le_bytes())
        } else if self.datatype == Datatype::Uint8 {
            self.elements(body, buffers, |number| [number as u8])
        } else {
            self.elements(body, buffers, f32::to_le_bytes)
        }
    }

    fn elements<const WIDTH: usize>(
        &self,
        body: &[u8],
        buffers: &mut ImageBuffers,
        element: impl Fn(f32) -> [u8; WIDTH],
    ) -> Result<Vec<u8>, ImageError> {
        let table = |numbers: &Vec<f32>| {
            let mut table = [[0; WIDTH]; 256];
            table.iter_mut().zip(numbers).for_each(|(out, number)| *out = element(*number));
            table
        };
        let tables: Vec<_> = self.numbers.iter().map(table).collect();
        let elements: usize = self.shape().iter().product();
        let mut out = vec![0; elements * WIDTH];
        let rows = &mut TensorRows { preparation: self, tables: &tables, out: &mut out };
        Prepare { preparation: self, body, buffers, rows }.dispatch()?;
        Ok(out)
    }

    fn check_size(&self, (width, height): (usize, usize)) -> Result<(), ImageError> {
        let most = self.rule.max_pixels;
        let pixels = (width as u64).saturating_mul(height as u64);
        if pixels > most { Err(ImageError::TooLarge { width, height, most }) } else { Ok(()) }
    }

    /// What is kept of an image of this size.
    fn axes(&self, (width, height): (usize, usize)) -> (Axis, Axis) {
        let (to_width, to_height) = match self.rule.resize {
            None => (width, height),
            Some(size) => size.resized(width, height),
        };
        let by = self.rule.interpolation;
        (Axis::new(by, width, to_width, self.size.1), Axis::new(by, height, to_height, self.size.0))
    }
}

/// Takes the rows of the resized image. Behind `dyn`, as the work before it is compiled for each set of instructions: it
/// need not be compiled for each width of an element, too.
trait ImageRows {
    /// Makes everything black.
    fn blacken(&mut self);

    /// Writes one row of a channel of the image, or of its only one, from an element on.
    fn write(&mut self, single: bool, channel: usize, at: (usize, usize), line: &[u8]);
}

/// The tensor, whose elements are looked up.
struct TensorRows<'a, const WIDTH: usize> {
    preparation: &'a ImagePreparation,
    tables: &'a [[[u8; WIDTH]; 256]],
    out: &'a mut [u8],
}

impl<const WIDTH: usize> TensorRows<'_, WIDTH> {
    /// Where a channel begins, and how far its rows and the elements of a row are from each other.
    fn strides(&self, channel: usize) -> (usize, usize, usize) {
        let ImagePreparation { layout, size: (height, width), .. } = self.preparation;
        match layout {
            Layout::Nchw => (channel * height * width, *width, 1),
            Layout::Nhwc => (channel, width * self.tables.len(), self.tables.len()),
        }
    }
}

impl<const WIDTH: usize> ImageRows for TensorRows<'_, WIDTH> {
    fn blacken(&mut self) {
        let (height, width) = self.preparation.size;
        for (channel, table) in self.tables.iter().enumerate() {
            let (start, row, step) = self.strides(channel);
            let (out, _) = self.out.as_chunks_mut::<WIDTH>();
            for y in 0..height {
                let line = out[start + y * row..].iter_mut().step_by(step).take(width);
                line.for_each(|element| *element = table[0]);
            }
        }
    }

    fn write(&mut self, single: bool, channel: usize, (x, y): (usize, usize), line: &[u8]) {
        let (channels, last) = (self.tables.len(), self.tables.len() - 1);
        let reversed = self.preparation.rule.color == ColorOrder::Bgr;
        let of = match (single, reversed) {
            (true, _) => 0..channels,
            (false, true) => last - channel..channels - channel,
            (false, false) => channel..channel + 1,
        };
        for channel in of {
            let (start, row, step) = self.strides(channel);
            let (out, _) = self.out.as_chunks_mut::<WIDTH>();
            let out = &mut out[start + y * row + x * step..];
            let table = &self.tables[channel];
            if step == 1 {
                for (element, byte) in out[..line.len()].iter_mut().zip(line) {
                    *element = table[usize::from(*byte)];
                }
            } else {
                let elements = out.iter_mut().step_by(step);
                elements.zip(line).for_each(|(element, byte)| *element = table[usize::from(*byte)]);
            }
        }
    }
}

/// The work on one image, in the widest instructions that the processor has.
struct Prepare<'a> {
    preparation: &'a ImagePreparation,
    body: &'a [u8],
    buffers: &'a mut ImageBuffers,
    rows: &'a mut dyn ImageRows,
}

impl SimdOp for Prepare<'_> {
    type Output = Result<(), ImageError>;

    #[inline(always)]
    fn eval<I: Isa>(mut self, _isa: I) -> Self::Output {
        let rule = &self.preparation.rule;
        let image = if self.body.starts_with(b"\xff\xd8\xff") {
            let mut file = JpegFile::open(self.body)?;
            let (width, height) = file.size();
            self.preparation.check_size((width, height))?;
            let orientation = if rule.exif { file.orientation() } else { 1 };
            let (across, down) = self.preparation.axes((width, height));
            let window = if orientation == 1 {
                Window { x: across.taps.needed(), y: down.taps.needed() }
            } else {
                Window { x: 0..width, y: 0..height }
            };
            let mut planes = std::mem::take(&mut self.buffers.planes);
            let image = file.decode(&window, &mut planes)?;
            if orientation == 1 {
                self.write(&image, (&across, &down));
                self.buffers.planes = planes;
                return Ok(());
            }
            Pixels::of(&image, (width, height)).turned(orientation)
        } else {
            let size = pixels::size(self.body)?.ok_or(ImageError::UnknownKind)?;
            self.preparation.check_size(size)?;
            pixels::decode(self.body, rule.exif)?
        };
        let (across, down) = self.preparation.axes(image.size());
        self.write(&image, (&across, &down));
        Ok(())
    }
}

impl Prepare<'_> {
    #[inline(always)]
    fn write(&mut self, image: &impl StripSource, axes: (&Axis, &Axis)) {
        if self.preparation.rule.color == ColorOrder::Gray && image.channels() == 3 {
            self.write_channels(&GrayOf(image), axes);
        } else {
            self.write_channels(image, axes);
        }
    }

    #[inline(always)]
    fn write_channels(&mut self, image: &impl StripSource, (across, down): (&Axis, &Axis)) {
        if across.is_padded() || down.is_padded() {
            // What lies beside the image is black.
            self.rows.blacken();
        }
        let (single, kept) = (image.channels() == 1, across.taps.len());
        let taps = (&across.taps, &down.taps);
        resample(image, taps, &mut self.buffers.resample, |channel, y, line| {
            let at = (across.offset, down.offset + y);
            self.rows.write(single, channel, at, &line[..kept]);
        });
    }
}

#[cfg(test)]
mod tests;
