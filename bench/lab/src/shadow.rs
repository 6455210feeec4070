//! What a shadow costs those who wait, in a simulated world: a version that answers, a version that gets copies, and a
//! batcher with workers for each. The copies run on devices of their own, or on the processors that everybody shares.
//!
//! Processors that have more batches than they are run all of them at a part of their speed, as an operating system does.
//! A copy is sent when its request was answered and [`has_room_for_copy`] says so, as in the server.

use std::collections::VecDeque;

use jitney_batcher::{
    Action, Actions, Adaptive, BatchId, Batcher, Config, Event, Nanos, Occupancy, Policy, Request,
    RequestId, WorkerId, has_room_for_copy,
};
use jitney_sim::Arrivals;

/// Where copies run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowPlace {
    /// There is no shadow.
    Nowhere,
    /// On devices of its own.
    OwnDevices,
    /// On the processors that the answering version computes with.
    SharedProcessors,
}

/// A world in which the answering version is busy for a part of the time.
#[derive(Clone, Copy, Debug)]
pub struct ShadowWorld {
    /// Workers of each version, and processors.
    pub workers: u32,
    /// How long a batch takes, and how much longer with each item.
    pub batch: (Nanos, Nanos),
    /// The most items in a batch.
    pub batch_max: u32,
    /// The share of what the workers can do at batches of this size that is asked for.
    pub load: f64,
    /// Requests in all.
    pub requests: usize,
    /// The seed of the arrivals.
    pub seed: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct ShadowRun {
    /// Times from arrival to answer, sorted.
    pub times: Vec<Nanos>,
    /// Copies that were sent.
    pub sent: usize,
    /// Copies that were not.
    pub dropped: usize,
}

impl ShadowRun {
    /// The time that this share of answers does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Nanos {
        self.times[((self.times.len() - 1) as f64 * share) as usize]
    }
}

struct RunningBatch {
    id: BatchId,
    members: Vec<RequestId>,
    began: Nanos,
    /// Work that is left, in nanoseconds of a whole processor.
    left: f64,
}

/// One version: its batcher, and what its workers run.
struct Version {
    batcher: Batcher,
    actions: Actions,
    timer: Option<Nanos>,
    running: Vec<RunningBatch>,
    /// Arrivals by the index of their request, and free indices.
    arrived: Vec<Nanos>,
    free: VecDeque<u32>,
    batch: (Nanos, Nanos),
    batch_max: u32,
}

impl Version {
    fn new(world: &ShadowWorld) -> Self {
        let policy = Policy::Adaptive(Adaptive::default());
        let config = Config { policy, max_items: world.batch_max, ..Config::default() };
        let ShadowWorld { batch, batch_max, .. } = *world;
        let mut version = Self {
            batcher: Batcher::new(config),
            actions: Actions::new(),
            timer: None,
            running: Vec::new(),
            arrived: Vec::new(),
            free: VecDeque::new(),
            batch,
            batch_max,
        };
        for worker in 0..world.workers {
            version.step(0, Event::WorkerUp { worker: WorkerId(worker), slots: 1 });
        }
        version
    }

    fn step(&mut self, now: Nanos, event: Event) {
        self.actions.clear();
        self.batcher.step(now, event, &mut self.actions);
        for action in self.actions.iter() {
            match action {
                Action::Dispatch(it) => {
                    let members = self.actions.members(&it.members).to_vec();
                    let left = (self.batch.0 + self.batch.1 * members.len() as u64) as f64;
                    self.running.push(RunningBatch { id: it.batch, members, began: now, left });
                }
                // Nothing is rejected here but copies that came too late to matter.
                Action::Reject { id, .. } | Action::Fail { id, .. } => {
                    self.free.push_back(id.index() as u32);
                }
                Action::SetTimer(at) => self.timer = Some(*at),
                Action::ClearTimer => self.timer = None,
            }
        }
    }

    fn arrive(&mut self, now: Nanos, number: u32) {
        let index = self.free.pop_front().unwrap_or(self.arrived.len() as u32);
        let at = index as usize;
        self.arrived.resize(self.arrived.len().max(at + 1), 0);
        self.arrived[at] = now;
        self.step(now, Event::Arrive(Request::new(RequestId::new(index, number))));
    }

