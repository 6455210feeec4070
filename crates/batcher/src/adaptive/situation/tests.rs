//! Which requests go, on a curve of 5 ms and 1 ms per item that is known exactly.

use super::*;
use crate::learned::service::Service;
use crate::policy::Order;
use crate::queue::sorted::{WaitingRequest, waiting};

const MS: Nanos = 1_000_000;

fn curve() -> Service {
    let mut service = Service::new(MS);
    for n in 0..2000 {
        let size = n % 32 + 1;
        service.learn(size, 5 * MS + MS * size);
    }
    service
}

fn queue(deadlines: &[Nanos]) -> SortedQueue {
    let mut queue = SortedQueue::new(Order::Deadline);
    for (seq, &deadline) in (1..).zip(deadlines) {
        let deadline = if deadline == NEVER { NEVER } else { deadline * MS };
        let arrived = deadline.saturating_sub(25 * MS);
        queue.insert(WaitingRequest { arrived, ..waiting(seq, deadline) });
    }
    queue
}

/// Chooses at time zero with one worker, at `rate` arrivals per millisecond.
fn chosen(deadlines: &[Nanos], rate: f64) -> Option<(usize, usize, bool)> {
    chosen_by(&curve(), deadlines, rate)
}

fn chosen_by(service: &Service, deadlines: &[Nanos], rate: f64) -> Option<(usize, usize, bool)> {
    let queue = queue(deadlines);
    let config = Config { max_items: 32, ..Config::default() };
    let mut forecast = WorkerForecast::default();
    forecast.clear(0, 1);
    let curve = Curve::new(service, &[]);
    let rate = rate / MS as f64;
    let (start, margin, cap) = (0, 0, 32);
    let situation = Situation {
        queue: &queue,
        curve,
        config: &config,
        forecast: &forecast,
        start,
        margin,
        cap,
        rate,
        rhythm: None,
    };
    situation.candidate(&mut Vec::new()).map(|it| (it.skip, it.len, it.hurried))
}

#[test]
fn all_go_if_that_makes_none_late() {
    assert_eq!(chosen(&[NEVER; 40], 1.0), Some((0, 32, false)));
    assert_eq!(chosen(&[11, 12, 13, 14, 15], 1.0), Some((0, 5, false)));
}

#[test]
fn an_urgent_head_gets_a_small_batch_if_the_others_can_still_be_served() {
    assert_eq!(chosen(&[8, 25, 26, 27, 28], 0.1), Some((0, 3, true)));
}

#[test]
fn under_overload_requests_that_would_make_the_batch_small_are_passed_over() {
    assert_eq!(chosen(&[7, 8, 15, 16, 17, 18, 19, 20, 21, 22], 1.0), Some((2, 8, true)));
}

#[test]
fn a_request_that_would_be_late_anyway_does_not_go() {
    assert_eq!(chosen(&[3, 4, 5], 1.0), None);
    assert_eq!(chosen(&[3, 4, 20, 20], 1.0), Some((2, 2, true)));
}

#[test]
fn the_tight_are_not_given_up_for_those_with_far_more_time() {
    assert_eq!(chosen(&[8, 90, 90, 90, 90, 90, NEVER], 1.0), Some((0, 3, true)));
}

#[test]
fn few_heads_are_given_up_for_the_many_behind_them_though_the_workers_keep_up() {
    // For the first two a batch of two could leave, and then all but a few of the others are late.
    let deadlines = [7, 8, 15, 16, 17, 18, 19, 20, 21, 22];
    assert_eq!(chosen(&deadlines, 0.3), Some((2, 8, true)));
    // Here those behind the head have time enough for a batch of their own.
    assert_eq!(chosen(&[7, 20, 21, 22], 0.3), Some((0, 2, true)));
}

#[test]
fn a_batch_goes_though_more_heads_than_are_compared_have_no_time() {
    let deadlines: Vec<Nanos> = [vec![3; 40], vec![20; 4]].concat();
    assert_eq!(chosen(&deadlines, 0.1), Some((40, 4, true)));
}

/// The same curve where every other batch takes a fifth less, and every other a fifth more.
fn scattered() -> Service {
    let mut service = curve();
    for n in 0..4000 {
        let size = n / 2 % 32 + 1;
        service.learn(size, (5 * MS + MS * size) * (4 + 2 * (n % 2)) / 5);
    }
    service
}

#[test]
fn a_request_that_can_only_be_in_time_by_luck_goes_if_that_makes_none_late() {
    let service = scattered();
    assert_eq!(chosen(&[7, 20, 20], 0.1), Some((0, 2, true)));
    // A batch of three takes 8 ms, or 6.4; one of one may take more than 7.
    assert_eq!(chosen_by(&service, &[5, 20, 20], 0.1), Some((1, 2, true)), "no hope");
    assert_eq!(chosen_by(&service, &[6], 0.1), Some((0, 1, false)), "it is alone");
    let all = chosen_by(&service, &[7, 20, 20], 0.1);
    assert_eq!(all.map(|it| (it.0, it.1)), Some((0, 3)));
}
