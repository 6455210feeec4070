//! What came of the copies that a version got as a shadow, and the pairs of answers that were kept because they differ.

use std::collections::BTreeMap;

use jitney_engine::Engine;
use jitney_telemetry::counted;
use serde::Serialize;

use crate::errors::Problem;
use crate::route::ModelRef;

/// The answer to `GET /models/{m}/{v}/shadow`.
#[derive(Debug, Serialize)]
pub(crate) struct ShadowReport {
    /// The share of requests of which it gets copies now, from 0 to 1.
    share: Option<f64>,
    /// Copies by how they ended.
    outcomes: BTreeMap<String, u64>,
    /// The first that differ, where `shadow_samples` keeps some.
    samples: Vec<SampleReport>,
}

#[derive(Debug, Serialize)]
struct SampleReport {
    id: String,
    time: String,
    /// What the client got.
    old: String,
    /// What the shadow answered.
    new: String,
}

/// The copies of a version, the default one if none is named.
pub(crate) fn shadow(engine: &Engine, target: ModelRef<'_>) -> Result<ShadowReport, Problem> {
    let model = engine.model(target.model, target.version)?;
    let book = model.shadow();
    let samples = book.samples();
    let samples = samples.iter().map(|sample| SampleReport {
        id: sample.id.clone(),
        time: humantime::format_rfc3339_millis(sample.time).to_string(),
        old: sample.old.clone(),
        new: sample.new.clone(),
    });
    let (share, outcomes) = (book.share(), counted(book.counts()));
    Ok(ShadowReport { share, outcomes, samples: samples.collect() })
}
