//! Interactive before bulk, within bounds.

use super::*;
use crate::fifo::BULK_TURN;

#[test]
fn interactive_goes_first_and_bulk_fills_the_room_left() {
    let mut play = Play::new(Policy::Opportunistic, 3, 0);
    play.queue(0, [bulk(0), bulk(1), request(2), request(3), bulk(4)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [2 3 0] full"]);
    play.done(2, 1, &["b2 w0 [1 4] idle"]);
}

#[test]
fn bulk_of_another_group_does_not_ride_along() {
    let mut play = Play::new(Policy::Opportunistic, 3, 0);
    play.queue(0, [Request { group: 1, ..bulk(0) }, request(1)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [1] idle"]);
    play.done(2, 1, &["b2 w0 [0] idle"]);
}

#[test]
fn an_interactive_request_that_does_not_fit_leaves_the_room_to_bulk() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, [of_items(0, 3), of_items(1, 2), bulk(2)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0 2] full"]);
}

#[test]
fn no_request_overtakes_within_a_priority_even_to_fill_a_batch() {
    let mut play = Play::new(Policy::Opportunistic, 4, 0);
    play.queue(0, [of_items(0, 3), of_items(1, 2), of_items(2, 1)]);
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [0] full"]);
    play.done(2, 1, &["b2 w0 [1 2] idle"]);
}

#[test]
fn among_groups_the_oldest_head_goes_first() {
    let mut play = Play::new(Policy::Opportunistic, 2, 0);
    play.queue(0, [2, 0, 1].map(|group| Request { group, ..request(u32::from(group)) }));
    play.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &["b1 w0 [2] idle"]);
    play.done(2, 1, &["b2 w0 [0] idle"]);
    play.done(3, 2, &["b3 w0 [1] idle"]);
}

#[test]
fn bulk_leads_after_a_bounded_number_of_interactive_dispatches() {
    let mut play = Play::new(Policy::Opportunistic, 1, 0);
    play.queue(0, [bulk(0)]);
    play.queue(0, (1..20).map(request));
    play.up(0, 0);
    for batch in 1..u64::from(BULK_TURN) {
        play.done(batch, batch, &[&format!("b{} w0 [{}] full", batch + 1, batch + 1)]);
    }
    play.done(50, 8, &["b9 w0 [0] full"]);
    play.done(51, 9, &["b10 w0 [9] full"]);
}

#[test]
fn a_batch_led_by_bulk_is_filled_up_with_interactive_requests() {
    let mut play = Play::new(Policy::Opportunistic, 2, 0);
    play.queue(0, [Request { group: 1, ..bulk(90) }]);
    play.queue(0, (0..40).map(request));
    play.queue(0, [Request { group: 1, ..request(91) }]);
    play.up(0, 0);
    for batch in 1..u64::from(BULK_TURN) {
        play.skip(batch, Event::Done { batch: BatchId(batch), exec: 1, prepare: None });
    }
    play.done(50, 8, &["b9 w0 [90 91] full"]);
}
