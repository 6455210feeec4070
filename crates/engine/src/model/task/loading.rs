//! A worker that loads and warms up: how far it is, what it found, and the batches that make it warm.

use jitney_batcher::{Event, Measure};

use super::Task;
use crate::model::scatter;
use crate::model::scheduler::SlotChange;
use crate::outcome::BatchOutcome;
use crate::pool::{
    BatchOrder, BatchRun, LoadProgress, LoadedReport, MeasuredRun, WorkerBatch, WorkerCapacity,
};

impl Task {
    /// A worker is so far with loading, or with warming up.
    pub(super) fn on_progress(&mut self, worker: u32, step: LoadProgress) {
        self.reporter.progress(worker, &step);
        self.pool.progressed(worker, step);
        self.published.publish_workers(self.pool.views());
    }

    /// Takes over what a worker found when it loaded.
    pub(super) fn learn(&mut self, worker: u32, capacity: WorkerCapacity, report: &LoadedReport) {
        for note in &report.notes {
            self.reporter.note(worker, note);
        }
        if let Some(config) = self.scheduler.sizes.report(&report.sizes) {
            self.configure(config);
        }
        if !self.scheduler.is_adaptive() {
            return;
        }
        let measure = self.scheduler.batcher.config().measure;
        for run in &report.measured {
            if let Some(event) = learned(run, measure, capacity) {
                self.step(event);
            }
        }
    }

    /// The first batch of a warm-up, for a worker that needs one.
    pub(super) fn first_sample(&mut self, worker: u32) -> Option<WorkerBatch> {
        let config = self.scheduler.batcher.config();
        let warms_up = self.scheduler.is_adaptive() || !config.sizes.is_empty();
        let warm_up = self.warm_up.as_mut().filter(|_| warms_up && self.closing.is_none());
        warm_up.and_then(|it| it.begin(worker, config))
    }

    /// Gives a worker its next batch of a warm-up; without one it serves from now on.
    pub(super) fn warm_up_or_serve(&mut self, worker: u32, batch: Option<WorkerBatch>) {
        if batch.is_some_and(|batch| self.pool.hand(worker, batch).is_ok()) {
            return;
        }
        self.warm_up.as_mut().map(|warm_up| warm_up.forget(worker));
        self.pool.serves(worker);
        self.turns.worker_up(worker);
        self.tell_slots(worker, SlotChange::Up);
        self.pool_changed();
    }

    pub(super) fn on_warm_up_finished(
        &mut self,
        worker: u32,
        batch: &WorkerBatch,
        outcome: BatchOutcome,
        run: BatchRun,
    ) {
        if let Err(failure) = scatter::checked(outcome, batch.requests.len()) {
            self.reporter.sample_failed(&failure.message);
            self.warm_up = None;
        }
        let config = self.scheduler.batcher.config();
        let next = self.warm_up.as_mut().map(|warm_up| warm_up.next(worker, run, config));
        let (learned, batch) = next.unwrap_or_default();
        if let Some(learned) = learned.filter(|_| self.scheduler.is_adaptive()) {
            self.step(learned);
        }
        if let Some(step) = self.warm_up.as_ref().and_then(|warm_up| warm_up.progress(worker)) {
            self.on_progress(worker, step);
        }
        self.warm_up_or_serve(worker, batch);
    }
}

/// What the batcher learns of a batch that a worker ran to warm up; nothing where its cost is unknown.
fn learned(run: &MeasuredRun, measure: Measure, capacity: WorkerCapacity) -> Option<Event> {
    let items = u64::from(run.items);
    let cost = match measure {
        Measure::Items => items,
        Measure::Padded => run.length?.saturating_mul(items),
        Measure::Packed => return None,
    };
    let overlaps = capacity.order == BatchOrder::Overlapping;
    // Elsewhere the worker does one after the other.
    let exec = if overlaps { run.model } else { run.prepare + run.model };
    Some(Event::Measured {
        group: 0,
        items: run.items,
        cost,
        exec: exec.as_nanos() as u64,
        prepare: overlaps.then_some(run.prepare.as_nanos() as u64),
    })
}
