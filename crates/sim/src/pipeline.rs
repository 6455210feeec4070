//! What one worker has in hand: batches that it prepares and runs, each stage one after another.
//!
//! Stages that are busy at the same time slow each other down: both then run `contention` times as
//! long. It counts work and knows nothing of policies.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

use crate::curve::ServiceCurve;

/// How a worker prepares batches while it runs others.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    /// How long preparing takes, by the items of the batch; the curve of the world is the model's.
    pub prepare: ServiceCurve,
    /// Batches that a worker may hold.
    pub slots: usize,
    /// How many times as long both stages run while they overlap.
    pub contention: f64,
}

/// How long a batch took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// On the worker, or in its model where batches are prepared.
    pub exec: Nanos,
    /// From when the worker got it until it was prepared, where batches are.
    pub prepare: Option<Nanos>,
}

impl Took {
    /// Both together.
    #[must_use]
    pub fn whole(&self) -> Nanos {
        self.exec + self.prepare.unwrap_or(0)
    }
}

/// A batch on a worker, with the work that is left.
#[derive(Debug)]
struct StagedBatch {
    members: Vec<u32>,
    handed: Nanos,
    prepare: f64,
    run: f64,
    prepared: Nanos,
    /// Since when the model could take it.
    since: Nanos,
}

/// The batches of one worker, oldest first.
#[derive(Debug)]
pub(crate) struct Pipeline {
    batches: VecDeque<StagedBatch>,
    /// Until when the work is counted.
    at: Nanos,
    contention: f64,
    staged: bool,
    /// How fast its model runs; 1 where it has a device to itself, 0 where another one has its turn.
    pub(crate) speed: f64,
}

impl Pipeline {
    pub(crate) fn new(stages: Option<&Stages>) -> Self {
        let contention = stages.map_or(1.0, |it| it.contention.max(1.0));
        let staged = stages.is_some();
        Self { batches: VecDeque::new(), at: 0, contention, staged, speed: 1.0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    /// The worker gets a batch that takes so long to prepare and to run.
    pub(crate) fn push(&mut self, now: Nanos, members: Vec<u32>, prepare: Nanos, run: Nanos) {
        self.advance(now);
        let (prepare, run) = (prepare as f64, run as f64);
        self.batches.push_back(StagedBatch {
            members,
            handed: now,
            prepare,
            run,
            prepared: now,
            since: now,
        });
    }

    /// When a stage of a batch is over next, and whether it is the last one.
    pub(crate) fn next(&self) -> Option<(Nanos, bool)> {
        let slow = self.slow();
        let after = |left: f64| self.at + ((left * slow).ceil() as Nanos).max(1);
        let prepared = self.preparing().map(|at| (after(self.batches[at].prepare), false));
        let done = self.running().map(|batch| (after(batch.run / self.speed), true));
        // A batch that ends at the same moment ends first.
        done.into_iter().chain(prepared).min_by_key(|&(at, last)| (at, !last))
    }

    /// Counts the work until now.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let worked = (now - self.at) as f64 / self.slow();
        let (preparing, runs) = (self.preparing(), self.running().is_some());
        self.at = now;
        if runs && let Some(first) = self.batches.front_mut() {
            first.run = rest(first.run, worked * self.speed);
        }
        if let Some(at) = preparing {
            let batch = &mut self.batches[at];
            batch.prepare = rest(batch.prepare, worked);
            (batch.prepared, batch.since) = (now, now);
        }
    }

    /// The oldest batch is over.
    pub(crate) fn finish(&mut self, now: Nanos) -> Option<(Vec<u32>, Took)> {
        self.advance(now);
        let StagedBatch { members, handed, prepared, since, .. } = self.batches.pop_front()?;
        if let Some(next) = self.batches.front_mut() {
            next.since = next.prepared.max(now);
        }
        let prepare = self.staged.then_some(prepared - handed);
        Some((members, Took { exec: now - since, prepare }))
    }

    /// The worker is gone with all that it had.
    pub(crate) fn lose(&mut self) -> Vec<u32> {
        self.batches.drain(..).flat_map(|batch| batch.members).collect()
    }

    fn preparing(&self) -> Option<usize> {
        self.batches.iter().position(|batch| batch.prepare > 0.0)
    }

    /// Since when its oldest batch could be in the model, if it is prepared.
    pub(crate) fn asks_since(&self) -> Option<Nanos> {
        self.prepared().map(|batch| batch.since)
    }

    fn prepared(&self) -> Option<&StagedBatch> {
        self.batches.front().filter(|batch| batch.prepare == 0.0)
    }

    fn running(&self) -> Option<&StagedBatch> {
        self.prepared().filter(|_| self.speed > 0.0)
    }

    fn slow(&self) -> f64 {
        let both = self.preparing().is_some() && self.running().is_some();
        if both { self.contention } else { 1.0 }
    }
}

/// What is left of this; less than a nanosecond is nothing.
fn rest(left: f64, worked: f64) -> f64 {
    let left = left - worked;
    if left < 1.0 { 0.0 } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(contention: f64) -> Pipeline {
        let prepare = ServiceCurve::affine(1.0, 0.0, 1);
        Pipeline::new(Some(&Stages { prepare, slots: 2, contention }))
    }

    /// When each batch was over, and how long it took, if both are handed over at the start.
    fn play(contention: f64) -> Vec<(Nanos, Took)> {
        let mut pipeline = pipeline(contention);
        pipeline.push(0, vec![1], 100, 300);
        pipeline.push(0, vec![2], 100, 300);
        let mut over = Vec::new();
        while let Some((now, last)) = pipeline.next() {
            match last {
                true => over.extend(pipeline.finish(now).map(|(_, took)| (now, took))),
                false => pipeline.advance(now),
            }
        }
        over
    }

    #[test]
    fn one_batch_is_prepared_while_another_runs() {
        let took = |prepare, exec| Took { prepare: Some(prepare), exec };
        assert_eq!(play(1.0), [(400, took(100, 300)), (700, took(200, 300))]);
        // 100 of preparing and as much of running take 140 together; 200 are left of the first.
        assert_eq!(play(1.4), [(440, took(100, 340)), (740, took(240, 300))]);
    }

    #[test]
    fn a_worker_without_stages_runs_for_exactly_its_time() {
        let mut pipeline = Pipeline::new(None);
        pipeline.push(50, vec![1], 0, 333);
        assert_eq!(pipeline.next(), Some((383, true)));
        let (_, took) = pipeline.finish(383).expect("it ran");
        assert_eq!(took, Took { exec: 333, prepare: None });
    }
}
