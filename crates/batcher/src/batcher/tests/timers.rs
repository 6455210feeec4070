//! One timer, spoken of only when it changes.

use super::*;

#[test]
fn the_timer_is_the_earlier_of_window_and_half_time() {
    let mut play = Play::new(WINDOW, 9, 1);
    play.arrive(0, 0, &["timer 100"]);
    play.step(1, Event::Arrive(by(1, 201)), &[]);
    play.step(2, Event::Arrive(by(2, 50)), &["timer 26"]);
    play.step(26, Event::Timer, &["b1 w0 [0 1 2] deadline", "no timer"]);
}

#[test]
fn while_all_are_busy_the_timer_is_the_next_deadline() {
    let mut play = Play::new(WINDOW, 1, 1);
    play.arrive(0, 0, &["b1 w0 [0] full"]);
    play.step(2, Event::Arrive(by(1, 50)), &["timer 50"]);
    play.step(50, Event::Timer, &["1 Expired", "no timer"]);
}

#[test]
fn a_window_needs_no_timer_while_all_are_busy() {
    let mut play = Play::new(WINDOW, 2, 1);
    play.queue(0, [request(0)]);
    play.arrive(0, 1, &["b1 w0 [0 1] full", "no timer"]);
    play.arrive(10, 2, &[]);
    play.done(20, 1, &["timer 110"]);
}

#[test]
fn a_timer_that_fires_early_or_late_changes_nothing_by_itself() {
    let mut play = Play::new(WINDOW, 2, 1);
    play.arrive(0, 0, &["timer 100"]);
    play.step(40, Event::Timer, &[]);
    play.step(
        100,
        Event::Announce { origin: request(1).origin },
        &["b1 w0 [0] window", "no timer"],
    );
    play.step(101, Event::Timer, &[]);
}

#[test]
fn an_endless_window_sets_no_timer() {
    let mut play = Play::new(Policy::Window { delay: Nanos::MAX }, 2, 1);
    play.arrive(5, 0, &[]);
    play.arrive(6, 1, &["b1 w0 [0 1] full"]);
}

#[test]
fn time_does_not_run_backwards() {
    let mut play = Play::new(WINDOW, 9, 1);
    play.arrive(1000, 0, &["timer 1100"]);
    play.arrive(900, 1, &[]);
    play.cancel(900, 0, &["0 Cancelled"]);
}
