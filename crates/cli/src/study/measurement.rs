//! Measures a running model for `jitney plan URL`: more and more clients ask it, and its server learns from them how
//! long batches take.

use std::time::Duration;

use jitney_load::LoadUrl;
use jitney_sim::curve::WrittenCurve;

use super::curve_file;
use crate::bench;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::bench::BenchFlags;
use crate::flags::remote::ServerFlags;
use crate::flags::study::PlanFlags;
use crate::progress::Progress;
use crate::remote::block_on;
use crate::remote::client::RemoteClient;
use crate::units::Span;

/// The most clients unless a largest batch is given.
const CLIENTS_MAX: usize = 64;
/// Load before each step that does not count.
const WARM_UP: Duration = Duration::from_millis(200);

/// What was measured.
#[derive(Debug)]
pub struct Measurement {
    /// How long batches take.
    pub curve: WrittenCurve,
    /// What clients saw, from few to many.
    pub steps: Vec<MeasuredStep>,
}

/// So many clients that each wait for their answers.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredStep {
    /// How many.
    pub clients: usize,
    /// Answers per second.
    pub rate: f64,
    /// Latencies in milliseconds.
    pub p50: f64,
    /// See above.
    pub p99: f64,
}

/// Puts the model under load and takes the curve that its server has learned.
pub fn measure(flags: &PlanFlags, url: &str, env: &Env) -> Result<Measurement, Failure> {
    let model = model_of(url)?;
    let server = ServerFlags { url: flags.management.clone(), ..ServerFlags::default() };
    let client = RemoteClient::new(&server, env)?;
    let most = flags.max_batch.map_or(CLIENTS_MAX, |batch| (2 * batch).max(1));
    let (mut progress, mut steps) = (Progress::new(), Vec::new());
    for clients in (0..).map(|power| 1usize << power).take_while(|&clients| clients <= most) {
        progress.say(&format!("measuring {model} with {clients} clients"));
        steps.push(step(flags, url, clients)?);
    }
    drop(progress);
    let learned = block_on(client.document(&["models", &model, "batching"], &[]))?;
    let curve = curve_file::parse(&learned.to_string());
    let curve = curve.map_err(|error| {
        Failure::failed(format!("the server has no curve of {model} yet: {error}"))
            .hint("a longer --step gives it more batches to learn from")
    })?;
    Ok(Measurement { curve, steps })
}

/// The last part of the path.
fn model_of(url: &str) -> Result<String, Failure> {
    let address: LoadUrl = url.parse().map_err(Failure::usage)?;
    let path = address.path.split('?').next().unwrap_or_default().trim_end_matches('/');
    match path.rsplit('/').next() {
        Some(model) if !model.is_empty() => Ok(model.to_owned()),
        Some(_) | None => Err(Failure::usage(format!("{url} names no model"))
            .hint("write it like http://127.0.0.1:8080/predictions/MODEL")),
    }
}

fn step(flags: &PlanFlags, url: &str, clients: usize) -> Result<MeasuredStep, Failure> {
    let total = bench::measure(&BenchFlags {
        url: url.to_owned(),
        connections: Some(clients),
        duration: Some(flags.step),
        warm_up: Some(Span(WARM_UP)),
        body: flags.body.clone(),
        body_file: flags.body_file.clone(),
        header: flags.header.clone(),
        seed: 1,
        pools: 1,
        threads: 1,
        ..BenchFlags::default()
    })?
    .total;
    let (rate, p50, p99) = (total.answered_per_s, total.answer_p50_ms, total.answer_p99_ms);
    Ok(MeasuredStep { clients, rate, p50, p99 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_the_last_part_of_the_path() {
        for (url, model) in [
            ("http://127.0.0.1:8080/predictions/resnet", "resnet"),
            ("http://127.0.0.1:8080/slow/?x=1", "slow"),
            ("grpc://127.0.0.1:7070/bert", "bert"),
        ] {
            assert_eq!(model_of(url).expect("a model"), model);
        }
        let nothing = model_of("http://127.0.0.1:8080/").expect_err("no model");
        assert!(nothing.message.ends_with("names no model"), "{nothing}");
    }
}
