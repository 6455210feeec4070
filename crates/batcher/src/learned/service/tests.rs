//! What the model makes of the batches it is shown.

use super::*;

const MS: f64 = 1e6;

fn taught(batches: u32, time: impl Fn(u64) -> f64) -> Service {
    let mut service = Service::new(1_000_000);
    for n in 0..batches {
        let size = u64::from(n * 7 % 16 + 1);
        service.learn(size, time(size) as Nanos);
    }
    service
}

fn affine(size: u64) -> f64 {
    5.0 * MS + MS * size as f64
}

#[track_caller]
fn near(have: f64, want: f64, share: f64) {
    assert!((have / want - 1.0).abs() <= share, "{have}, not {want}");
}

#[test]
fn it_learns_the_curve_and_guesses_beyond_it() {
    let service = taught(300, affine);
    (1..=16).for_each(|size| near(service.mean(size), affine(size), 0.001));
    near(service.mean(32), affine(32), 0.03);
    near(service.mean(90), affine(90), 0.05);
    near(service.factor.value, 1.0, 0.001);
}

#[test]
fn one_slow_batch_hardly_moves_it() {
    let mut service = taught(300, affine);
    service.learn(4, 900_000_000);
    near(service.mean(4), affine(4), 0.06);
    near(service.mean(30), affine(30), 0.05);
}

#[test]
fn a_lasting_slow_down_rescales_the_whole_table_within_eight_batches() {
    let mut service = taught(600, affine);
    (0..8).for_each(|_| service.learn(4, (1.5 * affine(4)) as Nanos));
    near(service.mean(4), 1.5 * affine(4), 0.02);
    near(service.mean(16), 1.5 * affine(16), 0.05);
}

#[test]
fn the_table_never_falls_as_sizes_grow() {
    let service = taught(500, |size| if size == 5 { 30.0 * MS } else { affine(size) });
    (1..200).for_each(|size| assert!(service.mean(size) <= service.mean(size + 1)));
}

#[test]
fn a_size_that_was_slow_at_first_is_thought_fast_again_once_others_are() {
    let mut service = Service::new(1_000_000);
    (0..4).for_each(|_| service.learn(8, (6.0 * affine(8)) as Nanos));
    (0..400u64).for_each(|n| service.learn(n % 6 + 1, affine(n % 6 + 1) as Nanos));
    near(service.mean(8), affine(8), 0.35);
    (0..16).for_each(|_| service.learn(8, affine(8) as Nanos));
    near(service.mean(8), affine(8), 0.01);
}

#[test]
fn a_size_that_is_well_known_and_slow_is_tried_again_only_now_and_then() {
    let mut service = taught(800, |size| if size > 8 { 40.0 * MS } else { 10.0 * MS });
    (0..400).for_each(|n| service.learn(n % 8 + 1, (10.0 * MS) as Nanos));
    assert!(service.mean(9) < 30.0 * MS, "it may have become faster");
    service.learn(9, (40.0 * MS) as Nanos);
    near(service.mean(9), 40.0 * MS, 0.01);
}

#[test]
fn a_small_size_that_is_hardly_known_does_not_make_a_larger_one_slow() {
    let mut service = Service::new(1_000_000);
    (0..3).for_each(|_| service.learn(7, (6.0 * affine(7)) as Nanos));
    (0..40).for_each(|_| service.learn(10, affine(10) as Nanos));
    near(service.mean(10), affine(10), 0.02);
}

#[test]
fn a_well_known_step_is_not_smeared_by_the_line() {
    let service = taught(800, |size| if size > 8 { 20.0 * MS } else { 10.0 * MS });
    near(service.mean(8), 10.0 * MS, 0.001);
    near(service.mean(9), 20.0 * MS, 0.001);
    assert!(service.step_above(8));
    assert!(!service.step_above(7) && !service.step_above(12));
}

#[test]
fn scatter_raises_the_safety_factor_towards_the_95th_percentile() {
    let mut service = taught(300, affine);
    for n in 0..4000u32 {
        // Evenly between 0.9 and 1.1 of the mean.
        let scatter = 0.9 + 0.2 * f64::from(n.wrapping_mul(2_654_435_761) >> 16) / 65536.0;
        service.learn(8, (affine(8) * scatter) as Nanos);
    }
    assert!((1.05..1.12).contains(&service.factor.value), "{}", service.factor.value);
}

#[test]
fn untried_sizes_are_approached_in_a_few_steps() {
    let mut service = Service::new(1_000_000);
    assert_eq!((service.cap(), service.known()), (8, false));
    service.learn(4, 1000);
    assert_eq!((service.cap(), service.known(), service.compared()), (16, true, false));
    service.learn(10, 2000);
    assert_eq!((service.cap(), service.compared()), (40, true));
}

#[test]
fn small_sizes_have_their_own_cell_and_large_ones_the_nearest() {
    for size in 1..=64 {
        assert_eq!(SIZES[floor(size)], size);
        assert_eq!(nearest(size), floor(size));
    }
    assert_eq!((SIZES[64], SIZES[65]), (80, 100));
    assert_eq!((floor(99), nearest(99), nearest(82)), (64, 65, 64));
    assert_eq!(nearest(u64::MAX), CELLS - 1);
    assert!(SIZES[CELLS - 1] > 1 << 31);
}

#[test]
fn it_finds_the_line_behind_many_sizes() {
    let mut fit = LineFit::default();
    (0..400).for_each(|n| fit.learn(f64::from(n % 20 + 1), 5.0 + 2.0 * f64::from(n % 20 + 1)));
    assert!((fit.slope() - 2.0).abs() < 0.05, "{}", fit.slope());
    assert!((fit.at(40.0, fit.slope()) - 85.0).abs() < 2.0);
}

#[test]
fn with_one_size_only_half_of_the_time_counts_as_fixed() {
    let mut fit = LineFit::default();
    (0..100).for_each(|_| fit.learn(8.0, 16.0));
    assert!((fit.at(16.0, fit.slope()) - 24.0).abs() < 1e-6);
    assert!((fit.at(1.0, fit.slope()) - 9.0).abs() < 1e-6);
}

#[test]
fn the_estimate_settles_where_the_share_of_figures_lies_below() {
    let mut tail = Tail::new(0.0, 0.9, (2.0, 0.1), (0.0, 100.0));
    (0..20_000u32).for_each(|n| tail.learn(f64::from(n.wrapping_mul(2_654_435_761) % 100)));
    assert!((80.0..97.0).contains(&tail.value), "{}", tail.value);
}
