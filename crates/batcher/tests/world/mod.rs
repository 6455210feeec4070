//! A world for the batcher: draws what happens next from what there is, and lets the oracle judge.

mod books;
mod dice;
mod oracle;

use dice::Dice;
use jitney_batcher::*;
use oracle::Oracle;

/// The grain of time in these worlds. The adaptive policy keeps half of it as a margin.
const TICK: Nanos = 100_000;

/// What happened, enough to play it again.
pub struct Story {
    pub config: Config,
    pub events: Vec<(Nanos, Event)>,
    pub dispatches: u64,
}

/// Mostly none, sometimes one of the workers that come and go, sometimes one that never comes.
const PINS: [Option<WorkerId>; 7] =
    [None, None, None, Some(WorkerId(0)), Some(WorkerId(1)), Some(WorkerId(2)), Some(WorkerId(9))];

pub struct World {
    seed: u64,
    dice: Dice,
    now: Nanos,
    batcher: Batcher,
    oracle: Oracle,
    /// The generation of each index; an index is free when the oracle knows no such request.
    generations: Vec<u32>,
    /// How often, in percent, things go wrong in this world.
    trouble: u64,
    /// How often, in percent, somebody arrives.
    crowd: u64,
    /// Whether requests may be pinned to workers in this world.
    pins: bool,
    /// Whether workers prepare batches while they run others in this world.
    stages: bool,
    /// Portions of the last request that have not arrived yet, the next one last.
    parts: Vec<Request>,
    pub story: Story,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let config = config(&mut dice);
        let story = Story { config: config.clone(), events: Vec::new(), dispatches: 0 };
        Self {
            seed,
            now: 10 * TICK,
            batcher: Batcher::new(config.clone()),
            oracle: Oracle::new(&config),
            generations: vec![0; 48],
            trouble: dice.pick(&[0, 5, 30]),
            crowd: dice.pick(&[40, 60, 75]),
            pins: dice.percent(30),
            stages: dice.percent(30),
            parts: Vec::new(),
            dice,
            story,
        }
    }

    /// Lets one thing happen.
    pub fn live(&mut self) {
        if let Some(part) = self.next_part() {
            return self.step(Event::Arrive(part));
        }
        self.pass_time();
        let event = match self.dice.roll(100) {
            roll if roll < self.crowd => self.arrival(),
            0..83 => self.finish(),
            83..86 => Event::Cancel { id: self.any_request() },
            86..89 => Event::Timer,
            89..91 => self.rumour(),
            _ if self.dice.percent(self.trouble) => self.disaster(),
            _ => self.worker_up(),
        };
        self.step(event);
    }

    /// Stops the misery and demands that everything ends.
    pub fn drain(&mut self) {
        self.step(Event::Drain);
        self.step(Event::WorkerUp { worker: WorkerId(0), slots: 1 });
        for _ in 0..500 {
            if self.batcher.drained() {
                return assert!(self.oracle.is_empty(), "seed {}: lost", self.seed);
            }
            self.now += TICK;
            let event = match self.oracle.running() {
                [] => Event::Timer,
                [batch, ..] => Event::Done { batch: *batch, exec: 10 * TICK, prepare: None },
            };
            self.step(event);
        }
        panic!("seed {}: drain does not end", self.seed);
    }

    fn step(&mut self, event: Event) {
        self.story.events.push((self.now, event.clone()));
        let mut out = Actions::new();
        self.batcher.step(self.now, event.clone(), &mut out);
        let judged = self.oracle.judge(self.now, &event, &out, &self.batcher);
        if let Err(wrong) = judged {
            let (seed, step, now) = (self.seed, self.story.events.len(), self.now);
            panic!("seed {seed}, step {step}, at {now}: {wrong}\nafter {event:?}\nsaid {out:#?}");
        }
        let dispatched = |action: &&Action| matches!(action, Action::Dispatch(_));
        self.story.dispatches += out.iter().filter(dispatched).count() as u64;
    }

    /// Mostly a little, sometimes exactly to the timer, sometimes beyond it.
    fn pass_time(&mut self) {
        let little = self.now + self.dice.roll(6) * TICK;
        self.now = match self.oracle.timer() {
            Some(timer) if self.dice.percent(15) => timer.max(self.now),
            Some(timer) if self.dice.percent(3) => timer.max(self.now) + self.dice.roll(50) * TICK,
            _ => little,
        };
    }

    fn arrival(&mut self) -> Event {
        let index = self.dice.roll(self.generations.len() as u64) as usize;
        let id = RequestId::new(index as u32, self.generations[index]);
        if self.oracle.knows(id) {
            return Event::Announce { origin: Request::new(id).origin };
        }
        self.generations[index] += 1;
        let mut request = Request::new(RequestId::new(index as u32, self.generations[index]));
        let dice = &mut self.dice;
        if dice.percent(40) {
            request.deadline = self.now + dice.roll(80) * TICK;
        }
        request.items = dice.pick(&[0, 1, 1, 1, 1, 2, 3, 5]);
        request.cost = dice.pick(&[1, 1, 1, 3, 7, 9]);
        request.group = dice.pick(&[0, 0, 0, 1]);
        request.priority =
            dice.pick(&[Priority::Interactive, Priority::Interactive, Priority::Bulk]);
        request.tenant = dice.pick(&[0, 0, 0, 1, 2]);
        request.origin.peer = dice.roll(6);
        request.worker = self.pins.then(|| dice.pick(&PINS)).flatten();
        request.origin.kind = dice.pick(&[OriginKind::Http, OriginKind::Http, OriginKind::Grpc]);
        if dice.percent(15) && request.worker.is_none() {
            request = self.take_apart(request);
        }
        Event::Arrive(request)
    }

    /// The first of up to five parts; the others follow at once.
    fn take_apart(&mut self, mut request: Request) -> Request {
        for index in 0..self.generations.len() {
            let id = RequestId::new(index as u32, self.generations[index]);
            if !self.oracle.knows(id) && id.index() != request.id.index() && self.parts.len() < 4 {
                self.generations[index] += 1;
                let id = RequestId::new(index as u32, self.generations[index]);
                let items = self.dice.pick(&[1, 1, 2, 4]);
                let more = !self.parts.is_empty();
                self.parts.push(Request { id, items, cost: items.into(), more, ..request });
            }
        }
        request.more = !self.parts.is_empty();
        request
    }

    /// The next part of a request that is arriving, unless something keeps it from coming.
    fn next_part(&mut self) -> Option<Request> {
        if self.dice.percent(self.trouble / 5) {
            self.parts.clear();
        }
        self.parts.pop()
    }

    /// The end of a running batch, or of one that is long over.
    fn finish(&mut self) -> Event {
        let stale = BatchId(self.dice.roll(50));
        let batch = match self.oracle.running() {
            [] => stale,
            _ if self.dice.percent(3) => stale,
            running => self.dice.pick(running),
        };
        if self.dice.percent(self.trouble) {
            let kind = self.dice.pick(&[
                BatchFailure::Handler,
                BatchFailure::Handler,
                BatchFailure::TimedOut,
                BatchFailure::Crashed,
            ]);
            return Event::Failed { batch, kind };
        }
        let prepare = self.stages.then(|| self.dice.roll(20) * TICK);
        Event::Done { batch, exec: self.dice.roll(30) * TICK, prepare }
    }

    /// Word of a request that is on its way or not, of a handoff, of neighbours, or of a trial run.
    fn rumour(&mut self) -> Event {
        let peer = self.dice.roll(6);
        let origin = Origin { kind: OriginKind::Http, peer };
        match self.dice.roll(5) {
            0 => Event::Retract { origin },
            1 => Event::Handed { took: self.dice.roll(5) * TICK },
            2 => {
                let prepare = self.stages.then(|| self.dice.roll(20) * TICK);
                let (items, exec) = (self.dice.roll(8) as u32, self.dice.roll(30) * TICK);
                Event::Measured { group: 0, items, cost: items.into(), exec, prepare }
            }
            3 => Event::NeighboursAnswered { items: self.dice.roll(8) },
            _ => Event::Announce { origin },
        }
    }

    /// Anybody who is, was or never will be here.
    fn any_request(&mut self) -> RequestId {
        let index = self.dice.roll(self.generations.len() as u64) as usize;
        let generation = self.generations[index].saturating_sub(u32::from(self.dice.percent(10)));
        RequestId::new(index as u32, generation)
    }

    fn worker_up(&mut self) -> Event {
        let worker = WorkerId(self.dice.roll(3) as u32);
        Event::WorkerUp { worker, slots: self.dice.pick(&[1, 1, 2, 3]) }
    }

    fn disaster(&mut self) -> Event {
        let worker = WorkerId(self.dice.roll(4) as u32);
        let why = self.dice.pick(&[DownReason::Crashed, DownReason::TimedOut, DownReason::Removed]);
        match self.dice.roll(6) {
            0 => Event::WorkerRetire { worker },
            1..3 => Event::Configure(config(&mut self.dice)),
            _ => Event::WorkerDown { worker, why },
        }
    }
}

