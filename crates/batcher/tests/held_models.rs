//! Requests for models that workers load when they need them: where they go, and how long they wait for that.
//!
//! Seeded worlds of a few workers and many ids. A worker here keeps its own list of what it has loaded, and shares no
//! code with the batcher's.

#[path = "world/dice.rs"]
mod dice;

use dice::Dice;
use jitney_batcher::*;

const MS: Nanos = 1_000_000;
const RUN: Nanos = 4 * MS;
const LOAD: Nanos = 50 * MS;
const KEPT: usize = 4;

struct Running {
    worker: WorkerId,
    batch: BatchId,
    ends: Nanos,
    began: Nanos,
}

struct Waiting {
    id: RequestId,
    model: u64,
    came: Nanos,
}

struct World {
    batcher: Batcher,
    now: Nanos,
    timer: Option<Nanos>,
    waiting: Vec<Waiting>,
    running: Vec<Running>,
    /// What each worker has loaded, the least recently used first.
    loaded: Vec<Vec<u64>>,
    loads: u32,
    came: u32,
    answered: u32,
    longest_wait: Nanos,
}

impl World {
    fn new(policy: Policy, workers: u32) -> Self {
        let models = KEPT as u32;
        let config =
            Config { policy, max_items: 4, models, max_queue: 10_000, ..Config::default() };
        let mut world = Self {
            batcher: Batcher::new(config),
            now: 0,
            timer: None,
            waiting: Vec::new(),
            running: Vec::new(),
            loaded: vec![Vec::new(); workers as usize],
            loads: 0,
            came: 0,
            answered: 0,
            longest_wait: 0,
        };
        for worker in (0..workers).map(WorkerId) {
            world.step(Event::WorkerUp { worker, slots: 1 });
        }
        world
    }

    fn ask(&mut self, model: u64) {
        let id = RequestId::new(self.came, 0);
        self.came += 1;
        self.waiting.push(Waiting { id, model, came: self.now });
        self.step(Event::Arrive(Request { model, ..Request::new(id) }));
    }

    fn step(&mut self, event: Event) {
        let mut out = Actions::new();
        self.batcher.step(self.now, event, &mut out);
        for action in out.iter() {
            match action {
                Action::Dispatch(dispatch) => self.start(dispatch, out.members(&dispatch.members)),
                Action::SetTimer(at) => self.timer = Some(*at),
                Action::ClearTimer => self.timer = None,
                Action::Reject { .. } | Action::Fail { .. } => panic!("{action:?}"),
            }
        }
        if self.running.len() < self.loaded.len() {
            // The load is measured with the first run in it, as nothing is known of that one.
            let waits = self.waiting.iter().map(|it| self.now - it.came).max().unwrap_or(0);
            assert!(self.answered == 0 || waits < LOAD + RUN, "{waits} beside an idle worker");
        }
    }

    fn start(&mut self, dispatch: &Dispatch, members: &[RequestId]) {
        let (taken, left) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|it| members.contains(&it.id));
        self.waiting = left;
        let model = taken[0].model;
        assert!(taken.iter().all(|it| it.model == model), "a batch has one model");
        let waits = taken.iter().map(|it| self.now - it.came).max().unwrap_or(0);
        self.longest_wait = self.longest_wait.max(waits);
        let loaded = &mut self.loaded[dispatch.worker.0 as usize];
        let held = loaded.contains(&model);
        loaded.retain(|it| *it != model);
        if loaded.len() == KEPT {
            loaded.remove(0);
        }
        loaded.push(model);
        self.loads += u32::from(!held);
        self.answered += members.len() as u32;
        let ends = self.now + if held { RUN } else { LOAD + RUN };
        let (worker, batch) = (dispatch.worker, dispatch.batch);
        assert!(self.running.iter().all(|it| it.worker != worker), "one batch at a time");
        self.running.push(Running { worker, batch, ends, began: self.now });
    }

    /// Lets time pass until then.
    fn pass(&mut self, until: Nanos) {
        loop {
            let ends = self.running.iter().map(|it| it.ends).min();
            let Some(next) = ends.into_iter().chain(self.timer).min().filter(|it| *it <= until)
            else {
                break self.now = until;
            };
            self.now = next.max(self.now);
            let over = self.running.iter().position(|it| it.ends <= self.now);
            match over.map(|at| self.running.swap_remove(at)) {
                Some(Running { batch, began, .. }) => {
                    self.step(Event::Done { batch, exec: self.now - began, prepare: None });
                }
                None => self.step(Event::Timer),
            }
        }
    }
}

fn policies() -> [Policy; 3] {
    let adaptive = Policy::Adaptive(Adaptive::default());
    [Policy::Opportunistic, Policy::Window { delay: 2 * MS }, adaptive]
}

#[test]
fn every_request_is_answered_and_none_waits_longer_than_a_load_beside_an_idle_worker() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let policy = dice.pick(&policies());
        let mut world = World::new(policy, dice.pick(&[1, 2, 3]));
        let ids = dice.pick(&[1, 3, 8, 20]);
        for _ in 0..200 {
            if dice.percent(60) {
                world.pass(world.now + dice.pick(&[1, 5, 60]) * MS);
            }
            world.ask(1 + dice.roll(ids));
        }
        world.pass(world.now + 1000 * (LOAD + RUN));
        assert_eq!((world.answered, world.waiting.len()), (200, 0), "seed {seed}");
    }
}

#[test]
fn models_that_fit_are_loaded_once_and_by_one_worker() {
    for policy in policies() {
        let mut world = World::new(policy, 2);
        for round in 0..20 {
            for model in 1..=8 {
                world.ask(model);
                world.pass(world.now + 2 * (LOAD + RUN));
            }
            assert_eq!(world.loads, 8, "round {round}");
        }
        assert!(world.longest_wait <= 2 * MS, "but for the window");
    }
}

#[test]
fn a_request_waits_for_the_worker_that_holds_its_model_but_not_longer_than_a_load() {
    let mut world = World::new(Policy::Opportunistic, 2);
    world.ask(1);
    world.pass(10 * LOAD);
    (0..5).for_each(|_| world.ask(1));
    assert_eq!((world.running.len(), world.loads), (1, 1), "it is expected soon");
    world.pass(20 * LOAD);
    assert_eq!((world.loads, world.waiting.len()), (1, 0));
    // A batch that takes much longer than it was expected to.
    world.ask(1);
    world.running[0].ends = world.now + 100 * LOAD;
    world.ask(1);
    let came = world.now;
    world.pass(came + 2 * LOAD);
    assert_eq!((world.loads, world.waiting.len()), (2, 0), "the other one has loaded it too");
}
