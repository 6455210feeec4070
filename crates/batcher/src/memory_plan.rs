//! Which models are in memory, where not all of them fit?
//!
//! [`MemoryPlan::step`] is told what every model holds and what a load needs, and answers whether the load may
//! begin, which models leave for it, or why it never can. Like the batcher it is pure: the engine, the simulator
//! and the tests drive the same function.
//!
//! A model is worth the time of its load for every request that would wait for it again: the idle ones leave
//! that are worth least for the memory that they hold. How often a model is asked for is remembered also while
//! it is not loaded, and over as long a time as its requests take to say it ([`AskedRate`]).

use crate::request::Nanos;

/// Requests after which a rate forgets the older half. Chosen: of 4, 8, 16 and 64 the one that loses least
/// where other models become popular, and 2 % where none do.
const REMEMBERED: f64 = 4.0;
/// A model is not asked to leave before it has been there so long. Bound: a tenth of a second, or of the time
/// of its load, is enough for those that waited for it.
const SETTLE_MIN: Nanos = 100_000_000;
const SETTLE_SHARE: Nanos = 10;

/// How often a model is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AskedRate {
    requests: f64,
    since: Nanos,
}

impl AskedRate {
    /// Nobody has asked for it until now.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self { requests: 0.0, since: now }
    }

    /// So many more have come.
    pub fn add(&mut self, now: Nanos, requests: u64) {
        self.requests += requests as f64;
        if self.requests > REMEMBERED {
            let kept = REMEMBERED / 2.0 / self.requests;
            self.since = now - ((now.saturating_sub(self.since)) as f64 * kept) as Nanos;
            self.requests *= kept;
        }
    }

    /// Requests per second.
    #[must_use]
    pub fn rate(&self, now: Nanos) -> f64 {
        self.requests * 1e9 / (now.saturating_sub(self.since) as f64).max(1e9)
    }
}

/// What a model is worth for the memory that it holds: seconds of waiting that it saves per second and byte.
#[must_use]
pub fn worth(rate: f64, load: Nanos, bytes: u64) -> f64 {
    rate * load as f64 / 1e9 / bytes.max(1) as f64
}

/// How a model stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryState {
    /// It is being loaded; false where nobody knows yet how much it will hold.
    Loading {
        /// Whether its size was measured before.
        measured: bool,
    },
    /// It is asked for now, or was loaded a moment ago.
    Busy,
    /// It may leave; the one that is worth least goes first.
    Idle {
        /// See [`worth`].
        worth: f64,
    },
    /// It was asked to leave.
    Leaving,
    /// It is not to leave.
    Stays,
}

impl MemoryState {
    /// How a loaded model stands that nobody asks for now.
    #[must_use]
    pub fn unasked(now: Nanos, loaded: Nanos, load: Nanos, worth: f64) -> Self {
        match now.saturating_sub(loaded) < SETTLE_MIN.max(load / SETTLE_SHARE) {
            true => Self::Busy,
            false => Self::Idle { worth },
        }
    }
}

/// A model that is in memory, or comes or goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelMemory {
    /// What it holds, or will; what models share counts by their shares.
    pub bytes: u64,
    /// Those of them that it shares with nobody: so many are free at least when it has left.
    pub own: u64,
    /// How it stands.
    pub held: MemoryState,
}

/// What is to be done about a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadStep {
    /// It begins now.
    Begin,
    /// These are asked to leave, by their places in the list.
    Leave(Vec<usize>),
    /// Others are on their way out, or are asked for.
    Wait {
        /// Whether all that is missing is on its way out.
        coming: bool,
    },
    /// It does not fit beside those that stay, which hold so many bytes.
    Never {
        /// What those hold.
        stay: u64,
    },
}

impl LoadStep {
    /// What is to be done where memory of two kinds is wanted. Nobody leaves for the one while the other has to be
    /// waited for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never { stay }, _) | (_, Self::Never { stay }) => Self::Never { stay },
            (Self::Begin, step) | (step, Self::Begin) => step,
            (Self::Wait { coming: false }, _) | (_, Self::Wait { coming: false }) => {
                Self::Wait { coming: false }
            }
            (Self::Wait { .. }, step) | (step, Self::Wait { .. }) => step,
            (Self::Leave(mut these), Self::Leave(those)) => {
                these.retain(|place| !those.contains(place));
                these.extend(those);
                Self::Leave(these)
            }
        }
    }
}

