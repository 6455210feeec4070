//! The clock of a simulated world: takes the next thing that happens, tells the policy, does what
//! it orders, and keeps the books.
//!
//! It never looks into a policy, and it does not trust one: an order that breaks the rules of the
//! world (a busy worker, a batch too large, a request that has ended) is a panic with a sentence.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jitney_batcher::Nanos;

use crate::dice::Dice;
use crate::job::{Job, SimulatedEnd};
use crate::outcome::Outcome;
use crate::scheduler::{Orders, Scheduler};
use crate::world::{Clients, Load, World};

/// Plays the whole load and returns how every request ended.
///
/// # Panics
/// If the scheduler breaks a rule of the world or leaves a request waiting for ever.
pub fn run(world: &World, load: &Load, scheduler: &mut dyn Scheduler) -> Outcome {
    let mut runner = Runner::new(world, load);
    while let Some((now, happening)) = runner.next() {
        runner.now = now;
        runner.happen(happening, scheduler);
        runner.obey();
    }
    runner.outcome()
}

/// What can happen next; at the same time the earlier variant goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Done(usize),
    Lost(usize),
    Back(usize),
    Arrive,
    Timer,
}

struct RunningJobs {
    finish: Nanos,
    exec: Nanos,
    members: Vec<u32>,
}

struct Runner<'a> {
    world: &'a World,
    now: Nanos,
    jobs: Vec<Job>,
    ends: Vec<Option<SimulatedEnd>>,
    open: std::slice::Iter<'a, Job>,
    clients: Option<(Clients, Dice)>,
    /// Clients by the time of their next request.
    thinking: BinaryHeap<Reverse<(Nanos, u64)>>,
    running: Vec<Option<RunningJobs>>,
    dead: Vec<bool>,
    misfortunes: Vec<(Nanos, Happening)>,
    dice: Dice,
    orders: Orders,
    waiting: usize,
    batches: u64,
    busy: Nanos,
}

impl<'a> Runner<'a> {
    fn new(world: &'a World, load: &'a Load) -> Self {
        let (open, clients) = match load {
            Load::Open(jobs) => (jobs.iter(), None),
            Load::Closed(clients) => ([].iter(), Some((*clients, Dice::new(clients.seed)))),
        };
        let expected = open.len();
        let count = clients.as_ref().map_or(0, |(clients, _)| clients.count);
        // They start a little apart, as connections do.
        let thinking = (0..count as u64).map(|client| Reverse((client * 10_000, client))).collect();
        Self {
            world,
            now: 0,
            jobs: Vec::with_capacity(expected),
            ends: Vec::with_capacity(expected),
            open,
            clients,
            thinking,
            running: (0..world.workers).map(|_| None).collect(),
            dead: vec![false; world.workers],
            misfortunes: misfortunes(world),
            dice: Dice::new(world.seed ^ 0xface),
            orders: Orders::default(),
            waiting: 0,
            batches: 0,
            busy: 0,
        }
    }

    fn next(&self) -> Option<(Nanos, Happening)> {
        let done = self.running.iter().enumerate();
        let done =
            done.filter_map(|(at, run)| run.as_ref().map(|run| (run.finish, Happening::Done(at))));
        let arrive = self.next_arrival().map(|at| (at, Happening::Arrive));
        let alive =
            arrive.is_some() || self.waiting > 0 || self.running.iter().any(Option::is_some);
        if !alive {
            return None;
        }
        let timer = self.orders.timer.map(|at| (at.max(self.now), Happening::Timer));
        let misfortune = self.misfortunes.last().copied();
        let next = done.chain(arrive).chain(timer).chain(misfortune).min();
        assert!(next.is_some(), "{} requests wait and nothing will ever happen", self.waiting);
        next
    }

    fn next_arrival(&self) -> Option<Nanos> {
        let open = self.open.as_slice().first().map(|job| job.at);
        open.or_else(|| self.thinking.peek().map(|Reverse((at, _))| *at))
    }

