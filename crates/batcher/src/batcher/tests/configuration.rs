//! Knobs turned on a live batcher.

use super::*;

impl Play {
    #[track_caller]
    fn configure(&mut self, now: Nanos, change: impl FnOnce(&mut Config), want: &[&str]) {
        change(&mut self.config);
        self.step(now, Event::Configure(self.config.clone()), want);
    }
}

#[test]
fn another_policy_may_make_a_batch_due() {
    let mut play = Play::new(WINDOW, 4, 1);
    play.arrive(0, 0, &["timer 100"]);
    let shorter = Policy::Window { delay: 50 };
    play.configure(10, |config| config.policy = shorter, &["timer 50"]);
    play.configure(
        20,
        |config| config.policy = Policy::Opportunistic,
        &["b1 w0 [0] idle", "no timer"],
    );
}

#[test]
fn a_smaller_batch_rejects_requests_that_no_longer_fit_and_may_be_full() {
    let mut play = Play::new(WINDOW, 8, 1);
    play.queue(0, [of_items(0, 3), of_items(1, 2)]);
    play.configure(1, |config| config.max_items = 2, &["0 TooLarge", "b1 w0 [1] full", "no timer"]);
}

#[test]
fn a_smaller_queue_evicts_none() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, (0..3).map(request));
    play.configure(1, |config| config.max_queue = 1, &[]);
    play.arrive(2, 3, &["3 QueueFull"]);
    assert_eq!(play.batcher.waiting(), 3);
}

#[test]
fn groups_divide_and_merge_with_the_mixing_of_origins_in_order_of_arrival() {
    let mut play = Play::new(Policy::Opportunistic, 8, 0);
    play.queue(0, [from(0, OriginKind::Http), from(1, OriginKind::Grpc), request(2)]);
    play.configure(1, |config| config.mix_origins = true, &[]);
    play.step(2, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0 1 2] idle"]);
    play.queue(3, [from(3, OriginKind::Grpc), from(4, OriginKind::Http)]);
    play.configure(4, |config| config.mix_origins = false, &[]);
    play.done(5, 1, &["b2 w0 [3] idle"]);
}

#[test]
fn retry_groups_obey_new_limits_and_lanes() {
    let mut play = Play::with(Config { max_items: 8, mix_origins: true, ..Config::default() }, 0);
    play.queue(0, (0..6).map(request));
    play.queue(0, [from(6, OriginKind::Http), from(7, OriginKind::Grpc)]);
    play.up(0, 0);
    play.configure(1, |config| (config.max_items, config.mix_origins) = (3, false), &[]);
    play.failed(2, 1, BatchFailure::Handler, &["b2 w0 [0 1 2] retry #2"]);
    play.done(3, 2, &["b3 w0 [3] retry #2"]);
    play.done(4, 3, &["b4 w0 [4 5 6] retry #2"]);
    play.configure(5, |config| config.max_items = 0, &[]);
    play.done(6, 4, &["b5 w0 [7] retry #2"]);
}

#[test]
fn a_retry_group_that_waits_is_divided_when_the_limit_shrinks() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, (0..4).map(request));
    play.up(0, 0);
    play.failed(1, 1, BatchFailure::Handler, &["b2 w0 [0 1] retry #2"]);
    play.configure(2, |config| config.max_items = 1, &[]);
    play.done(3, 2, &["b3 w0 [2] retry #2"]);
    play.done(4, 3, &["b4 w0 [3] retry #2"]);
}
