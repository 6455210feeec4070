//! A shadow with workers and devices of its own costs those who wait nothing; on shared processors most copies give way.

use jitney_lab::shadow::{ShadowPlace, ShadowWorld};

#[test]
fn a_shadow_costs_nobody_a_place_and_gives_way_where_processors_are_shared() {
    let world = ShadowWorld {
        workers: 2,
        batch: (0, 10_000_000),
        batch_max: 1,
        load: 0.6,
        requests: 20_000,
        seed: 1,
    };
    let without = world.run(ShadowPlace::Nowhere);
    assert_eq!((without.times.len(), without.sent, without.dropped), (20_000, 0, 0));
    let p99 = |place| {
        let run = world.run(place);
        (run.quantile(0.99) as f64 / without.quantile(0.99) as f64, run.sent, run.dropped)
    };
    let (ratio, sent, dropped) = p99(ShadowPlace::OwnDevices);
    assert!(ratio <= 1.03 && sent > 10_000, "{ratio} with {sent} of {}", sent + dropped);
    let (shared, sent, dropped) = p99(ShadowPlace::SharedProcessors);
    assert!(shared > ratio && dropped > 0 && sent > 0, "{shared}: {sent} sent, {dropped} dropped");
}