    fn happen(&mut self, happening: Happening, scheduler: &mut dyn Scheduler) {
        match happening {
            Happening::Done(worker) => self.done(worker, scheduler),
            Happening::Lost(worker) => self.lost(worker, scheduler),
            Happening::Back(worker) => {
                self.misfortunes.pop();
                self.dead[worker] = false;
                scheduler.back(self.now, worker, &mut self.orders);
            }
            Happening::Arrive => self.arrive(scheduler),
            Happening::Timer => {
                self.orders.timer = None;
                scheduler.timer(self.now, &mut self.orders);
            }
        }
    }

    fn done(&mut self, worker: usize, scheduler: &mut dyn Scheduler) {
        let RunningJobs { exec, members, .. } = self.running[worker].take().expect("it runs");
        self.batches += 1;
        self.busy += exec;
        let batch = members.len() as u32;
        for &id in &members {
            self.end(id, SimulatedEnd::Answered { at: self.now, batch });
        }
        scheduler.done(self.now, worker, exec, &mut self.orders);
    }

    fn lost(&mut self, worker: usize, scheduler: &mut dyn Scheduler) {
        self.misfortunes.pop();
        self.dead[worker] = true;
        let members = self.running[worker].take().map(|run| run.members).unwrap_or_default();
        self.waiting += members.len();
        scheduler.lost(self.now, worker, &members, &mut self.orders);
    }

    fn arrive(&mut self, scheduler: &mut dyn Scheduler) {
        let job = match self.open.next() {
            Some(job) => *job,
            None => self.ask(),
        };
        let id = self.jobs.len() as u32;
        self.jobs.push(job);
        self.ends.push(None);
        self.waiting += 1;
        scheduler.arrive(self.now, id, &job, &mut self.orders);
    }

    /// A client that has thought enough asks again.
    fn ask(&mut self) -> Job {
        let Reverse((at, client)) = self.thinking.pop().expect("a client thinks");
        let (clients, _) = self.clients.as_ref().expect("a closed loop");
        Job { at, deadline: at.saturating_add(clients.deadline), tenant: 0, client }
    }

    fn end(&mut self, id: u32, end: SimulatedEnd) {
        let slot = &mut self.ends[id as usize];
        assert!(slot.is_none(), "request {id} ended twice");
        *slot = Some(end);
        if let Some((clients, dice)) = &mut self.clients {
            let think = (clients.think as f64 * dice.exponential()) as Nanos;
            let next = self.now + clients.turn + think;
            if next < clients.until {
                self.thinking.push(Reverse((next, self.jobs[id as usize].client)));
            }
        }
    }

    fn obey(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        for &id in &orders.rejected {
            self.waiting -= 1;
            self.end(id, SimulatedEnd::Rejected { at: self.now });
        }
        for (worker, range) in &orders.batches {
            self.start(*worker, orders.members[range.clone()].to_vec());
        }
        orders.clear();
        self.orders = orders;
    }

    fn start(&mut self, worker: usize, members: Vec<u32>) {
        let size = members.len();
        assert!(size > 0 && size <= self.world.curve.max(), "a batch of {size}");
        assert!(
            self.running[worker].is_none() && !self.dead[worker],
            "worker {worker} is not idle"
        );
        self.waiting -= size;
        let time = self.world.curve.time(size);
        let exec = self.world.noise.apply(time, self.now, &mut self.dice);
        self.running[worker] = Some(RunningJobs { finish: self.now + exec, exec, members });
    }

    fn outcome(self) -> Outcome {
        let end = |end: Option<SimulatedEnd>| end.expect("every request ends");
        let ends = self.ends.into_iter().map(end).collect();
        let Self { jobs, batches, busy, now, .. } = self;
        Outcome { jobs, ends, batches, busy, until: now }
    }
}

/// Deaths and returns, the next one last.
fn misfortunes(world: &World) -> Vec<(Nanos, Happening)> {
    let deaths = world.losses.iter().map(|loss| (loss.at, Happening::Lost(loss.worker)));
    let returns = world.losses.iter().map(|loss| (loss.back, Happening::Back(loss.worker)));
    let mut all: Vec<_> = deaths.chain(returns.filter(|&(at, _)| at != Nanos::MAX)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all
}
