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
        Prepare { preparation: self, body, buffers, tables: &tables, out: &mut out }.dispatch()?;
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

/// The work on one image, in the widest instructions that the processor has.
struct Prepare<'a, const WIDTH: usize> {
    preparation: &'a ImagePreparation,
    body: &'a [u8],
    buffers: &'a mut ImageBuffers,
    tables: &'a [[[u8; WIDTH]; 256]],
    out: &'a mut [u8],
}

impl<const WIDTH: usize> SimdOp for Prepare<'_, WIDTH> {
    type Output = Result<(), ImageError>;

    #[inline(always)]
    fn eval<I: Isa>(mut self, _isa: I) -> Self::Output {
        let rule = &self.preparation.rule;
        if !self.body.starts_with(b"\xff\xd8\xff") {
            let size = pixels::size(self.body)?.ok_or(ImageError::UnknownKind)?;
            self.preparation.check_size(size)?;
            let image = pixels::decode(self.body, rule.exif)?;
            return self.finish(&image);
        }
        let mut file = JpegFile::open(self.body)?;
        self.preparation.check_size(file.size())?;
        let (width, height) = file.size();
        let mut planes = std::mem::take(&mut self.buffers.planes);
        if rule.exif && file.orientation() != 1 {
            let orientation = file.orientation();
            let image = file.decode(&Window { x: 0..width, y: 0..height }, &mut planes)?;
            let image = Pixels::of(&image, (width, height)).turned(orientation);
            return self.finish(&image);
        }
        let (across, down) = self.preparation.axes((width, height));
        let window = Window { x: across.taps.needed(), y: down.taps.needed() };
        let image = file.decode(&window, &mut planes)?;
        self.write(&image, (&across, &down));
        self.buffers.planes = planes;
        Ok(())
    }
}

impl<const WIDTH: usize> Prepare<'_, WIDTH> {
    #[inline(always)]
    fn finish(&mut self, image: &Pixels) -> Result<(), ImageError> {
        let (across, down) = self.preparation.axes(image.size());
        self.write(image, (&across, &down));
        Ok(())
    }

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
        let Self { preparation, buffers, tables, out, .. } = self;
        let ImagePreparation { rule, layout, size: (height, width), .. } = preparation;
        let (out, _) = out.as_chunks_mut::<WIDTH>();
        let channels = tables.len();
        let starts = |channel: usize| match layout {
            Layout::Nchw => (channel * height * width, *width, 1),
            Layout::Nhwc => (channel, width * channels, channels),
        };
        if across.is_padded() || down.is_padded() {
            // What lies beside the image is black.
            for (channel, table) in tables.iter().enumerate() {
                let (start, row, step) = starts(channel);
                for y in 0..*height {
                    let line = out[start + y * row..].iter_mut().step_by(step).take(*width);
                    line.for_each(|element| *element = table[0]);
                }
            }
        }
        let last = channels - 1;
        let reversed = rule.color == ColorOrder::Bgr;
        let single = image.channels() == 1;
        let kept = across.taps.len();
        resample(image, (&across.taps, &down.taps), &mut buffers.resample, |channel, y, line| {
            let of = match (single, reversed) {
                (true, _) => 0..channels,
                (false, true) => last - channel..channels - channel,
                (false, false) => channel..channel + 1,
            };
            for channel in of {
                let (start, row, step) = starts(channel);
                let out = &mut out[start + (down.offset + y) * row + across.offset * step..];
                let table = &tables[channel];
                if step == 1 {
                    for (element, byte) in out[..kept].iter_mut().zip(line) {
                        *element = table[usize::from(*byte)];
                    }
                } else {
                    let places = out.iter_mut().step_by(step).take(kept);
                    places
                        .zip(line)
                        .for_each(|(element, byte)| *element = table[usize::from(*byte)]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