/// A load that wants memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlan {
    /// Bytes that all models may hold together.
    pub limit: u64,
    /// Bytes that this one needs while it loads, at most.
    pub needed: u64,
    /// Whether they were measured. Where they were not, no other load goes on beside it, and it may have all
    /// that there is.
    pub measured: bool,
    /// Bytes that it needs at least: where there can never be so many, it does not begin.
    pub least: u64,
}

impl MemoryPlan {
    /// What is to be done about it, beside these.
    #[must_use]
    pub fn step(&self, models: &[ModelMemory]) -> LoadStep {
        let of = |which: MemoryState| models.iter().filter(move |it| it.held == which);
        let stay: u64 = of(MemoryState::Stays).map(|it| it.bytes).sum();
        let most = self.limit.saturating_sub(stay);
        if self.least > most {
            return LoadStep::Never { stay };
        }
        let needed = self.needed.min(most);
        let alone = |it: &ModelMemory| match it.held {
            MemoryState::Loading { measured } => !(measured && self.measured),
            MemoryState::Busy
            | MemoryState::Idle { .. }
            | MemoryState::Leaving
            | MemoryState::Stays => false,
        };
        let held: u64 = models.iter().map(|it| it.bytes).sum();
        let missing = (held + needed).saturating_sub(self.limit);
        let coming: u64 = of(MemoryState::Leaving).map(|it| it.own).sum();
        if models.iter().any(alone) {
            return LoadStep::Wait { coming: false };
        }
        match missing {
            0 => LoadStep::Begin,
            _ if missing <= coming => LoadStep::Wait { coming: true },
            _ => leaving(models, missing - coming),
        }
    }

    /// Those that leave where more is held than may be.
    #[must_use]
    pub fn excess(limit: u64, models: &[ModelMemory]) -> Vec<usize> {
        let held = models.iter().filter(|it| it.held != MemoryState::Leaving).map(|it| it.bytes);
        match held.sum::<u64>().saturating_sub(limit) {
            0 => Vec::new(),
            missing => match leaving(models, missing) {
                LoadStep::Leave(places) => places,
                LoadStep::Begin | LoadStep::Wait { .. } | LoadStep::Never { .. } => Vec::new(),
            },
        }
    }
}

/// The load that has waited longest for memory.
#[derive(Clone, Copy, Debug)]
pub struct FirstLoad {
    /// For how long it has waited.
    pub waited: Nanos,
    /// How long it will take.
    pub load: Nanos,
}

impl FirstLoad {
    /// Whether one behind it that fits may begin now, where this is to be done about it: there is room that it cannot
    /// use yet. A load
    /// that has waited for as long as it takes is not passed any more, so that many small ones never keep a
    /// large one out.
    #[must_use]
    pub fn lets_pass(&self, step: &LoadStep) -> bool {
        self.waited < self.load.max(SETTLE_MIN) && *step == LoadStep::Wait { coming: false }
    }
}

