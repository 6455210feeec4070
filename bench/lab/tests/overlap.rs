//! The adaptive policy finds how many batches a worker is best given, in worlds that a seed draws.
//!
//! Forty of them here; `--example overlap` plays any number.

use jitney_lab::overlap::{OverlapKind, OverlapRule, OverlapWorld};

#[test]
fn the_best_number_of_batches_at_a_time_is_found_and_a_worse_one_left() {
    let share = |seed| OverlapWorld::draw(OverlapKind::Own, seed).share().0;
    let shares: Vec<f64> = (2_001..2_041).map(share).collect();
    let near = shares.iter().filter(|share| **share >= 0.97).count();
    let far: Vec<_> = shares.iter().filter(|share| **share < 0.93).collect();
    assert!(near >= 39, "{near} of 40 reach 0.97 of the best");
    assert!(far.is_empty(), "{far:?}");
}

/// Sixteen clients that come back at once, and two batches at a time: eight each fill both stages. Seven
/// leave one client out of every batch.
#[test]
fn a_batch_is_not_prepared_before_clients_are_back_that_were_just_answered() {
    let rate = OverlapWorld::draw(OverlapKind::Own, 68).rate(OverlapRule::Fixed(2));
    assert!(rate > 760.0, "{rate} answers per second");
}
