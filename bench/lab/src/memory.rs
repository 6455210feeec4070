//! Many models and memory for few of them, in the simulator: which of them leaves is decided by a rule, ours or
//! a peer's. All else is the server's own plan.
//!
//! A model is loaded when it is asked for; loads begin in the order in which they were asked for, and so many
//! go on at a time. What counts is how long requests wait for loads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use jitney_batcher::{
    AskedRate, FirstLoad, LoadStep, MemoryPlan, MemoryState, ModelMemory, Nanos, worth,
};
use jitney_sim::dice::Dice;

/// A load that has no room is tried again after this time.
const TRY_AGAIN: Nanos = 100_000_000;

/// A model that is not loaded until it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct SeldomModel {
    /// How long its load takes.
    pub load: Nanos,
    /// What it holds then.
    pub bytes: u64,
}

/// Models, and when they are asked for.
#[derive(Clone, Debug)]
pub struct ManyModels {
    /// All of them.
    pub models: Vec<SeldomModel>,
    /// Time and model of every request, in order.
    pub requests: Vec<(Nanos, usize)>,
    /// Bytes for models.
    pub memory: u64,
    /// Loads that go on at a time.
    pub loads: usize,
}

/// What kind of models there are.
#[derive(Clone, Copy, Debug)]
pub struct ManySettings {
    /// How many.
    pub models: usize,
    /// The memory, in models of mean size.
    pub memory: u64,
    /// The exponent of Zipf's law.
    pub zipf: f64,
    /// Requests per second to all of them.
    pub rate: f64,
    /// For so many seconds.
    pub seconds: f64,
    /// Loads that go on at a time.
    pub loads: usize,
    /// After so many seconds other models are the popular ones; never where it is 0.
    pub changes: f64,
}

impl ManyModels {
    /// Load times are even by their logarithm from 0.2 to 20 s, and sizes from 0.1 to 2 GB.
    #[must_use]
    pub fn new(settings: ManySettings, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut even = |from: f64, times: f64| from * times.powf(dice.unit());
        let one = |_| SeldomModel {
            load: (even(0.2, 100.0) * 1e9) as Nanos,
            bytes: (even(0.1, 20.0) * 1e9) as u64,
        };
        let models: Vec<_> = (0..settings.models).map(one).collect();
        let mean = models.iter().map(|it| it.bytes).sum::<u64>() / models.len().max(1) as u64;
        let mut below = Vec::new();
        for rank in 1..=settings.models {
            below.push(below.last().unwrap_or(&0.0) + (rank as f64).powf(-settings.zipf));
        }
        let all = below.last().copied().unwrap_or_default();
        let (mut now, mut requests) = (0.0, Vec::new());
        loop {
            now += dice.exponential() / settings.rate;
            if now >= settings.seconds {
                break;
            }
            let drawn = dice.unit() * all;
            let rank = below.partition_point(|it| *it < drawn);
            let turn = if settings.changes > 0.0 { (now / settings.changes) as usize } else { 0 };
            requests.push(((now * 1e9) as Nanos, (rank + turn * 97) % settings.models));
        }
        Self { models, requests, memory: settings.memory * mean, loads: settings.loads }
    }

    /// What no rule can be better than, as mean seconds of waiting: the memory of all the time is given to those
    /// pauses between two requests of a model in which it saves most, as if pauses could be cut into pieces.
    #[must_use]
    pub fn bound(&self) -> f64 {
        let mut last = vec![None; self.models.len()];
        let (mut pauses, mut waited) = (Vec::new(), 0.0);
        for (at, model) in &self.requests {
            let SeldomModel { load, bytes } = self.models[*model];
            let pause = last[*model].replace(*at).map(|before| at - before);
            // One that comes while the model loads for the one before it waits for less than a load.
            if pause.is_none_or(|pause| pause > load) {
                waited += load as f64 / 1e9;
            }
            let pause = pause.filter(|pause| *pause > load);
            pauses.extend(pause.map(|it| (load as f64 / 1e9, it as f64 * bytes as f64)));
        }
        pauses.sort_by(|a, b| (b.0 / b.1).total_cmp(&(a.0 / a.1)));
        let end = self.requests.last().map_or(0, |it| it.0);
        let mut room = self.memory as f64 * end as f64;
        for (saved, needed) in pauses {
            waited -= saved * (room / needed).clamp(0.0, 1.0);
            room -= needed;
        }
        waited / self.requests.len().max(1) as f64
    }