/// The idle models that are worth least, until so many bytes are free for sure: what they share with others stays. All
/// of them where that is not enough and what they share may be; nobody where that is not enough either.
fn leaving(models: &[ModelMemory], missing: u64) -> LoadStep {
    let worth = |(place, it): (usize, &ModelMemory)| match it.held {
        MemoryState::Idle { worth } => Some((worth, place)),
        MemoryState::Loading { .. }
        | MemoryState::Busy
        | MemoryState::Leaving
        | MemoryState::Stays => None,
    };
    let mut idle: Vec<_> = models.iter().enumerate().filter_map(worth).collect();
    idle.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut places, mut free) = (Vec::new(), 0);
    for (_, place) in idle {
        if free >= missing {
            break;
        }
        free += models[place].own;
        places.push(place);
    }
    if free < missing {
        let all: u64 = places.iter().map(|place| models[*place].bytes).sum();
        return if all < missing {
            LoadStep::Wait { coming: false }
        } else {
            LoadStep::Leave(places)
        };
    }
    // A large one that came last may have made some of the others unnecessary: the one worth most stays first.
    for at in (0..places.len()).rev() {
        let own = models[places[at]].own;
        if free - own >= missing {
            free -= own;
            places.remove(at);
        }
    }
    LoadStep::Leave(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn held(bytes: u64, held: MemoryState) -> ModelMemory {
        ModelMemory { bytes, own: bytes, held }
    }

    fn idle(bytes: u64, worth: f64) -> ModelMemory {
        held(bytes, MemoryState::Idle { worth })
    }

    fn step(needed: u64, models: &[ModelMemory]) -> LoadStep {
        MemoryPlan { limit: 10, needed, measured: true, least: needed }.step(models)
    }

    #[test]
    fn the_ones_that_are_worth_least_leave_and_no_more_than_are_needed() {
        let models = [idle(4, 3.0), idle(1, 1.0), idle(4, 2.0)];
        assert_eq!(step(1, &models), LoadStep::Begin);
        assert_eq!(step(2, &models), LoadStep::Leave(vec![1]));
        assert_eq!(step(5, &models), LoadStep::Leave(vec![2]), "with it the small one may stay");
        assert_eq!(step(10, &models), LoadStep::Leave(vec![1, 2, 0]));
    }

    #[test]
    fn one_that_is_asked_for_loads_or_stays_is_never_asked_to_leave() {
        let loads = MemoryState::Loading { measured: true };
        for others in [MemoryState::Busy, loads, MemoryState::Leaving] {
            let waits = LoadStep::Wait { coming: others == MemoryState::Leaving };
            assert_eq!(step(4, &[held(8, others), idle(1, 0.0)]), waits, "{others:?}");
        }
        let stays = [held(8, MemoryState::Stays), idle(2, 9.0)];
        assert_eq!(step(2, &stays), LoadStep::Leave(vec![1]));
        assert_eq!(step(3, &stays), LoadStep::Never { stay: 8 });
        assert_eq!(step(11, &[]), LoadStep::Never { stay: 0 });
    }

    #[test]
    fn what_is_on_its_way_out_is_waited_for() {
        let models = [held(4, MemoryState::Leaving), idle(6, 1.0)];
        assert_eq!(step(4, &models), LoadStep::Wait { coming: true });
        assert_eq!(step(5, &models), LoadStep::Leave(vec![1]));
    }

    #[test]
    fn what_is_shared_is_not_free_when_one_of_the_sharers_leaves() {
        let sharer = |worth| ModelMemory { own: 1, ..idle(3, worth) };
        assert_eq!(step(5, &[sharer(1.0), sharer(2.0)]), LoadStep::Leave(vec![0]));
        assert_eq!(step(6, &[sharer(1.0), sharer(2.0)]), LoadStep::Leave(vec![0, 1]));
        assert_eq!(step(8, &[sharer(1.0), sharer(2.0)]), LoadStep::Leave(vec![0, 1]), "perhaps");
        let busy = ModelMemory { own: 1, ..held(3, MemoryState::Busy) };
        assert_eq!(step(8, &[sharer(1.0), busy]), LoadStep::Wait { coming: false });
        let leaves = ModelMemory { own: 1, ..held(3, MemoryState::Leaving) };
        assert_eq!(step(8, &[leaves, idle(3, 1.0)]), LoadStep::Leave(vec![1]));
        assert_eq!(step(5, &[leaves, busy]), LoadStep::Wait { coming: true });
    }

    #[test]
    fn a_load_that_needs_more_for_a_while_may_have_all_that_there_is() {
        let peak = MemoryPlan { limit: 10, needed: 12, measured: true, least: 9 };
        assert_eq!(peak.step(&[]), LoadStep::Begin);
        assert_eq!(peak.step(&[idle(1, 1.0)]), LoadStep::Leave(vec![0]));
        assert_eq!(peak.step(&[held(2, MemoryState::Stays)]), LoadStep::Never { stay: 2 });
    }

    #[test]
    fn until_sizes_are_known_one_load_goes_on_at_a_time() {
        let unmeasured = MemoryPlan { limit: 10, needed: 1, measured: false, least: 1 };
        let loads = |measured| [held(1, MemoryState::Loading { measured })];
        let waits = LoadStep::Wait { coming: false };
        assert_eq!(unmeasured.step(&loads(true)), waits);
        assert_eq!(step(1, &loads(false)), waits);
        assert_eq!(step(1, &loads(true)), LoadStep::Begin);
        assert_eq!(unmeasured.step(&[idle(9, 1.0)]), LoadStep::Begin);
        let guessed = |least| MemoryPlan { needed: 99, least, ..unmeasured };
        assert_eq!(guessed(1).step(&[idle(9, 1.0)]), LoadStep::Leave(vec![0]), "it may be wrong");
        assert_eq!(guessed(11).step(&[idle(9, 1.0)]), LoadStep::Never { stay: 0 });
    }

    #[test]
    fn a_load_that_cannot_begin_yet_is_passed_and_not_for_long() {
        let plan = MemoryPlan { limit: 10, needed: 5, measured: true, least: 0 };
        let busy = [held(7, MemoryState::Busy)];
        let first = |waited| FirstLoad { waited, load: 2 * SECOND };
        assert!(first(SECOND).lets_pass(&plan.step(&busy)));
        assert!(!first(2 * SECOND).lets_pass(&plan.step(&busy)), "it has waited enough");
        let leaves = [held(5, MemoryState::Busy), held(2, MemoryState::Leaving)];
        assert!(!first(SECOND).lets_pass(&plan.step(&leaves)), "what leaves is for it");
        let idle = [held(5, MemoryState::Busy), idle(2, 1.0)];
        assert!(!first(SECOND).lets_pass(&plan.step(&idle)), "it asks the idle one to leave");
    }

    #[test]
    fn two_kinds_of_memory_are_waited_for_together() {
        let (waits, comes) = (LoadStep::Wait { coming: false }, LoadStep::Wait { coming: true });
        let leave = |places: &[usize]| LoadStep::Leave(places.to_vec());
        for (one, other, both) in [
            (LoadStep::Begin, leave(&[1]), leave(&[1])),
            (leave(&[0, 1]), leave(&[1, 2]), leave(&[0, 1, 2])),
            (leave(&[1]), waits.clone(), waits.clone()),
            (leave(&[1]), comes.clone(), leave(&[1])),
            (comes.clone(), waits.clone(), waits.clone()),
            (comes.clone(), LoadStep::Begin, comes),
            (waits, LoadStep::Never { stay: 3 }, LoadStep::Never { stay: 3 }),
        ] {
            assert_eq!(one.clone().and(other.clone()), both, "{one:?} and {other:?}");
            let back = other.and(one);
            assert!(back == both || matches!(back, LoadStep::Leave(_)), "{back:?}");
        }
    }

    #[test]
    fn one_that_has_grown_makes_others_leave() {
        let models = [held(9, MemoryState::Busy), idle(2, 1.0), idle(1, 2.0)];
        assert_eq!(MemoryPlan::excess(10, &models), [1]);
        assert_eq!(MemoryPlan::excess(12, &models), [] as [usize; 0]);
        assert_eq!(MemoryPlan::excess(8, &models), [] as [usize; 0], "that is not enough");
    }

    #[test]
    fn a_rate_is_that_of_the_last_requests_however_seldom_they_come() {
        let mut asked = AskedRate::new(0);
        assert!(asked.rate(SECOND) <= 0.0);
        for hour in 1..=100 {
            asked.add(hour * 3600 * SECOND, 1);
        }
        let per_hour = asked.rate(100 * 3600 * SECOND) * 3600.0;
        assert!((0.9..1.3).contains(&per_hour), "{per_hour}");
        for second in 1..=40 {
            asked.add((100 * 3600 + second) * SECOND, 1);
        }
        assert!(asked.rate((100 * 3600 + 40) * SECOND) > 0.5, "it follows");
    }

    #[test]
    fn one_that_was_loaded_a_moment_ago_counts_as_asked_for() {
        assert_eq!(MemoryState::unasked(SECOND, SECOND / 2, 20 * SECOND, 1.0), MemoryState::Busy);
        let later = MemoryState::unasked(4 * SECOND, SECOND / 2, 20 * SECOND, 1.0);
        assert_eq!(later, MemoryState::Idle { worth: 1.0 });
    }
}
