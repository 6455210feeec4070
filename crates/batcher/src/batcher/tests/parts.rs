//! Requests that arrive in parts: what leaves with whom, and what counts as one request.

use super::*;

/// Portion `index` of so many items; another one follows.
fn part(index: u32, items: u32) -> Request {
    Request { more: true, ..of_items(index, items) }
}

#[test]
fn nothing_is_dispatched_before_the_last_part_is_there() {
    for policy in [Policy::Opportunistic, WINDOW, Policy::Adaptive(Adaptive::default())] {
        let mut play = Play::new(policy, 4, 1);
        play.step(0, Event::Arrive(part(0, 2)), &[]);
        play.step(0, Event::Arrive(of_items(1, 2)), &["b1 w0 [0 1] full"]);
    }
}

#[test]
fn parts_fill_the_batch_that_another_request_left_room_in() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, [of_items(0, 3), part(1, 1), part(2, 1), of_items(3, 1), of_items(4, 2)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0 1] full"]);
    play.done(2, 1, &["b2 w0 [2 3 4] full"]);
}

#[test]
fn all_parts_together_are_one_request_that_waits() {
    let config = Config { max_items: 4, max_queue: 2, ..Config::default() };
    for policy in [Policy::Opportunistic, Policy::Adaptive(Adaptive::default())] {
        let mut play = Play::with(Config { policy, ..config.clone() }, 0);
        play.queue(0, [part(0, 2), part(1, 2), of_items(2, 1), request(3)]);
        assert_eq!((play.batcher.waiting(), play.batcher.waiting_items()), (2, 6));
        play.step(0, Event::Arrive(request(4)), &["4 QueueFull"]);
    }
}

#[test]
fn no_more_items_wait_than_the_full_batches_of_a_full_queue_have() {
    let config = Config { max_items: 4, max_queue: 2, ..Config::default() };
    for policy in [Policy::Opportunistic, Policy::Adaptive(Adaptive::default())] {
        let mut play = Play::with(Config { policy, ..config.clone() }, 0);
        play.queue(0, [part(0, 4), of_items(1, 3)]);
        play.queue(0, [part(2, 1)]);
        play.step(0, Event::Arrive(of_items(3, 1)), &["3 QueueFull"]);
    }
}

#[test]
fn a_part_whose_siblings_do_not_come_is_dispatched_with_the_next_event() {
    let mut play = Play::new(Policy::Opportunistic, 4, 1);
    play.step(0, Event::Arrive(part(0, 2)), &[]);
    play.step(1, Event::Cancel { id: RequestId::new(9, 0) }, &["b1 w0 [0] idle"]);
}

#[test]
fn a_drain_waits_for_parts_too() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, [part(0, 4), of_items(1, 1)]);
    play.step(1, Event::Drain, &[]);
    play.cancel(2, 1, &["1 Cancelled"]);
    assert_eq!((play.batcher.waiting(), play.batcher.drained()), (0, false));
    play.cancel(3, 0, &["0 Cancelled"]);
    assert!(play.batcher.drained());
}

#[test]
fn requests_that_came_together_share_a_batch() {
    let followed = |index| Request { followed: true, ..request(index) };
    for policy in [Policy::Opportunistic, WINDOW, Policy::Adaptive(Adaptive::default())] {
        let mut play = Play::new(policy, 3, 1);
        play.step(0, Event::Arrive(followed(0)), &[]);
        play.step(0, Event::Arrive(followed(1)), &[]);
        assert_eq!(play.batcher.waiting(), 2, "each of them counts");
        play.step(0, Event::Arrive(request(2)), &["b1 w0 [0 1 2] full"]);
    }
    let mut play = Play::new(Policy::Opportunistic, 3, 1);
    play.step(0, Event::Arrive(followed(0)), &[]);
    play.step(1, Event::Timer, &["b1 w0 [0] idle"]);
}

#[test]
fn a_queue_that_is_full_decides_before_the_last_one_is_there() {
    let config = Config { max_items: 4, max_queue: 1, ..Config::default() };
    for policy in [Policy::Opportunistic, Policy::Adaptive(Adaptive::default())] {
        let mut play = Play::with(Config { policy, ..config.clone() }, 0);
        play.queue(0, [request(0)]);
        let second = Request { followed: true, ..request(1) };
        play.step(0, Event::Arrive(second), &["1 QueueFull"]);
    }
}
