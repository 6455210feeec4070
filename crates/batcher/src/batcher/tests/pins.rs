//! Pinned requests: one worker or none, and never a second try.

use super::*;

const HOUSE: Policy = Policy::Opportunistic;

fn pinned(index: u32, worker: u32) -> Request {
    Request { worker: Some(WorkerId(worker)), ..request(index) }
}

#[test]
fn a_pinned_request_runs_on_its_worker_only() {
    let mut play = Play::new(HOUSE, 4, 2);
    play.step(1, Event::Arrive(pinned(0, 1)), &["b1 w1 [0] idle"]);
    play.step(2, Event::Arrive(pinned(1, 1)), &[]);
    play.step(3, Event::Arrive(request(2)), &["b2 w0 [2] idle"]);
    play.done(4, 2, &[]);
    play.done(5, 1, &["b3 w1 [1] idle"]);
}

#[test]
fn those_of_one_worker_share_a_batch_and_those_of_two_do_not() {
    let mut play = Play::new(WINDOW, 4, 2);
    play.step(0, Event::Arrive(pinned(0, 0)), &["timer 100"]);
    play.step(1, Event::Arrive(pinned(1, 1)), &[]);
    play.step(2, Event::Arrive(pinned(2, 0)), &[]);
    play.step(3, Event::Arrive(request(3)), &[]);
    play.step(100, Event::Timer, &["b1 w0 [0 2] window", "timer 101"]);
    play.step(101, Event::Timer, &["b2 w1 [1] window", "no timer"]);
}

#[test]
fn a_pinned_request_is_never_tried_again() {
    let mut play = Play::new(HOUSE, 4, 2);
    play.step(1, Event::Arrive(pinned(0, 0)), &["b1 w0 [0] idle"]);
    play.step(2, Event::Arrive(pinned(1, 0)), &[]);
    play.step(2, Event::Arrive(pinned(2, 0)), &[]);
    play.done(3, 1, &["b2 w0 [1 2] idle"]);
    play.failed(4, 2, BatchFailure::Handler, &["1 failed Handler", "2 failed Handler"]);
    play.step(5, Event::Arrive(pinned(3, 0)), &["b3 w0 [3] idle"]);
    play.down(6, 0, DownReason::Crashed, &["3 failed Crashed"]);
}

#[test]
fn requests_that_wait_for_a_worker_that_goes_are_rejected() {
    let mut play = Play::new(WINDOW, 4, 2);
    play.step(0, Event::Arrive(pinned(0, 0)), &["timer 100"]);
    play.down(1, 0, DownReason::Crashed, &["0 NoWorker", "no timer"]);
    play.step(2, Event::Arrive(pinned(1, 0)), &["1 NoWorker"]);
    play.step(3, Event::Arrive(pinned(2, 1)), &["timer 103"]);
    let retire = Event::WorkerRetire { worker: WorkerId(1) };
    play.step(4, retire, &["2 NoWorker", "no timer"]);
}

#[test]
fn a_pinned_batch_of_a_removed_worker_is_rejected_rather_than_moved() {
    let mut play = Play::new(HOUSE, 4, 2);
    play.step(1, Event::Arrive(pinned(0, 0)), &["b1 w0 [0] idle"]);
    play.down(2, 0, DownReason::Removed, &["0 NoWorker"]);
}
