//! Prepares images one after the other on one thread and prints how long that took, in processor time;
//! bench/prepare.py compares it with Pillow.
//!
//! `prepare SECONDS FILE...`, or `prepare dump FILE...` for the raw elements of each.

#![expect(clippy::print_stdout, reason = "an example that prints")]

use std::io::Write;

use rustix::time::{ClockId, clock_gettime};

const SECTION: &str =
    "{resize: 256, crop: 224, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}";

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("prepare SECONDS|dump FILE...")?;
    let read = |path: String| std::fs::read(&path).map_err(|error| format!("{path}: {error}"));
    let files = arguments.map(read).collect::<Result<Vec<_>, _>>()?;
    let prepare = jitney_onnx::image_preparer(SECTION, [3, 224, 224])?;
    if what == "dump" {
        for file in &files {
            let written = std::io::stdout().write_all(&prepare(file)?);
            written.map_err(|error| error.to_string())?;
        }
        return Ok(());
    }
    let seconds: f64 = what.parse().map_err(|_| "SECONDS is no number")?;
    let (start, mut images) = (cpu_seconds(), 0);
    while cpu_seconds() - start < seconds {
        for file in &files {
            prepare(file)?;
        }
        images += files.len();
    }
    let seconds = cpu_seconds() - start;
    println!("{{\"images\": {images}, \"cpu_seconds\": {seconds}}}");
    Ok(())
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
