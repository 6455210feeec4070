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
fn suspects_are_halved_until_the_deadly_one_stands_alone() {
    let mut play = Play::running(Config::default(), 8, 1);
    let up = |worker| Event::WorkerUp { worker: WorkerId(worker), slots: 1 };
    play.down(1, 0, DownReason::Crashed, &["timer 240000000001"]);
    play.step(2, up(1), &["b2 w1 [0 1 2 3] retry #2"]);
    play.down(3, 1, DownReason::Crashed, &[]);
    play.step(4, up(2), &["b3 w2 [4 5 6 7] retry #2"]);
    play.done(5, 3, &["b4 w2 [0 1] retry #3"]);
    play.down(6, 2, DownReason::Crashed, &[]);
    play.step(7, up(3), &["b5 w3 [2 3] retry #3"]);
    play.done(8, 5, &["b6 w3 [0] retry #4"]);
    // The fourth worker: 1 + log2 8.
    play.down(9, 3, DownReason::Crashed, &["0 failed Crashed"]);
    play.step(10, up(4), &["b7 w4 [1] retry #4", "no timer"]);
    play.done(11, 7, &[]);
}

#[test]
fn suspects_have_a_worker_for_themselves_and_take_turns_with_fresh_work() {
    let mut play = Play::with(Config::default(), 0);
    let up = |worker| Event::WorkerUp { worker: WorkerId(worker), slots: 4 };
    play.step(0, up(0), &[]);
    for index in 0..4 {
        play.step(
            0,
            Event::Arrive(request(index)),
            &[&format!("b{} w0 [{index}] full", index + 1)],
        );
    }
    play.queue(1, [request(8), request(9)]);
    play.down(2, 0, DownReason::Crashed, &["timer 240000000002"]);
    // All that ran on the worker are suspects together, side by side as before.
    play.step(3, up(1), &["b5 w1 [0] retry #2", "b6 w1 [1] retry #2"]);
    play.done(4, 5, &[]);
    play.done(5, 6, &["b7 w1 [8] full", "b8 w1 [9] full"]);
    // Now it is the suspects' turn, once the worker is idle.
    play.queue(6, [request(10)]);
    play.done(7, 7, &[]);
    play.done(8, 8, &["b9 w1 [2] retry #2", "b10 w1 [3] retry #2", "no timer"]);
    play.down(9, 1, DownReason::Crashed, &["timer 240000000002"]);
    play.step(10, up(2), &["b11 w2 [10] full"]);
    play.done(11, 11, &["b12 w2 [2] retry #3"]);
}

#[test]
fn other_workers_go_on_while_suspects_wait_for_one() {
    let mut play = Play::with(Config::default(), 0);
    for worker in 0..3 {
        play.step(0, Event::WorkerUp { worker: WorkerId(worker), slots: 2 }, &[]);
        for index in [2 * worker, 2 * worker + 1] {
            let goes = format!("b{} w{worker} [{index}] full", index + 1);
            play.step(0, Event::Arrive(request(index)), &[&goes]);
        }
    }
    play.queue(1, [request(6), request(7)]);
    play.down(2, 0, DownReason::Crashed, &["timer 240000000002"]);
    play.done(3, 3, &[]);
    play.done(4, 5, &["b7 w2 [6] full"]);
    play.done(5, 4, &["b8 w1 [0] retry #2"]);
    play.done(6, 8, &["b9 w1 [7] full"]);
    play.done(7, 9, &["b10 w1 [1] retry #2", "no timer"]);
}

#[test]
fn suspects_that_are_not_cleared_in_time_fail() {
    let config = Config { suspect_time: 50, ..Config::default() };
    let mut play = Play::running(config, 4, 1);
    play.down(1, 0, DownReason::Crashed, &["timer 51"]);
    play.step(2, Event::WorkerUp { worker: WorkerId(1), slots: 1 }, &["b2 w1 [0 1] retry #2"]);
    play.step(51, Event::Timer, &["2 failed Crashed", "3 failed Crashed", "no timer"]);
    play.down(52, 1, DownReason::Crashed, &["0 failed Crashed", "1 failed Crashed"]);
}

#[test]
fn members_of_a_crashed_batch_are_given_up_at_the_second_crash_in_which_they_are_alone() {
    let mut play = Play::running(Config::default(), 2, 2);
    play.down(1, 0, DownReason::Crashed, &["b2 w1 [0] retry #2", "timer 240000000001"]);
    play.down(2, 1, DownReason::Crashed, &["0 failed Crashed"]);
    let up = Event::WorkerUp { worker: WorkerId(2), slots: 1 };
    play.step(3, up, &["b3 w2 [1] retry #2", "no timer"]);
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
    play.down(1, 0, DownReason::TimedOut, &["b2 w1 [0] retry #2", "timer 240000000001"]);
    play.down(2, 1, DownReason::TimedOut, &["0 failed TimedOut"]);
    let up = Event::WorkerUp { worker: WorkerId(2), slots: 1 };
    play.step(3, up, &["b3 w2 [1] retry #2", "no timer"]);
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
    play.step(50, Event::Timer, &["1 Expired", "timer 240000000001"]);
    play.cancel(51, 2, &["2 Cancelled"]);
    assert_eq!(play.batcher.waiting(), 2);
    let up = Event::WorkerUp { worker: WorkerId(1), slots: 3 };
    play.step(52, up, &["b2 w1 [0] retry #2"]);
    play.done(53, 2, &["b3 w1 [3] retry #2", "no timer"]);
}

#[test]
fn retries_go_before_fresh_work_and_never_mix_with_it() {
    let mut play = Play::running(Config::default(), 2, 1);
    play.queue(0, [request(8)]);
    play.failed(1, 1, HANDLER, &["b2 w0 [0] retry #2"]);
    play.done(2, 2, &["b3 w0 [1] retry #2"]);
    play.done(3, 3, &["b4 w0 [8] idle"]);
}
