//! The clock of a simulated world: takes the next thing that happens, tells the policy, does what
//! it orders, and keeps the books.
//!
//! It never looks into a policy, and it does not trust one: an order that breaks the rules of the
//! world (a busy worker, a batch too large, a request that has ended) is a panic with a sentence.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use jitney_batcher::Nanos;

use crate::connections::{ConnectionUse, PoolState};
use crate::dice::Dice;
use crate::gpu::GpuSharing;
use crate::job::{Job, SimulatedEnd};
use crate::outcome::Outcome;
use crate::pipeline::Pipeline;
use crate::scheduler::{Orders, Scheduler};
use crate::world::{Clients, Load, World};

/// Plays the whole load and returns how every request ended.
///
/// # Panics
/// If the scheduler breaks a rule of the world or leaves a request waiting for ever.
pub fn run(world: &World, load: &Load, scheduler: &mut dyn Scheduler) -> Outcome {
    let mut runner = Runner::new(world, load);
    while let Some((now, happening)) = runner.next() {
        runner.step(now, happening, scheduler);
    }
    runner.outcome()
}

/// A model with its workers and clients, and what decides for it.
#[expect(missing_debug_implementations, reason = "a scheduler need not have one")]
pub struct SimulatedModel<'a> {
    /// Its workers and their speed where they have the GPU to themselves.
    pub world: &'a World,
    /// The requests to it.
    pub load: &'a Load,
    /// What decides for it, and knows of the others how much they answer.
    pub scheduler: &'a mut dyn Scheduler,
}

/// The same for one model, or several, whose workers all run on one GPU; by model how its requests ended.
///
/// # Panics
/// If a scheduler breaks a rule of the world or leaves a request waiting for ever.
pub fn run_on_one_gpu(sharing: GpuSharing, models: &mut [SimulatedModel<'_>]) -> Vec<Outcome> {
    let mut runners: Vec<_> = models.iter().map(|it| Runner::new(it.world, it.load)).collect();
    let first = |runners: &[Runner<'_>]| {
        let next = runners.iter().enumerate().filter_map(|(at, it)| Some((it.next()?, at)));
        next.min()
    };
    while let Some(((now, happening), at)) = first(&runners) {
        let answered = runners[at].answered;
        runners[at].step(now, happening, models[at].scheduler);
        let answered = runners[at].answered - answered;
        let others =
            models.iter_mut().enumerate().filter(|(other, _)| answered > 0 && *other != at);
        others.for_each(|(_, other)| other.scheduler.neighbours_answered(answered));
        let mut workers: Vec<_> = runners.iter_mut().flat_map(|it| &mut it.running).collect();
        sharing.share(now, &mut workers);
    }
    runners.into_iter().map(Runner::outcome).collect()
}

/// Time between an answer and the next request over its connection, if one waits for it.
const TURN: Nanos = 50_000;

/// What can happen next; at the same time the earlier variant goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Done(usize),
    Prepared(usize),
    Lost(usize),
    Back(usize),
    Sent,
    Arrive,
    Timer,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    client: Option<u64>,
    pool: Option<usize>,
}

struct Runner<'a> {
    world: &'a World,
    now: Nanos,
    jobs: Vec<Job>,
    ends: Vec<Option<SimulatedEnd>>,
    /// Who sent each request: a client that waits for its answer, over which pool.
    senders: Vec<Sender>,
    open: std::slice::Iter<'a, Job>,
    clients: Option<(Clients, Dice)>,
    /// Clients by the time of their next request.
    thinking: BinaryHeap<Reverse<(Nanos, u64)>>,
    pools: Option<PoolState>,
    /// Whether clients that wait for their answer come from the pools too.
    proxied: bool,
    /// By pool the requests that wait for a connection.
    unsent: Vec<VecDeque<(Job, Sender)>>,
    /// When the next of a pool is sent because a connection has become free, in order of time.
    freed: VecDeque<(Nanos, usize)>,
    running: Vec<Pipeline>,
    dead: Vec<bool>,
    misfortunes: Vec<(Nanos, Happening)>,
    dice: Dice,
    orders: Orders,
    waiting: usize,
    batches: u64,
    answered: u64,
    busy: Nanos,
}

