//! The batcher of the server as a scheduler of the simulator.
//!
//! It only translates: request numbers to the dense indices the batcher wants, actions to orders. The
//! number of a request is the generation of its index, so that it can be read back from its id.

use std::collections::VecDeque;

use jitney_batcher::{
    Action, Actions, BatchId, Batcher, Config, Dispatch, DownReason, Event, Nanos, Origin,
    OriginKind, Request, RequestId, WorkerId,
};

use crate::job::Job;
use crate::pipeline::Took;
use crate::scheduler::{Orders, Scheduler};

/// Most requests that may wait: so many that only the policy rejects.
const QUEUE_MAX: u32 = 1_000_000;

/// A [`Batcher`] with simulated workers.
#[derive(Debug)]
pub struct JitneyScheduler {
    batcher: Batcher,
    actions: Actions,
    /// Indices in use or free, and those that are free.
    indices: u32,
    free: Vec<u32>,
    /// What each worker has, oldest first, with the indices of its requests.
    running: Vec<VecDeque<(BatchId, Vec<u32>)>>,
    slots: u8,
    /// Items that others on the GPU have answered since the last step.
    neighbours: u64,
}

impl JitneyScheduler {
    /// A batcher with this configuration and `workers` workers of one slot each.
    #[must_use]
    pub fn new(config: Config, workers: usize) -> Self {
        Self::with_slots(config, workers, 1)
    }

    /// The same with workers of so many slots.
    #[must_use]
    pub fn with_slots(config: Config, workers: usize, slots: usize) -> Self {
        let slots = u8::try_from(slots).unwrap_or(u8::MAX);
        let config = Config { max_queue: QUEUE_MAX, ..config };
        let mut batcher = Batcher::new(config);
        let mut actions = Actions::new();
        for worker in 0..workers {
            let worker = WorkerId(worker as u32);
            batcher.step(0, Event::WorkerUp { worker, slots }, &mut actions);
        }
        let running = (0..workers).map(|_| VecDeque::new()).collect();
        actions.clear();
        Self { batcher, actions, indices: 0, free: vec![], running, slots, neighbours: 0 }
    }

    /// A worker that was not there, or was retired, takes batches from now on.
    pub fn start_worker(&mut self, now: Nanos, worker: usize, out: &mut Orders) {
        let worker = WorkerId(worker as u32);
        self.step(now, Event::WorkerUp { worker, slots: self.slots }, out);
    }

    /// A worker ends what it has and takes no more.
    pub fn retire_worker(&mut self, now: Nanos, worker: usize, out: &mut Orders) {
        self.step(now, Event::WorkerRetire { worker: WorkerId(worker as u32) }, out);
    }

    /// The batcher.
    #[must_use]
    pub fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// Requests that wait, and those that are with a worker.
    #[must_use]
    pub fn under_way(&self) -> (u32, u32) {
        let running = self.running.iter().flatten().map(|(_, members)| members.len() as u32);
        (self.batcher.waiting(), running.sum())
    }

    fn step(&mut self, now: Nanos, event: Event, out: &mut Orders) {
        self.actions.clear();
        let items = std::mem::take(&mut self.neighbours);
        if items > 0 {
            self.batcher.step(now, Event::NeighboursAnswered { items }, &mut self.actions);
        }
        self.batcher.step(now, event, &mut self.actions);
        let actions = std::mem::take(&mut self.actions);
        for action in actions.iter() {
            self.carry_out(action, &actions, out);
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, action: &Action, actions: &Actions, out: &mut Orders) {
        match action {
            Action::Dispatch(Dispatch { worker, batch, members, .. }) => {
                let (worker, ids) = (worker.0 as usize, actions.members(members));
                out.dispatch(worker, ids.iter().map(job));
                let indices = ids.iter().map(|id| id.index() as u32).collect();
                self.running[worker].push_back((*batch, indices));
            }
            Action::Reject { id, .. } | Action::Fail { id, .. } => {
                self.free.push(id.index() as u32);
                out.reject(job(id));
            }
            Action::SetTimer(at) => out.wake(Some(*at)),
            Action::ClearTimer => out.wake(None),
        }
    }

    fn index(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.indices += 1;
            self.indices - 1
        })
    }
}

/// The number of a request.
fn job(id: &RequestId) -> u32 {
    (id.0 >> 32) as u32
}

impl Scheduler for JitneyScheduler {
    fn arrive(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders) {
        let mut request = Request::new(RequestId::new(self.index(), id));
        request.deadline = job.deadline;
        request.tenant = job.tenant;
        request.origin = Origin { kind: OriginKind::Http, peer: job.client };
        self.step(now, Event::Arrive(request), out);
    }

    fn done(&mut self, now: Nanos, worker: usize, took: Took, out: &mut Orders) {
        let Some((batch, indices)) = self.running[worker].pop_front() else { return };
        self.free.extend(indices);
        let Took { exec, prepare } = took;
        self.step(now, Event::Done { batch, exec, prepare }, out);
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        self.step(now, Event::Timer, out);
    }

    fn lost(&mut self, now: Nanos, worker: usize, _members: &[u32], out: &mut Orders) {
        self.running[worker].clear();
        let worker = WorkerId(worker as u32);
        self.step(now, Event::WorkerDown { worker, why: DownReason::Removed }, out);
    }

    fn back(&mut self, now: Nanos, worker: usize, out: &mut Orders) {
        self.start_worker(now, worker, out);
    }

    fn neighbours_answered(&mut self, items: u64) {
        self.neighbours += items;
    }
}