    /// Ends the batch that has no work left; when each of its requests arrived.
    fn finish(&mut self, now: Nanos, at: usize) -> Vec<Nanos> {
        let RunningBatch { id, members, began, .. } = self.running.remove(at);
        let indices = members.iter().copied().map(RequestId::index);
        let arrived = indices.clone().map(|index| self.arrived[index]).collect();
        self.free.extend(indices.map(|index| index as u32));
        self.step(now, Event::Done { batch: id, exec: now - began, prepare: None });
        arrived
    }

    fn occupancy(&self, on_gpu: bool) -> Occupancy {
        let (waiting, busy) = (self.batcher.waiting(), self.running.len() as u64);
        Occupancy { ready: true, waiting, batch_max: self.batch_max, busy, on_gpu }
    }

    fn due(&mut self, now: Nanos) {
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.step(now, Event::Timer);
        }
    }
}

impl ShadowWorld {
    /// Plays the same requests with copies that run there.
    ///
    /// # Panics
    /// If the batcher leaves a request waiting for ever.
    #[must_use]
    pub fn run(&self, place: ShadowPlace) -> ShadowRun {
        let full = self.batch.0 + self.batch.1 * u64::from(self.batch_max);
        let most = f64::from(self.workers * self.batch_max) / full as f64 * 1e9;
        let arrivals = Arrivals::Poisson.times(self.load * most, self.requests, self.seed);
        let mut versions = [Version::new(self), Version::new(self)];
        let mut run = ShadowRun { times: Vec::new(), sent: 0, dropped: 0 };
        let (mut now, mut next) = (0, 0);
        while run.times.len() < arrivals.len() {
            let speeds = self.speeds(place, &versions);
            let ends = versions.iter().zip(speeds).flat_map(|(version, speed)| {
                version.running.iter().map(move |it| now + (it.left / speed).ceil() as Nanos)
            });
            let timers = versions.iter().filter_map(|it| it.timer);
            let then = ends.chain(timers).chain(arrivals.get(next).copied()).min();
            let then = then.expect("a request waits, so something will happen").max(now);
            for (version, speed) in versions.iter_mut().zip(speeds) {
                let done = (then - now) as f64 * speed;
                version.running.iter_mut().for_each(|it| it.left -= done);
            }
            now = then;
            self.finish(now, place, &mut versions, &mut run);
            if arrivals.get(next).is_some_and(|at| *at <= now) {
                versions[0].arrive(now, next as u32);
                next += 1;
            }
            versions.iter_mut().for_each(|version| version.due(now));
        }
        run.times.sort_unstable();
        run
    }

    /// How fast the batches of each version run.
    fn speeds(&self, place: ShadowPlace, versions: &[Version; 2]) -> [f64; 2] {
        let running: usize = versions.iter().map(|it| it.running.len()).sum();
        match place {
            ShadowPlace::SharedProcessors => {
                [(f64::from(self.workers) / running.max(1) as f64).min(1.0); 2]
            }
            ShadowPlace::Nowhere | ShadowPlace::OwnDevices => [1.0; 2],
        }
    }

    /// Answers what has ended, and sends copies of it.
    fn finish(
        &self,
        now: Nanos,
        place: ShadowPlace,
        versions: &mut [Version; 2],
        run: &mut ShadowRun,
    ) {
        let ended = |version: &Version| version.running.iter().position(|it| it.left < 1.0);
        while let Some(at) = ended(&versions[1]) {
            versions[1].finish(now, at);
        }
        while let Some(at) = ended(&versions[0]) {
            for arrived in versions[0].finish(now, at) {
                run.times.push(now - arrived);
                if place == ShadowPlace::Nowhere {
                    continue;
                }
                let on_gpu = place == ShadowPlace::OwnDevices;
                let [answering, shadow] =
                    [&versions[0], &versions[1]].map(|it| it.occupancy(on_gpu));
                if has_room_for_copy(shadow, answering, self.workers.into()) {
                    versions[1].arrive(now, run.sent as u32);
                    run.sent += 1;
                } else {
                    run.dropped += 1;
                }
            }
        }
    }
}