impl<'a> Runner<'a> {
    fn new(world: &'a World, load: &'a Load) -> Self {
        let open = load.open.iter();
        let clients = load.clients.map(|clients| (clients, Dice::new(clients.seed)));
        let (pools, proxied) = match load.connections {
            ConnectionUse::Own => (None, false),
            ConnectionUse::Pooled(pools) => (Some(PoolState::new(pools)), false),
            ConnectionUse::Proxied(pools) => (Some(PoolState::new(pools)), true),
        };
        let expected = open.len();
        let count = clients.as_ref().map_or(0, |(clients, _)| clients.count);
        let count = count as u64;
        let first = |client| Reverse((load.start.time(client, count), client));
        let thinking = (0..count).map(first).collect();
        Self {
            world,
            now: 0,
            jobs: Vec::with_capacity(expected),
            ends: Vec::with_capacity(expected),
            senders: Vec::with_capacity(expected),
            open,
            clients,
            thinking,
            unsent: vec![VecDeque::new(); pools.as_ref().map_or(0, PoolState::count)],
            pools,
            proxied,
            freed: VecDeque::new(),
            running: (0..world.workers).map(|_| Pipeline::new(world.stages.as_ref())).collect(),
            dead: vec![false; world.workers],
            misfortunes: misfortunes(world),
            dice: Dice::new(world.seed ^ 0xface),
            orders: Orders::default(),
            waiting: 0,
            batches: 0,
            answered: 0,
            busy: 0,
        }
    }

    fn next(&self) -> Option<(Nanos, Happening)> {
        let done = self.running.iter().enumerate().filter_map(|(worker, run)| {
            let (at, last) = run.next()?;
            Some((at, if last { Happening::Done(worker) } else { Happening::Prepared(worker) }))
        });
        let arrive = self.next_arrival().map(|at| (at, Happening::Arrive));
        let sent = self.freed.front().map(|&(at, _)| (at, Happening::Sent));
        let runs = self.running.iter().any(|run| run.len() > 0);
        let alive = arrive.is_some() || sent.is_some() || self.waiting > 0 || runs;
        if !alive {
            return None;
        }
        let timer = self.orders.timer.map(|at| (at.max(self.now), Happening::Timer));
        let misfortune = self.misfortunes.last().copied();
        let next = done.chain(sent).chain(arrive).chain(timer).chain(misfortune).min();
        // What runs may wait for its turn on a GPU that others have.
        let goes_on = next.is_some() || runs;
        assert!(goes_on, "{} requests wait and nothing will ever happen", self.waiting);
        next
    }

    fn next_arrival(&self) -> Option<Nanos> {
        let thinking = self.thinking.peek().map(|Reverse((at, _))| *at);
        self.next_open().into_iter().chain(thinking).min()
    }

    fn next_open(&self) -> Option<Nanos> {
        self.open.as_slice().first().map(|job| job.at)
    }

    fn step(&mut self, now: Nanos, happening: Happening, scheduler: &mut dyn Scheduler) {
        self.now = now;
        self.happen(happening, scheduler);
        self.obey();
    }

    fn happen(&mut self, happening: Happening, scheduler: &mut dyn Scheduler) {
        match happening {
            Happening::Done(worker) => self.done(worker, scheduler),
            Happening::Prepared(worker) => self.running[worker].advance(self.now),
            Happening::Lost(worker) => self.lost(worker, scheduler),
            Happening::Back(worker) => {
                self.misfortunes.pop();
                self.dead[worker] = false;
                scheduler.back(self.now, worker, &mut self.orders);
            }
            Happening::Sent => self.send_next(scheduler),
            Happening::Arrive => self.arrive(scheduler),
            Happening::Timer => {
                self.orders.timer = None;
                scheduler.timer(self.now, &mut self.orders);
            }
        }
    }

    fn done(&mut self, worker: usize, scheduler: &mut dyn Scheduler) {
        let (members, took) = self.running[worker].finish(self.now).expect("it runs");
        self.batches += 1;
        self.answered += members.len() as u64;
        self.busy += took.exec;
        let batch = members.len() as u32;
        for &id in &members {
            self.end(id, SimulatedEnd::Answered { at: self.now, batch });
        }
        scheduler.done(self.now, worker, took, &mut self.orders);
    }

