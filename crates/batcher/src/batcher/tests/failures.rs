//! Isolation: what a failed batch costs its members, and what a bad member costs the house.

use super::*;

const HANDLER: BatchFailure = BatchFailure::Handler;

impl Play {
    /// One batch of the requests `0..len` running on worker 0 of `workers`.
    fn running(config: Config, len: u32, workers: u32) -> Self {
        let mut play = Self::with(Config { max_items: 8, ..config }, 0);
        play.queue(0, (0..len).map(request));
        (0..workers).for_each(|worker| play.up(0, worker));
        play
    }
}

#[test]
fn a_batch_the_model_failed_on_is_halved_until_the_bad_one_stands_alone() {
    let mut play = Play::running(Config::default(), 4, 1);
    play.queue(1, [request(9)]);
    play.failed(2, 1, HANDLER, &["b2 w0 [0 1] retry #2"]);
    play.failed(3, 2, HANDLER, &["b3 w0 [2 3] retry #2"]);
    play.done(4, 3, &["b4 w0 [0] retry #3"]);
    play.failed(5, 4, HANDLER, &["0 failed Handler", "b5 w0 [1] retry #3"]);
    play.done(6, 5, &["b6 w0 [9] idle"]);
}

#[test]
fn a_single_request_the_model_failed_on_is_not_tried_again() {
    Play::running(Config::default(), 1, 1).failed(1, 1, HANDLER, &["0 failed Handler"]);
}

#[test]
fn members_of_a_crashed_batch_are_tried_alone_and_given_up_at_the_second_crash() {
    let mut play = Play::running(Config::default(), 2, 2);
    play.down(1, 0, DownReason::Crashed, &["b2 w1 [0] retry #2"]);
    play.down(2, 1, DownReason::Crashed, &["0 failed Crashed"]);
    play.step(3, Event::WorkerUp { worker: WorkerId(2), slots: 1 }, &["b3 w2 [1] retry #2"]);
    play.done(4, 3, &[]);
}

#[test]
fn a_single_request_survives_one_crash() {
    let mut play = Play::running(Config::default(), 1, 2);
    play.down(1, 0, DownReason::Crashed, &["b2 w1 [0] retry #2"]);
}

#[test]
fn members_of_a_batch_that_hung_are_tried_alone_and_given_up_alone() {
    let mut play = Play::running(Config::default(), 2, 2);
    play.down(1, 0, DownReason::TimedOut, &["b2 w1 [0] retry #2"]);
    play.down(2, 1, DownReason::TimedOut, &["0 failed TimedOut"]);
    play.step(3, Event::WorkerUp { worker: WorkerId(2), slots: 1 }, &["b3 w2 [1] retry #2"]);
}

#[test]
fn the_batch_of_a_removed_worker_goes_back_in_order_without_penalty() {
    let mut play = Play::with(Config { max_items: 2, ..Config::default() }, 0);
    play.queue(0, (0..6).map(request));
    play.up(1, 0);
    play.up(1, 1);
    play.down(2, 0, DownReason::Removed, &[]);
    play.down(2, 1, DownReason::Removed, &[]);
    assert_eq!(play.batcher.waiting(), 6);
    play.step(
        3,
        Event::WorkerUp { worker: WorkerId(2), slots: 2 },
        &["b3 w2 [0 1] full", "b4 w2 [2 3] full"],
    );
}

#[test]
fn a_retry_group_on_a_removed_worker_stays_a_group_at_the_same_attempt() {
    let config = Config { retry_budget: 2, ..Config::default() };
    let mut play = Play::running(config, 4, 1);
    play.failed(1, 1, HANDLER, &["b2 w0 [0 1] retry #2"]);
    play.down(2, 0, DownReason::Removed, &[]);
    play.step(
        3,
        Event::WorkerUp { worker: WorkerId(1), slots: 2 },
        &["b3 w1 [2 3] retry #2", "b4 w1 [0 1] retry #2"],
    );
}

#[test]
fn without_isolation_every_member_fails() {
    for (why, said) in [(DownReason::Crashed, "Crashed"), (DownReason::TimedOut, "TimedOut")] {
        let mut play = Play::running(Config { isolate: false, ..Config::default() }, 2, 1);
        let want = [0, 1].map(|index| format!("{index} failed {said}"));
        play.down(1, 0, why, &want.each_ref().map(String::as_str));
    }
    let mut play = Play::running(Config { isolate: false, ..Config::default() }, 2, 1);
    play.failed(1, 1, HANDLER, &["0 failed Handler", "1 failed Handler"]);
}

