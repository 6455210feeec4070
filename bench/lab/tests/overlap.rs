//! The adaptive policy finds how many batches a worker is best given, in worlds that a seed draws.
//!
//! A hundred of them here; `--example overlap` plays any number.

use jitney_lab::overlap::OverlapWorld;

#[test]
fn the_best_number_of_batches_at_a_time_is_found_and_a_worse_one_left() {
    let shares: Vec<f64> = (2_001..2_101).map(|seed| OverlapWorld::draw(seed).share().0).collect();
    let near = shares.iter().filter(|share| **share >= 0.97).count();
    let far: Vec<_> = shares.iter().filter(|share| **share < 0.9).collect();
    assert!(near >= 93, "{near} of 100 reach 0.97 of the best");
    assert!(far.len() <= 2, "{far:?}");
}