    /// Mean seconds that requests wait for loads under a rule.
    pub fn play(&self, rule: &mut dyn LeaveRule) -> f64 {
        Play::new(self, rule).run()
    }
}

/// A rule for who leaves.
pub trait LeaveRule {
    /// A model was asked for.
    fn asked(&mut self, now: Nanos, model: usize, of: &SeldomModel);

    /// What a model is worth; the one with the least leaves first.
    fn worth(&mut self, now: Nanos, model: usize, of: &SeldomModel) -> f64;

    /// It leaves.
    fn left(&mut self, _worth: f64) {}
}

/// The rule of the server.
#[derive(Default)]
pub struct WorthRule(Vec<AskedRate>);

impl LeaveRule for WorthRule {
    fn asked(&mut self, now: Nanos, model: usize, _: &SeldomModel) {
        self.0.resize(self.0.len().max(model + 1), AskedRate::new(0));
        self.0[model].add(now, 1);
    }

    fn worth(&mut self, now: Nanos, model: usize, of: &SeldomModel) -> f64 {
        worth(self.0[model].rate(now), of.load, of.bytes)
    }
}

/// The one that was not asked for longest leaves.
#[derive(Default)]
pub struct LruRule(Vec<Nanos>);

impl LeaveRule for LruRule {
    fn asked(&mut self, now: Nanos, model: usize, _: &SeldomModel) {
        self.0.resize(self.0.len().max(model + 1), 0);
        self.0[model] = now;
    }

    fn worth(&mut self, _: Nanos, model: usize, _: &SeldomModel) -> f64 {
        self.0[model] as f64
    }
}

/// GreedyDual-Size, and counting GreedyDual-Size-Frequency: what a load costs for its size, times how often
/// the model was asked for, on top of the worth of the one that left last.
#[derive(Default)]
pub struct GreedyDualRule {
    counts: bool,
    clock: f64,
    models: Vec<(f64, f64)>,
}

impl GreedyDualRule {
    /// The one that counts how often a model is asked for.
    #[must_use]
    pub fn counting() -> Self {
        Self { counts: true, ..Self::default() }
    }
}

impl LeaveRule for GreedyDualRule {
    fn asked(&mut self, _: Nanos, model: usize, of: &SeldomModel) {
        self.models.resize(self.models.len().max(model + 1), (0.0, 0.0));
        let (count, worth) = &mut self.models[model];
        *count = if self.counts { *count + 1.0 } else { 1.0 };
        *worth = self.clock + *count * of.load as f64 / of.bytes as f64;
    }

    fn worth(&mut self, _: Nanos, model: usize, _: &SeldomModel) -> f64 {
        self.models[model].1
    }

    fn left(&mut self, worth: f64) {
        self.clock = self.clock.max(worth);
    }
}

/// Knows when every model is asked for next.
pub struct ClairvoyantRule {
    next: Vec<VecDeque<Nanos>>,
}

impl ClairvoyantRule {
    /// Of these.
    #[must_use]
    pub fn new(of: &ManyModels) -> Self {
        let mut next = vec![VecDeque::new(); of.models.len()];
        of.requests.iter().for_each(|(at, model)| next[*model].push_back(*at));
        Self { next }
    }
}

impl LeaveRule for ClairvoyantRule {
    fn asked(&mut self, _: Nanos, model: usize, _: &SeldomModel) {
        self.next[model].pop_front();
    }

    fn worth(&mut self, now: Nanos, model: usize, of: &SeldomModel) -> f64 {
        let pause = self.next[model].front().map_or(f64::MAX, |at| (at - now.min(*at)) as f64);
        of.load as f64 / of.bytes as f64 / (pause + 1.0)
    }
}

/// Where a model is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Known,
    Wanted,
    Loading,
    Loaded(Nanos),
}

struct Play<'a> {
    of: &'a ManyModels,
    rule: &'a mut dyn LeaveRule,
    places: Vec<Place>,
    /// Since when requests wait for a model.
    waiting: Vec<Vec<Nanos>>,
    /// Models whose load is asked for, the first one first, and since when.
    wanted: VecDeque<(usize, Nanos)>,
    /// Ends of loads, and times at which a load is tried again.
    events: BinaryHeap<Reverse<(Nanos, Option<usize>)>>,
    waited: f64,
}

