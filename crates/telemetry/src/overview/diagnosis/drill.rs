//! A server in virtual time, on which incidents are played.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::limit::Limit;
use super::problems;
use super::version::VersionView;
use crate::overview::document::{MachineOverview, OverviewDocument};
use crate::overview::history::SampleHistory;
use crate::overview::model_entry::{ModelOverview, SizeCount};
use crate::overview::problem::{ProblemTone, ServerProblem};
use crate::overview::sampler::{ModelSample, OverviewSample};
use crate::overview::timestamp::rfc3339;
use crate::overview::version_record::VersionLook;
use crate::overview::worker_entry::WorkerOverview;

/// What happens to one version in a second.
#[derive(Clone, Copy)]
pub(super) struct Second {
    pub(super) answered: u64,
    pub(super) late: u64,
    pub(super) rejected: (&'static str, u64),
    pub(super) failed: u64,
    pub(super) size: u32,
    pub(super) compute_ms: f64,
    /// Percent of a processor that its worker uses and waits for.
    pub(super) cpu: (f64, f64),
    pub(super) memory: u64,
}

pub(super) const WELL: Second = Second {
    answered: 30,
    late: 0,
    rejected: ("queue_full", 0),
    failed: 0,
    size: 1,
    compute_ms: 10.0,
    cpu: (60.0, 1.0),
    memory: 100_000_000,
};

/// A server in virtual time.
pub(super) struct Drill {
    pub(super) document: OverviewDocument,
    history: SampleHistory,
    samples: HashMap<String, Box<ModelSample>>,
    seconds: u64,
}

pub(super) fn model(name: &str, version: &str) -> ModelOverview {
    ModelOverview {
        name: name.to_owned(),
        version: version.to_owned(),
        is_default: true,
        state: "ready".to_owned(),
        max_batch_size: 8,
        max_latency_ms: Some(50.0),
        workers_min: 1,
        workers: vec![WorkerOverview {
            id: 9000,
            pid: Some(7),
            state: "ready".to_owned(),
            ..WorkerOverview::default()
        }],
        queue_max: 100,
        ..ModelOverview::default()
    }
}

impl Drill {
    /// A machine of ten processors.
    pub(super) fn new(models: Vec<ModelOverview>) -> Self {
        let machine = MachineOverview {
            cpu_percent: Some(20.0),
            memory_used_bytes: 8 << 30,
            memory_total_bytes: 64 << 30,
            processors: 10,
            disk_free_bytes: Some(50 << 30),
            disk_total_bytes: Some(100 << 30),
        };
        let mut document = OverviewDocument { models, ..OverviewDocument::default() };
        document.machine = Some(machine);
        let (history, samples) = (SampleHistory::default(), HashMap::new());
        Self { document, history, samples, seconds: 0 }
    }

    pub(super) fn one() -> Self {
        Self::new(vec![model("m", "1.0")])
    }

    pub(super) fn machine(&mut self) -> &mut MachineOverview {
        self.document.machine.as_mut().unwrap()
    }

    /// So many seconds in which the same happens to each version.
    pub(super) fn run(&mut self, seconds: u64, each: &[Second]) {
        for _ in 0..seconds / 2 {
            self.seconds += 2;
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + self.seconds);
            self.document.time = (1_000_000 + self.seconds) * 1000;
            let (mut sampled, mut looks) = (OverviewSample::default(), HashMap::new());
            sampled.time = self.document.time;
            for (model, second) in self.document.models.iter_mut().zip(each) {
                let sample = self.samples.entry(model.key()).or_default();
                happen(model, sample, second);
                if second.failed > 0 {
                    model.last_error_time = Some(rfc3339(now));
                }
                sampled.models.insert(model.key(), sample.clone());
                let memory = vec![(7, second.memory)];
                looks.insert(model.key(), VersionLook { sizes: model.batch_sizes.clone(), memory });
            }
            self.history.push(sampled, looks);
        }
    }

    pub(super) fn problems(&self) -> Vec<ServerProblem> {
        problems(&self.document, &self.history)
    }

    /// What a version is short of.
    pub(super) fn limit(&self, at: usize) -> Limit {
        Limit::of(&VersionView::new(&self.document.models[at], &self.document, &self.history))
    }

    /// The first line as the dashboard shows it.
    pub(super) fn first(&self) -> (ProblemTone, String, String) {
        let first = self.problems().into_iter().next().expect("something is wrong");
        (first.tone, first.what, first.advice)
    }
}

/// Two seconds of it.
fn happen(model: &mut ModelOverview, sample: &mut ModelSample, second: &Second) {
    let (reason, rejected) = second.rejected;
    sample.requests += 2 * (second.answered + rejected + second.failed);
    sample.answered += 2 * second.answered;
    sample.late += 2 * second.late;
    sample.rejected += 2 * rejected;
    sample.failed += 2 * second.failed;
    sample.restarts = model.restarts;
    *sample.rejections.entry(reason.to_owned()).or_default() += 2 * rejected;
    let worker = &mut model.workers[0];
    (worker.cpu_percent, worker.cpu_wait_percent) = (Some(second.cpu.0), Some(second.cpu.1));
    worker.memory_bytes = Some(second.memory);
    let known = model.batch_sizes.iter().position(|count| count.size == second.size);
    let place = known.unwrap_or_else(|| {
        model.batch_sizes.push(SizeCount { size: second.size, ..SizeCount::default() });
        model.batch_sizes.len() - 1
    });
    let batches = 2 * second.answered.div_ceil(u64::from(second.size));
    model.batch_sizes[place].answered += batches;
    let compute_seconds = batches as f64 * second.compute_ms / 1e3;
    model.batch_sizes[place].compute_seconds += compute_seconds;
    sample.compute_seconds_sum += compute_seconds;
    sample.batches += batches;
}
