//! What a decision costs: nanoseconds of the batcher per request, in steady state.
//!
//! `cargo run --release -p jitney-batcher --example cost [open|closed|overload] [requests]
//! [--no-clock]`. The loop around the batcher (a ring of running batches, a fixed pattern of
//! arrivals) is part of the figure, so it is an upper bound. A run is the same on every machine;
//! with `--no-clock` its output is too, so that instructions can be counted, for example with
//! `valgrind --tool=callgrind`.

use std::collections::VecDeque;

use jitney_batcher::*;

const MS: Nanos = 1_000_000;
const WORKERS: u32 = 4;

/// Workers that take 5 ms and 1 ms per item, and what they run.
struct Bench {
    batcher: Batcher,
    out: Actions,
    running: VecDeque<(Nanos, BatchId, Nanos)>,
    free: Vec<u32>,
    members: Vec<Vec<u32>>,
    timer: Nanos,
    requests: u32,
    ended: u64,
}

impl Bench {
    fn new(objective: Option<Nanos>) -> Self {
        let policy =
            Policy::Adaptive(Adaptive { objective, max_wait: None, delivery: 0, window: None });
        let config = Config { policy, max_items: 64, max_queue: 10_000, ..Config::default() };
        let mut bench = Self {
            batcher: Batcher::new(config),
            out: Actions::new(),
            running: VecDeque::new(),
            free: (0..20_000).rev().collect(),
            members: vec![Vec::new(); 64],
            timer: Nanos::MAX,
            requests: 0,
            ended: 0,
        };
        for worker in 0..WORKERS {
            bench.step(0, Event::WorkerUp { worker: WorkerId(worker), slots: 1 });
        }
        bench
    }

    fn step(&mut self, now: Nanos, event: Event) {
        self.out.clear();
        self.batcher.step(now, event, &mut self.out);
        for action in self.out.iter() {
            match action {
                Action::Dispatch(Dispatch { batch, members, items, .. }) => {
                    let exec = 5 * MS + MS * Nanos::from(*items);
                    let at = self.running.partition_point(|it| it.0 <= now + exec);
                    self.running.insert(at, (now + exec, *batch, exec));
                    let ids = &mut self.members[batch.0 as usize % 64];
                    ids.clear();
                    ids.extend(self.out.members(members).iter().map(|id| id.index() as u32));
                }
                Action::Reject { id, .. } | Action::Fail { id, .. } => {
                    self.free.push(id.index() as u32);
                    self.ended += 1;
                }
                Action::SetTimer(at) => self.timer = (*at).max(now),
                Action::ClearTimer => self.timer = Nanos::MAX,
            }
        }
    }

    /// Everything that happens until then.
    fn run_until(&mut self, until: Nanos) {
        loop {
            let done = self.running.front().map_or(Nanos::MAX, |it| it.0);
            if done.min(self.timer) > until {
                return;
            }
            if done <= self.timer {
                let Some((now, batch, exec)) = self.running.pop_front() else { return };
                self.step(now, Event::Done { batch, exec, prepare: None });
                let ids = std::mem::take(&mut self.members[batch.0 as usize % 64]);
                self.free.extend(&ids);
                self.ended += ids.len() as u64;
                self.members[batch.0 as usize % 64] = ids;
            } else {
                let now = std::mem::replace(&mut self.timer, Nanos::MAX);
                self.step(now, Event::Timer);
            }
        }
    }

    fn arrive(&mut self, now: Nanos, peer: u64) {
        let Some(index) = self.free.pop() else { return };
        self.requests += 1;
        let mut request = Request::new(RequestId::new(index, self.requests));
        request.origin.peer = peer;
        self.step(now, Event::Arrive(request));
    }
}

/// Requests with gaps from a fixed pattern; `clients` of them take turns, or none comes back.
fn play(bench: &mut Bench, requests: u64, gap: Nanos, clients: Option<u64>) {
    let (mut now, mut dice) = (0, 1u64);
    for request in 0..requests {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        now += (dice >> 33) % (2 * gap);
        bench.run_until(now);
        bench.arrive(now, clients.map_or(1000 + request, |clients| request % clients));
    }
    bench.run_until(now + 10_000 * MS);
}

#[expect(clippy::print_stdout, reason = "its output is its purpose")]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn main() {
    let clock = !std::env::args().any(|word| word == "--no-clock");
    let mut words = std::env::args().skip(1).filter(|word| word != "--no-clock");
    let kind = words.next().unwrap_or_else(|| "open".to_owned());
    let requests = words.next().and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let (gap, clients, objective) = match kind.as_str() {
        "closed" => (400_000, Some(48), None),
        "overload" => (180_000, None, Some(25 * MS)),
        _ => (450_000, None, Some(25 * MS)),
    };
    let mut bench = Bench::new(objective);
    let begun = clock.then(std::time::Instant::now);
    play(&mut bench, requests, gap, clients);
    if let Some(begun) = begun {
        println!(
            "{kind}: {:.0} ns per request",
            begun.elapsed().as_nanos() as f64 / requests as f64
        );
    }
    println!("{kind}: {} of {requests} requests ended", bench.ended);
}
