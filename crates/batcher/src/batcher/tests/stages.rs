//! Workers that prepare one batch while they run another.

use super::*;

const MS: Nanos = 1_000_000;
/// Without waiting for company, so that only the worker is asked.
const ADAPTIVE: Policy =
    Policy::Adaptive(Adaptive { objective: None, max_wait: Some(0), delivery: 0, window: None });

/// One worker of three slots. A batch takes 4 ms to prepare and 10 ms to run, whatever its size up to
/// eight, which is known.
fn play(policy: Policy) -> Play {
    let mut play = Play::new(policy, 8, 0);
    play.skip(0, Event::WorkerUp { worker: WorkerId(0), slots: 3 });
    for items in (1..=8).cycle().take(80) {
        let (cost, prepare) = (items.into(), Some(4 * MS));
        play.skip(0, Event::Measured { group: 0, items, cost, exec: 10 * MS, prepare });
    }
    play
}

/// What leaves in this step.
fn leaves(play: &mut Play, now: Nanos, event: Event) -> Vec<String> {
    let mut out = Actions::new();
    play.batcher.step(now, event, &mut out);
    out.iter().map(|action| say(action, &out)).filter(|it| !it.contains("timer")).collect()
}

fn done(batch: u64) -> Event {
    Event::Done { batch: BatchId(batch), exec: 10 * MS, prepare: Some(4 * MS) }
}

#[test]
fn in_order_of_arrival_a_busy_worker_takes_full_batches_only() {
    let mut play = play(Policy::Opportunistic);
    assert_eq!(leaves(&mut play, 1, Event::Arrive(request(0))), ["b1 w0 [0] idle"]);
    for index in 1..8 {
        assert!(leaves(&mut play, 1, Event::Arrive(request(index))).is_empty());
    }
    let full = leaves(&mut play, 1, Event::Arrive(request(8)));
    assert_eq!(full, ["b2 w0 [1 2 3 4 5 6 7 8] full"]);
    assert!(leaves(&mut play, 2, Event::Arrive(request(9))).is_empty());
    assert!(leaves(&mut play, 14 * MS, done(1)).is_empty(), "it is still busy");
    assert_eq!(leaves(&mut play, 24 * MS, done(2)), ["b3 w0 [9] idle"]);
}

#[test]
fn the_next_batch_is_prepared_when_the_last_one_ends_and_not_long_before() {
    let mut play = play(ADAPTIVE);
    let mut now = 10 * MS;
    assert_eq!(leaves(&mut play, now, Event::Arrive(request(0))), ["b1 w0 [0] idle"]);
    // Prepared at 14 ms, over at 24 ms; preparing the next one takes until then if it comes at 20 ms.
    for index in 1..=8 {
        assert!(leaves(&mut play, now, Event::Arrive(request(index))).is_empty());
    }
    let mut handed = None;
    while handed.is_none() && now < 24 * MS {
        now += MS / 4;
        handed = leaves(&mut play, now, Event::Timer).pop().map(|words| (now, words));
    }
    let (at, words) = handed.expect("it is handed over before the first ends");
    assert_eq!(words, "b2 w0 [1 2 3 4 5 6 7 8] full");
    assert!((17 * MS..=20 * MS).contains(&at), "{at}");
}

#[test]
fn a_request_has_to_be_prepared_before_its_deadline_too() {
    let mut play = play(ADAPTIVE);
    let rejected = leaves(&mut play, MS, Event::Arrive(by(0, MS + 12 * MS)));
    assert!(rejected[0].starts_with("0 Infeasible"), "4 and 10 ms do not fit: {rejected:?}");
    let dispatched = leaves(&mut play, 2 * MS, Event::Arrive(by(1, 2 * MS + 18 * MS)));
    assert!(dispatched[0].starts_with("b1 w0 [1]"), "{dispatched:?}");
    // Behind that one, which is over at 16 ms, it is prepared meanwhile and runs until 26 ms.
    assert!(leaves(&mut play, 3 * MS, Event::Arrive(by(2, 28 * MS))).is_empty());
    let rejected = leaves(&mut play, 3 * MS, Event::Arrive(by(3, 24 * MS)));
    assert!(rejected[0].starts_with("3 Infeasible"), "{rejected:?}");
}

#[test]
fn a_worker_that_only_has_slots_is_treated_as_before() {
    let mut play = Play::new(Policy::Opportunistic, 8, 0);
    play.skip(0, Event::WorkerUp { worker: WorkerId(0), slots: 2 });
    play.arrive(1, 0, &["b1 w0 [0] idle"]);
    play.arrive(2, 1, &["b2 w0 [1] idle"]);
}