impl<'a> Play<'a> {
    fn new(of: &'a ManyModels, rule: &'a mut dyn LeaveRule) -> Self {
        let count = of.models.len();
        Self {
            of,
            rule,
            places: vec![Place::Known; count],
            waiting: vec![Vec::new(); count],
            wanted: VecDeque::new(),
            events: BinaryHeap::new(),
            waited: 0.0,
        }
    }

    fn run(mut self) -> f64 {
        let of = self.of;
        for (at, model) in &of.requests {
            self.until(*at);
            self.rule.asked(*at, *model, &of.models[*model]);
            if !matches!(self.places[*model], Place::Loaded(_)) {
                self.waiting[*model].push(*at);
            }
            if self.places[*model] == Place::Known {
                self.places[*model] = Place::Wanted;
                self.wanted.push_back((*model, *at));
                self.begin(*at);
            }
        }
        self.until(Nanos::MAX);
        self.waited / of.requests.len().max(1) as f64
    }

    fn until(&mut self, time: Nanos) {
        while let Some(Reverse((at, _))) = self.events.peek().filter(|it| it.0.0 <= time) {
            let at = *at;
            let loaded = self.events.pop().and_then(|it| it.0.1);
            if let Some(model) = loaded {
                self.places[model] = Place::Loaded(at);
                let waited = self.waiting[model].drain(..).map(|since| (at - since) as f64 / 1e9);
                self.waited += waited.sum::<f64>();
            }
            self.begin(at);
        }
    }

    /// Begins the loads that can begin.
    fn begin(&mut self, now: Nanos) {
        while let Some((model, since)) = self.wanted.front().copied() {
            if !self.may_load() {
                return;
            }
            let (names, held) = self.held(now);
            let plan = self.plan(model);
            match plan.step(&held) {
                LoadStep::Begin => self.load(now, 0),
                LoadStep::Leave(places) => {
                    for place in places {
                        self.places[names[place]] = Place::Known;
                        if let MemoryState::Idle { worth } = held[place].held {
                            self.rule.left(worth);
                        }
                    }
                }
                LoadStep::Wait { .. } | LoadStep::Never { .. } => {
                    let load = self.of.models[model].load;
                    self.let_pass(now, &plan, FirstLoad { waited: now - since, load });
                    return self.events.push(Reverse((now + TRY_AGAIN, None)));
                }
            }
        }
    }

    /// Begins the loads that fit now, while the first one has to wait for longer.
    fn let_pass(&mut self, now: Nanos, plan: &MemoryPlan, first: FirstLoad) {
        let mut at = 1;
        while at < self.wanted.len() && self.may_load() {
            let (_, held) = self.held(now);
            if !first.lets_pass(&plan.step(&held)) {
                return;
            }
            match self.plan(self.wanted[at].0).step(&held) {
                LoadStep::Begin => self.load(now, at),
                LoadStep::Leave(_) | LoadStep::Wait { .. } | LoadStep::Never { .. } => at += 1,
            }
        }
    }

    fn may_load(&self) -> bool {
        self.places.iter().filter(|it| **it == Place::Loading).count() < self.of.loads
    }

    fn plan(&self, model: usize) -> MemoryPlan {
        let SeldomModel { bytes, .. } = self.of.models[model];
        MemoryPlan { limit: self.of.memory, needed: bytes, measured: true, least: bytes }
    }

    /// Begins the load at this place.
    fn load(&mut self, now: Nanos, at: usize) {
        if let Some((model, _)) = self.wanted.remove(at) {
            self.places[model] = Place::Loading;
            self.events.push(Reverse((now + self.of.models[model].load, Some(model))));
        }
    }

    /// The models that are in memory or on their way, and their names.
    fn held(&mut self, now: Nanos) -> (Vec<usize>, Vec<ModelMemory>) {
        let (mut names, mut models) = (Vec::new(), Vec::new());
        for (model, place) in self.places.iter().enumerate() {
            let of = &self.of.models[model];
            let held = match place {
                Place::Known | Place::Wanted => continue,
                Place::Loading => MemoryState::Loading { measured: true },
                Place::Loaded(since) => {
                    let worth = self.rule.worth(now, model, of);
                    MemoryState::unasked(now, *since, of.load, worth)
                }
            };
            names.push(model);
            models.push(ModelMemory { bytes: of.bytes, own: of.bytes, held });
        }
        (names, models)
    }
}