    fn lost(&mut self, worker: usize, scheduler: &mut dyn Scheduler) {
        self.misfortunes.pop();
        self.dead[worker] = true;
        let members = self.running[worker].lose();
        self.waiting += members.len();
        scheduler.lost(self.now, worker, &members, &mut self.orders);
    }

    fn arrive(&mut self, scheduler: &mut dyn Scheduler) {
        let thinking = self.thinking.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
        let (job, client) = match self.open.as_slice().first() {
            Some(job) if job.at <= thinking => {
                self.open.next();
                (*job, None)
            }
            _ => self.ask(),
        };
        let pools = self.pools.as_mut().filter(|_| client.is_none() || self.proxied);
        let (pool, later) = (pools.map(PoolState::choose), |it: usize| !self.unsent[it].is_empty());
        let sender = Sender { client, pool };
        match pool.filter(|&pool| later(pool)) {
            Some(pool) => self.unsent[pool].push_back((job, sender)),
            None => self.send(job, sender, scheduler),
        }
    }

    /// Sends a request over a connection of its pool, as soon as there is one.
    fn send(&mut self, mut job: Job, sender: Sender, scheduler: &mut dyn Scheduler) {
        if let (Some(pools), Some(pool)) = (&mut self.pools, sender.pool) {
            match pools.take(pool) {
                Some(connection) => job.client = connection,
                None => return self.unsent[pool].push_back((job, sender)),
            }
        }
        let id = self.jobs.len() as u32;
        self.jobs.push(job);
        self.ends.push(None);
        self.senders.push(sender);
        self.waiting += 1;
        scheduler.arrive(self.now, id, &job, &mut self.orders);
    }

    /// A connection has become free for a request that waited for one.
    fn send_next(&mut self, scheduler: &mut dyn Scheduler) {
        let (_, pool) = self.freed.pop_front().expect("a connection became free");
        if let Some((job, sender)) = self.unsent[pool].pop_front() {
            self.send(job, sender, scheduler);
        }
    }

    /// A client that has thought enough asks again.
    fn ask(&mut self) -> (Job, Option<u64>) {
        let Reverse((at, client)) = self.thinking.pop().expect("a client thinks");
        let (clients, _) = self.clients.as_ref().expect("a closed loop");
        (Job { at, deadline: at.saturating_add(clients.deadline), tenant: 0, client }, Some(client))
    }

    fn end(&mut self, id: u32, end: SimulatedEnd) {
        let slot = &mut self.ends[id as usize];
        assert!(slot.is_none(), "request {id} ended twice");
        *slot = Some(end);
        let Sender { client, pool } = self.senders[id as usize];
        if let (Some(client), Some((clients, dice))) = (client, &mut self.clients) {
            let think = (clients.think as f64 * clients.spread.draw(dice)) as Nanos;
            let next = self.now + clients.turn + think;
            if next < clients.until {
                self.thinking.push(Reverse((next, client)));
            }
        }
        if let (Some(pools), Some(pool)) = (&mut self.pools, pool) {
            pools.put_back(pool, self.jobs[id as usize].client);
            if !self.unsent[pool].is_empty() {
                self.freed.push_back((self.now + TURN, pool));
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
            self.running[worker].len() < self.world.slots() && !self.dead[worker],
            "worker {worker} has no free slot"
        );
        self.waiting -= size;
        let (prepare, run) = self.world.times(size);
        let running = 1 + self.running.iter().filter(|it| it.len() > 0).count();
        let run = (run as f64 * self.world.slowed(running)) as Nanos;
        let mut noisy = |time| self.world.noise.apply(time, self.now, &mut self.dice);
        let (run, prepare) = (noisy(run), if prepare > 0 { noisy(prepare) } else { 0 });
        self.running[worker].push(self.now, members, prepare, run);
    }

    fn outcome(self) -> Outcome {
        let end = |end: Option<SimulatedEnd>| end.expect("every request ends");
        let ends = self.ends.into_iter().map(end).collect();
        let asked = self.senders.iter().map(|sender| sender.client.is_some()).collect();
        let Self { jobs, batches, busy, now, .. } = self;
        Outcome { jobs, ends, asked, batches, busy, until: now }
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