fn config(dice: &mut Dice) -> Config {
    let config = drawn(dice);
    let suspect_time = if config.retry_budget == 2 { 60 * TICK } else { 2_000 * TICK };
    Config { suspect_time, ..config }
}

fn drawn(dice: &mut Dice) -> Config {
    let window = Policy::Window { delay: dice.pick(&[0, 10, 40]) * TICK };
    let adaptive = Policy::Adaptive(Adaptive {
        objective: dice.pick(&[None, None, Some(60 * TICK)]),
        max_wait: dice.pick(&[None, Some(5 * TICK)]),
        delivery: dice.pick(&[0, TICK]),
        window: dice.pick(&[None, None, None, Some(10 * TICK)]),
    });
    Config {
        policy: dice.pick(&[window, Policy::Opportunistic, adaptive, adaptive]),
        max_items: dice.pick(&[0, 1, 4, 4, 8]),
        max_cost: dice.pick(&[u64::MAX, 12]),
        max_queue: dice.pick(&[0, 4, 30]),
        mix_origins: dice.percent(30),
        isolate: dice.percent(80),
        retry_budget: dice.pick(&[0, 2, oracle::ENDLESS]),
        suspect_time: 2_000 * TICK,
        models: 0,
        measure: dice.pick(&[Measure::Items, Measure::Items, Measure::Packed, Measure::Padded]),
        sizes: dice.pick(&[vec![], vec![4, 2, 0], vec![1, 8]]),
        lengths: dice.pick(&[vec![], vec![], vec![4, 0, 2], vec![3]]),
        seek_slots: true,
        tenant_weights: dice.pick(&[vec![], vec![(1, 3)]]),
    }
}
