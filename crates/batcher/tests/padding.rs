//! What length groups and borrowing save: short texts of very different length, padded in batches.
//!
//! Lengths are drawn from a lognormal distribution with the median 24, as texts of users have it; so
//! many wait that every batch could be full.

use std::f64::consts::TAU;

use jitney_batcher::*;

const WAITING: u32 = 256;
const BATCHES: u32 = 2000;
const ITEMS: u32 = 16;
const MS: Nanos = 1_000_000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn text(&mut self) -> u64 {
        let normal = (-2.0 * (1.0 - self.share()).ln()).sqrt() * (TAU * self.share()).cos();
        (24.0 * (0.8 * normal).exp()).ceil().clamp(1.0, 512.0) as u64
    }
}

/// What is padded per what is real, and how many items a batch has.
fn play(policy: Policy, measure: Measure) -> (f64, f64) {
    let config = Config { policy, measure, max_items: ITEMS, ..Config::default() };
    let mut batcher = Batcher::new(Config { max_queue: 2 * WAITING, ..config });
    let (mut dice, mut lengths) = (Dice(7), vec![0; WAITING as usize]);
    let mut generation = vec![0; WAITING as usize];
    let mut free: Vec<u32> = (0..WAITING).collect();
    let (mut real, mut padded, mut items, mut now) = (0, 0, 0, 0);
    let mut out = Actions::new();
    batcher.step(0, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &mut out);
    for _ in 0..BATCHES {
        for index in free.drain(..) {
            let place = index as usize;
            (lengths[place], generation[place]) = (dice.text(), generation[place] + 1);
            let id = RequestId::new(index, generation[place]);
            let request = Request { cost: lengths[place], ..Request::new(id) };
            batcher.step(now, Event::Arrive(request), &mut out);
        }
        let left = out.iter().find_map(|action| match action {
            Action::Dispatch(Dispatch { batch, members, .. }) => {
                Some((*batch, out.members(members)))
            }
            Action::Reject { .. }
            | Action::Fail { .. }
            | Action::SetTimer(_)
            | Action::ClearTimer => None,
        });
        let (batch, members) = left.expect("somebody always waits");
        let own = |id: &RequestId| lengths[id.index()];
        let longest = members.iter().map(own).max().unwrap_or(0);
        real += members.iter().map(own).sum::<u64>();
        padded += longest * members.len() as u64;
        items += members.len();
        free.extend(members.iter().map(|id| id.index() as u32));
        let exec = MS + longest * free.len() as u64 * MS / 500;
        now += exec;
        out.clear();
        batcher.step(now, Event::Done { batch, exec, prepare: None }, &mut out);
    }
    (padded as f64 / real as f64, items as f64 / f64::from(BATCHES))
}

#[test]
fn length_groups_leave_a_tenth_of_the_padding() {
    let adaptive =
        Policy::Adaptive(Adaptive { objective: None, max_wait: None, delivery: 0, window: None });
    let (mixed, _) = play(Policy::Opportunistic, Measure::Packed);
    assert!((3.1..3.4).contains(&mixed), "{mixed} in order of arrival");
    for policy in [Policy::Opportunistic, adaptive] {
        let (bucketed, items) = play(policy, Measure::Padded);
        assert!(bucketed < 1.18, "{bucketed} by length, {policy:?}");
        assert!(items > 0.85 * f64::from(ITEMS), "{items} in a batch, {policy:?}");
    }
}