#[test]
fn a_retry_avoids_the_worker_that_failed_if_it_can() {
    let mut play = Play::running(Config::default(), 2, 2);
    play.failed(1, 1, HANDLER, &["b2 w1 [0] retry #2", "b3 w0 [1] retry #2"]);
}

#[test]
fn a_batch_earns_a_retry_per_member_when_its_first_attempt_is_over() {
    let config = Config { retry_budget: 2, ..Config::default() };
    let mut play = Play::running(config, 4, 1);
    play.queue(0, [request(8)]);
    // Two retries are paid for, the halves.
    play.failed(1, 1, HANDLER, &["b2 w0 [0 1] retry #2"]);
    // A retry that fails earns nothing, so nothing is left for the quarters.
    play.failed(2, 2, HANDLER, &["0 failed Handler", "1 failed Handler", "b3 w0 [2 3] retry #2"]);
    play.done(3, 3, &["b4 w0 [8] idle"]);
    // The next first attempt earns again.
    play.queue(4, [request(4), request(5)]);
    play.done(5, 4, &["b5 w0 [4 5] idle"]);
    play.failed(6, 5, HANDLER, &["b6 w0 [4] retry #2"]);
    play.done(7, 6, &["b7 w0 [5] retry #2"]);
}

#[test]
fn a_timeout_costs_tokens_too_but_a_first_crash_does_not() {
    let none = Config { retry_budget: 0, ..Config::default() };
    let mut play = Play::running(none.clone(), 2, 2);
    play.down(1, 0, DownReason::TimedOut, &["0 failed TimedOut", "1 failed TimedOut"]);
    let mut play = Play::running(none, 1, 2);
    play.down(1, 0, DownReason::Crashed, &["b2 w1 [0] retry #2"]);
}

#[test]
fn cancelled_and_expired_members_are_not_tried_again() {
    let mut play = Play::with(Config { max_items: 8, ..Config::default() }, 0);
    play.queue(0, [request(0), by(1, 50), request(2)]);
    play.up(0, 0);
    play.cancel(1, 0, &[]);
    play.failed(50, 1, HANDLER, &["0 Cancelled", "1 Expired", "b2 w0 [2] retry #2"]);
}

#[test]
fn a_cancelled_member_is_rejected_even_where_others_fail() {
    let mut play = Play::running(Config { isolate: false, ..Config::default() }, 2, 1);
    play.cancel(1, 1, &[]);
    play.failed(2, 1, HANDLER, &["0 failed Handler", "1 Cancelled"]);
}

#[test]
fn a_cancelled_member_of_a_removed_worker_ends() {
    let mut play = Play::running(Config::default(), 2, 1);
    play.cancel(1, 0, &[]);
    play.down(2, 0, DownReason::Removed, &["0 Cancelled"]);
    assert_eq!(play.batcher.waiting(), 1);
}

#[test]
fn members_that_wait_to_be_tried_again_can_expire_and_be_cancelled() {
    let mut play = Play::with(Config { max_items: 8, ..Config::default() }, 0);
    play.queue(0, [request(0), by(1, 50), request(2), request(3)]);
    play.up(0, 0);
    play.down(1, 0, DownReason::Crashed, &["timer 50"]);
    play.step(50, Event::Timer, &["1 Expired", "no timer"]);
    play.cancel(51, 2, &["2 Cancelled"]);
    assert_eq!(play.batcher.waiting(), 2);
    play.step(
        52,
        Event::WorkerUp { worker: WorkerId(1), slots: 3 },
        &["b2 w1 [0] retry #2", "b3 w1 [3] retry #2"],
    );
}

#[test]
fn retries_go_before_fresh_work_and_never_mix_with_it() {
    let mut play = Play::running(Config::default(), 2, 1);
    play.queue(0, [request(8)]);
    play.failed(1, 1, HANDLER, &["b2 w0 [0] retry #2"]);
    play.done(2, 2, &["b3 w0 [1] retry #2"]);
    play.done(3, 3, &["b4 w0 [8] idle"]);
}
