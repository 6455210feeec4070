//! Our JPEG decoder, zune-jpeg and jpeg-decoder on the same files, on one thread: how long each takes, and
//! how far its pixels are from those of Pillow (libjpeg-turbo). bench/jpeg/run.py makes the files.
//!
//! `jitney-jpeg-bench SECONDS NAME=FILE.jpg=FILE.rgb...`: one row of Markdown for each file.

use std::time::Instant;

use jitney_jpeg::{Column, JpegFile, JpegPlanes, ROWS, Strip, StripSource, Window};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

type Decode = fn(&[u8]) -> Vec<u8>;

/// Decodes a window strip by strip, as the resizer reads it.
fn strips(data: &[u8], window: fn(usize, usize) -> Window, mut each: impl FnMut(usize, &Window, &[Vec<Column>])) {
    let (mut file, mut planes) = (JpegFile::open(data).expect("a JPEG"), JpegPlanes::default());
    let (width, height) = file.size();
    let window = window(width, height);
    let image = file.decode(&window, &mut planes).expect("a whole JPEG");
    let mut strip = Strip::default();
    for at in window.strips() {
        image.read(at, window.x.clone(), &mut strip);
        each(at, &window, &strip[..image.channels()]);
    }
}

fn whole(width: usize, height: usize) -> Window {
    Window { x: 0..width, y: 0..height }
}

/// What a centre crop of seven eighths needs, as classifiers take it (256 to 224).
fn centre(width: usize, height: usize) -> Window {
    let side = width.min(height) * 7 / 8;
    let (x, y) = (((width - side) / 2) & !1, (height - side) / 2);
    Window { x: x..x + side, y: y..y + side }
}

fn ours(data: &[u8]) -> Vec<u8> {
    let mut last = Vec::new();
    strips(data, whole, |_, _, lists| last = lists[0].iter().map(|column| column[0]).collect());
    last
}

fn ours_cropped(data: &[u8]) -> Vec<u8> {
    let mut last = Vec::new();
    strips(data, centre, |_, _, lists| last = lists[0].iter().map(|column| column[0]).collect());
    last
}

/// The whole image as the others give it, to compare.
fn ours_in_rows(data: &[u8]) -> Vec<u8> {
    let mut pixels = Vec::new();
    strips(data, whole, |at, window, lists| {
        for row in (0..ROWS).filter(|row| window.y.contains(&(at * ROWS + row))) {
            for x in 0..window.x.len() {
                pixels.extend((0..3).map(|channel| lists[channel.min(lists.len() - 1)][x][row]));
            }
        }
    });
    pixels
}

fn zune(data: &[u8]) -> Vec<u8> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    JpegDecoder::new_with_options(ZCursor::new(data), options).decode().expect("a JPEG")
}

fn jpeg_decoder(data: &[u8]) -> Vec<u8> {
    let mut decoder = jpeg_decoder::Decoder::new(data);
    let pixels = decoder.decode().expect("a JPEG");
    match decoder.info().map(|info| info.pixel_format) {
        Some(jpeg_decoder::PixelFormat::L8) => pixels.iter().flat_map(|&it| [it; 3]).collect(),
        _ => pixels,
    }
}

/// Milliseconds for one image, the least of many.
fn milliseconds(decode: Decode, data: &[u8], seconds: f64) -> f64 {
    let (begin, mut least) = (Instant::now(), f64::INFINITY);
    while begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        std::hint::black_box(decode(std::hint::black_box(data)));
        least = least.min(start.elapsed().as_secs_f64() * 1e3);
    }
    least
}

/// The share of bytes that differ from Pillow's in percent, and the largest difference.
fn difference(pixels: &[u8], wanted: &[u8]) -> String {
    assert_eq!(pixels.len(), wanted.len());
    let pairs = || pixels.iter().zip(wanted).map(|(one, other)| one.abs_diff(*other));
    let differ = pairs().filter(|it| *it > 0).count() as f64 / wanted.len() as f64 * 100.0;
    match pairs().max() {
        Some(0) | None => "equal".to_owned(),
        Some(most) => format!("{differ:.1} %, up to {most}"),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().and_then(|it| it.parse().ok()).expect("SECONDS");
    println!("| image | ours, ms | cropped | zune-jpeg | jpeg-decoder | ours and Pillow | zune-jpeg | jpeg-decoder |");
    println!("|---|--:|--:|--:|--:|---|---|---|");
    for argument in arguments {
        let [name, file, raw] = argument.split('=').collect::<Vec<_>>().try_into().expect("NAME=FILE=RAW");
        let (data, wanted) = (std::fs::read(file).expect(file), std::fs::read(raw).expect(raw));
        let decoders: [Decode; 4] = [ours, ours_cropped, zune, jpeg_decoder];
        let took = decoders.map(|it| format!("{:.2}", milliseconds(it, &data, seconds)));
        let [one, two, three] = [ours_in_rows, zune, jpeg_decoder].map(|it: Decode| difference(&it(&data), &wanted));
        println!("| {name} | {} | {one} | {two} | {three} |", took.join(" | "));
    }
}
