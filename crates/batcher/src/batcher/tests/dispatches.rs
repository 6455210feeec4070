//! When a batch leaves, and with whom.

use super::*;

#[test]
fn a_window_runs_from_the_arrival_of_the_oldest() {
    let mut play = Play::new(WINDOW, 3, 1);
    play.arrive(1000, 0, &["timer 1100"]);
    play.arrive(1050, 1, &[]);
    play.step(1099, Event::Timer, &[]);
    play.step(1100, Event::Timer, &["b1 w0 [0 1] window", "no timer"]);
}

#[test]
fn a_full_batch_does_not_wait_for_its_window() {
    let mut play = Play::new(WINDOW, 2, 1);
    play.arrive(1000, 0, &["timer 1100"]);
    play.arrive(1001, 1, &["b1 w0 [0 1] full", "no timer"]);
}

#[test]
fn a_window_that_ended_while_all_were_busy_is_not_waited_for_again() {
    let mut play = Play::new(WINDOW, 2, 1);
    play.queue(0, [request(0)]);
    play.step(100, Event::Timer, &["b1 w0 [0] window", "no timer"]);
    play.arrive(110, 1, &[]);
    play.done(300, 1, &["b2 w0 [1] window"]);
}

#[test]
fn a_batch_is_full_when_the_next_request_would_not_fit() {
    let mut play = Play::new(WINDOW, 4, 1);
    play.step(0, Event::Arrive(of_items(0, 3)), &["timer 100"]);
    play.step(10, Event::Arrive(of_items(1, 2)), &["b1 w0 [0] full", "no timer"]);
    play.done(20, 1, &["timer 110"]);
}

#[test]
fn a_batch_is_full_when_it_has_reached_its_cost() {
    let config = Config { policy: WINDOW, max_items: 9, max_cost: 10, ..Config::default() };
    let mut play = Play::with(config, 1);
    play.step(0, Event::Arrive(Request { cost: 6, ..request(0) }), &["timer 100"]);
    play.step(1, Event::Arrive(Request { cost: 5, ..request(1) }), &["b1 w0 [0] full", "no timer"]);
}

#[test]
fn opportunistic_takes_what_is_there_up_to_the_maximum() {
    let mut play = Play::new(Policy::Opportunistic, 3, 1);
    play.arrive(0, 0, &["b1 w0 [0] idle"]);
    play.queue(1, (1..6).map(request));
    play.done(10, 1, &["b2 w0 [1 2 3] full"]);
    play.done(20, 2, &["b3 w0 [4 5] idle"]);
}

#[test]
fn one_item_at_a_time_is_always_full() {
    for policy in [Policy::Opportunistic, WINDOW] {
        Play::new(policy, 1, 1).arrive(0, 0, &["b1 w0 [0] full"]);
        Play::new(policy, 0, 1).arrive(0, 0, &["b1 w0 [0] full"]);
    }
}

#[test]
fn the_lowest_numbered_free_worker_gets_the_batch() {
    let mut play = Play::new(Policy::Opportunistic, 1, 3);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.arrive(0, 1, &["b2 w1 [1] full"]);
    play.done(1, 1, &[]);
    play.arrive(2, 2, &["b3 w0 [2] full"]);
    play.arrive(2, 3, &["b4 w2 [3] full"]);
}

#[test]
fn a_worker_holds_as_many_batches_as_it_has_slots() {
    let mut play = Play::new(Policy::Opportunistic, 1, 0);
    play.step(0, Event::WorkerUp { worker: WorkerId(7), slots: 2 }, &[]);
    play.arrive(0, 0, &["b1 w7 [0] full"]);
    play.arrive(0, 1, &["b2 w7 [1] full"]);
    play.arrive(0, 2, &[]);
    assert_eq!((play.batcher.waiting(), play.batcher.running()), (1, 2));
}

#[test]
fn a_retired_worker_finishes_and_gets_nothing_more() {
    let mut play = Play::new(Policy::Opportunistic, 1, 1);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.queue(0, [request(1)]);
    play.step(1, Event::WorkerRetire { worker: WorkerId(0) }, &[]);
    play.done(2, 1, &[]);
    play.step(3, Event::WorkerUp { worker: WorkerId(1), slots: 1 }, &["b2 w1 [1] full"]);
}

#[test]
fn without_a_worker_requests_wait() {
    let mut play = Play::new(Policy::Opportunistic, 2, 0);
    play.queue(0, (0..2).map(request));
    play.step(9, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0 1] full"]);
}

#[test]
fn only_the_same_bucket_and_kind_of_origin_meet() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, [from(0, OriginKind::Http), from(1, OriginKind::Grpc)]);
    play.queue(0, [Request { group: 1, ..request(2) }, from(3, OriginKind::Http)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0 3] idle"]);
    play.done(2, 1, &["b2 w0 [1] idle"]);
    play.done(3, 2, &["b3 w0 [2] idle"]);
}

#[test]
fn kinds_of_origin_mix_where_the_model_allows_it() {
    let config = Config { max_items: 4, mix_origins: true, ..Config::default() };
    let mut play = Play::with(config, 0);
    play.queue(0, [from(0, OriginKind::Http), from(1, OriginKind::Grpc)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0 1] idle"]);
}

#[test]
fn the_items_of_a_request_share_a_batch() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, [of_items(0, 2), of_items(1, 3)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0] full"]);
    play.done(2, 1, &["b2 w0 [1] idle"]);
}

#[test]
fn drain_ends_windows_and_rejects_newcomers() {
    let mut play = Play::new(WINDOW, 4, 1);
    play.arrive(0, 0, &["timer 100"]);
    play.step(10, Event::Drain, &["b1 w0 [0] drain", "no timer"]);
    play.arrive(11, 1, &["1 Draining"]);
    assert!(!play.batcher.drained());
    play.done(12, 1, &[]);
    assert!(play.batcher.drained());
}
