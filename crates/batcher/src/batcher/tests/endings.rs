//! How requests end without having run: refusals at the door, expiry, cancellation, stale news.

use super::*;

#[test]
fn one_that_could_never_run_is_rejected_as_too_large() {
    let config = Config { max_items: 4, max_cost: 10, ..Config::default() };
    let mut play = Play::with(config, 1);
    play.step(0, Event::Arrive(of_items(0, 5)), &["0 TooLarge"]);
    play.step(0, Event::Arrive(Request { cost: 11, ..request(1) }), &["1 TooLarge"]);
    play.step(0, Event::Arrive(Request { cost: 10, ..of_items(2, 4) }), &["b1 w0 [2] full"]);
}

#[test]
fn one_that_comes_too_late_is_rejected_as_expired() {
    let mut play = Play::new(Policy::Opportunistic, 1, 1);
    play.step(10, Event::Arrive(by(0, 10)), &["0 Expired"]);
    play.step(10, Event::Arrive(by(1, 11)), &["b1 w0 [1] full"]);
}

#[test]
fn the_queue_counts_waiting_requests_and_not_those_dispatched_at_once() {
    let mut play = Play::with(Config { max_queue: 1, ..Config::default() }, 1);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.arrive(1, 1, &[]);
    play.arrive(2, 2, &["2 QueueFull"]);
    play.done(3, 1, &["b2 w0 [1] full"]);
    let mut play = Play::with(Config { max_queue: 0, ..Config::default() }, 1);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.arrive(1, 1, &["1 QueueFull"]);
}

#[test]
fn a_full_queue_takes_the_request_that_completes_a_batch() {
    let config = Config { policy: WINDOW, max_items: 3, max_queue: 2, ..Config::default() };
    let mut play = Play::with(config, 1);
    play.arrive(0, 0, &["timer 100"]);
    play.arrive(0, 1, &[]);
    play.arrive(0, 2, &["b1 w0 [0 1 2] full", "no timer"]);
}

#[test]
fn a_full_queue_says_when_it_will_be_empty() {
    let mut play = Play::with(Config { max_items: 2, max_queue: 4, ..Config::default() }, 1);
    play.arrive(0, 0, &["b1 w0 [0] idle"]);
    play.step(8, Event::Done { batch: BatchId(1), exec: 8, prepare: None }, &[]);
    play.arrive(9, 1, &["b2 w0 [1] idle"]);
    play.queue(9, (2..6).map(request));
    // One batch running and two waiting, 8 each.
    play.arrive(9, 6, &["6 QueueFull, retry after 24"]);
}

#[test]
fn one_that_expires_while_all_are_busy_is_rejected_by_the_timer() {
    let mut play = Play::new(Policy::Opportunistic, 1, 1);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.step(1, Event::Arrive(by(1, 50)), &["timer 50"]);
    play.step(1, Event::Arrive(by(2, 30)), &["timer 30"]);
    play.step(30, Event::Timer, &["2 Expired", "timer 50"]);
    play.step(50, Event::Timer, &["1 Expired", "no timer"]);
}

#[test]
fn no_request_is_dispatched_at_the_deadline_even_if_the_timer_is_late() {
    let mut play = Play::new(Policy::Opportunistic, 4, 1);
    play.arrive(0, 0, &["b1 w0 [0] idle"]);
    play.queue(1, [by(1, 50), request(2)]);
    play.done(50, 1, &["1 Expired", "b2 w0 [2] idle", "no timer"]);
}

#[test]
fn a_cancelled_request_makes_room_for_others_at_once() {
    let mut play = Play::with(Config { max_queue: 2, max_items: 2, ..Config::default() }, 1);
    play.arrive(0, 0, &["b1 w0 [0] idle"]);
    play.queue(0, [request(1), request(2)]);
    play.cancel(1, 1, &["1 Cancelled"]);
    play.arrive(2, 3, &[]);
    play.done(3, 1, &["b2 w0 [2 3] full"]);
}

#[test]
fn the_window_follows_the_oldest_that_is_left() {
    let mut play = Play::new(WINDOW, 4, 1);
    play.arrive(0, 0, &["timer 100"]);
    play.arrive(30, 1, &[]);
    play.cancel(40, 0, &["0 Cancelled", "timer 130"]);
    play.cancel(41, 1, &["1 Cancelled", "no timer"]);
}

#[test]
fn one_cancelled_while_it_runs_ends_with_its_batch() {
    let mut play = Play::new(Policy::Opportunistic, 1, 1);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.cancel(1, 0, &[]);
    play.done(2, 1, &[]);
    // Its index is free again.
    play.arrive(3, 0, &["b2 w0 [0] full"]);
}

#[test]
fn stale_news_is_ignored() {
    let mut play = Play::new(Policy::Opportunistic, 2, 1);
    play.arrive(0, 0, &["b1 w0 [0] idle"]);
    play.queue(0, [request(1)]);
    play.done(1, 7, &[]);
    play.failed(1, 7, BatchFailure::Handler, &[]);
    play.cancel(1, 9, &[]);
    play.step(1, Event::Cancel { id: RequestId::new(1, 5) }, &[]);
    play.down(1, 3, DownReason::Crashed, &[]);
    play.step(1, Event::WorkerRetire { worker: WorkerId(3) }, &[]);
    play.step(1, Event::Timer, &[]);
    play.done(2, 1, &["b2 w0 [1] idle"]);
    play.done(3, 1, &[]);
    play.cancel(3, 0, &[]);
    assert_eq!((play.batcher.waiting(), play.batcher.running()), (0, 1));
}

#[test]
fn counts_are_of_requests_and_items_that_wait_and_batches_that_run() {
    let mut play = Play::new(Policy::Opportunistic, 8, 1);
    play.arrive(0, 0, &["b1 w0 [0] idle"]);
    play.queue(0, [of_items(1, 3), of_items(2, 4)]);
    let Play { batcher, config } = &play;
    assert_eq!((batcher.waiting(), batcher.waiting_items(), batcher.running()), (2, 7, 1));
    assert_eq!(batcher.config(), config);
}

#[test]
#[should_panic(expected = "an index is reused only after its request has ended")]
fn an_index_in_use_is_not_taken_again() {
    let mut play = Play::new(Policy::Opportunistic, 1, 0);
    play.queue(0, [request(0)]);
    play.arrive(0, 0, &[]);
}
