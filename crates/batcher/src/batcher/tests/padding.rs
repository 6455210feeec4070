//! Lengths that are padded: who meets whom, who is borrowed, and what is told of it.

use super::*;

const MS: Nanos = 1_000_000;
/// Without waiting for company, so that only who travels is asked.
const ADAPTIVE: Policy =
    Policy::Adaptive(Adaptive { objective: None, max_wait: Some(0), delivery: 0, window: None });

fn padded(policy: Policy, max_items: u32) -> Config {
    Config { policy, max_items, measure: Measure::Padded, ..Config::default() }
}

fn long(index: u32, length: u64) -> Request {
    Request { cost: length, ..request(index) }
}

/// A worker that is busy with a batch of one while these come. A batch takes 2 ms and 1 ms for every
/// hundred units of length, which is known.
fn behind(config: Config, requests: impl IntoIterator<Item = Request>) -> Play {
    let mut play = Play::with(config, 1);
    for round in 0..80 {
        let items = round % 8 + 1;
        let (cost, exec) = (128 * items, 2 * MS + 128 * items * MS / 100);
        play.skip(0, Event::Measured { group: 0, items: items as u32, cost, exec, prepare: None });
    }
    play.skip(0, Event::Arrive(long(99, 1)));
    play.queue(1, requests);
    play
}

/// The padding of the one batch that leaves when this happens.
fn padding(play: &mut Play, now: Nanos, event: Event) -> Option<Padding> {
    let mut out = Actions::new();
    play.batcher.step(now, event, &mut out);
    let told = out.iter().find_map(|action| match action {
        Action::Dispatch(Dispatch { padding, .. }) => Some(*padding),
        Action::Reject { .. } | Action::Fail { .. } | Action::SetTimer(_) | Action::ClearTimer => {
            None
        }
    });
    told.expect("a batch leaves")
}

#[test]
fn lengths_of_half_an_octave_meet_and_the_next_shorter_are_borrowed() {
    for policy in [Policy::Opportunistic, ADAPTIVE] {
        let lengths = [(0, 128), (1, 60), (2, 100), (3, 90), (4, 400)];
        let mut play = behind(padded(policy, 8), lengths.map(|(index, it)| long(index, it)));
        let first = if policy == ADAPTIVE { MS } else { 10 };
        let mut left = Vec::new();
        for batch in 1..=3 {
            let mut out = Actions::new();
            let done = Event::Done { batch: BatchId(batch), exec: MS, prepare: None };
            play.batcher.step(first * batch, done, &mut out);
            left.extend(
                out.iter().map(|action| say(action, &out)).filter(|it| it.starts_with('b')),
            );
        }
        let names: Vec<_> = left.iter().map(|it| it.split(['[', ']']).nth(1).unwrap()).collect();
        assert!(names.contains(&"0 2 3"), "{policy:?}: 90 is borrowed, 60 is too short: {names:?}");
        assert!(names.contains(&"1") && names.contains(&"4"), "{policy:?}: {names:?}");
    }
}

#[test]
fn a_window_is_full_when_its_items_are_so_many_padded() {
    let config = Config { max_cost: 300, ..padded(WINDOW, 9) };
    let mut play = Play::with(config, 1);
    play.step(0, Event::Arrive(long(0, 100)), &["timer 100"]);
    play.step(1, Event::Arrive(long(1, 50)), &[]);
    play.step(2, Event::Arrive(long(2, 100)), &[]);
    // Three of 128 are more than 300, though three of 100 would not be.
    play.step(3, Event::Arrive(long(3, 100)), &["b1 w0 [0 2] full", "no timer"]);
}

#[test]
fn one_that_fits_only_without_padding_runs_alone() {
    let config = Config { max_cost: 100, ..padded(Policy::Opportunistic, 9) };
    let mut play = behind(config, [long(0, 100), long(1, 100)]);
    play.done(10, 1, &["b2 w0 [0] full"]);
}

#[test]
fn no_request_is_borrowed_while_some_of_the_own_group_are_left() {
    let config = padded(Policy::Opportunistic, 2);
    let mut play = behind(config, [long(0, 128), long(1, 90), long(2, 120), long(3, 128)]);
    play.done(10, 1, &["b2 w0 [0 2] full"]);
    play.done(20, 2, &["b3 w0 [1] idle"]);
    play.done(30, 3, &["b4 w0 [3] idle"]);
}

#[test]
fn a_dispatch_tells_what_is_real_and_what_is_padding() {
    let mut play = behind(padded(Policy::Opportunistic, 8), [long(0, 100), long(1, 80)]);
    let done = Event::Done { batch: BatchId(1), exec: 5, prepare: None };
    assert_eq!(padding(&mut play, 10, done), Some(Padding { real: 180, padded: 200 }));
    let packed = Config { measure: Measure::Packed, ..padded(Policy::Opportunistic, 8) };
    assert_eq!(padding(&mut Play::with(packed, 1), 0, Event::Arrive(long(0, 9))), None);
    let sizes = Config { sizes: vec![4, 8], measure: Measure::Items, ..padded(ADAPTIVE, 8) };
    let alone = padding(&mut Play::with(sizes, 1), 0, Event::Arrive(request(0)));
    assert_eq!(alone, Some(Padding { real: 1, padded: 4 }));
}

/// Whether one of 90 with so much time travels with seven of 128 when the worker is free.
fn borrowed(given: Nanos) -> bool {
    let shorter = Request { deadline: given, ..long(7, 90) };
    let mut play = behind(padded(ADAPTIVE, 8), (0..7).map(|index| long(index, 128)));
    play.queue(1, [shorter]);
    let mut out = Actions::new();
    play.batcher.step(2, Event::Done { batch: BatchId(1), exec: MS, prepare: None }, &mut out);
    let words = out.iter().map(|action| say(action, &out)).find(|it| it.contains("w0")).unwrap();
    assert!(words.contains("0 1 2 3 4 5 6"), "{words}");
    words.contains("6 7]")
}

#[test]
fn no_request_is_borrowed_into_a_batch_that_would_be_late_for_it() {
    assert!(!borrowed(12 * MS), "eight of 128 take 12.24 ms");
    assert!(borrowed(30 * MS));
}
