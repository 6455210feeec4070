//! Workers that follow the load: nearly all requests in time with far fewer workers, and no flapping.
//!
//! `--example capacity` plays whole days, beside Ray Serve's rule.

use jitney_batcher::Nanos;
use jitney_lab::capacity::{
    CapacityResult, FixedWorkers, OurRule, RayRule, RaySettings, ScaledModel, play, varying,
};
use jitney_sim::{Load, ServiceCurve, ms};

fn curve() -> ServiceCurve {
    ServiceCurve::affine(200.0, 20.0, 8)
}

fn model() -> ScaledModel {
    ScaledModel { bounds: (1, 8), load: ms(5_000.0), objective: ms(1_500.0), processors: None }
}

fn ours(load: &Load) -> CapacityResult {
    play(&curve(), model(), load, 1, &mut OurRule::new(model()))
}

#[test]
fn a_day_takes_fewer_workers_than_rays_rule_and_than_a_fixed_number() {
    let (full, hours) = (curve().capacity(8), 0.5);
    let day = |t: f64| full * (0.32 - 0.28 * (t / (hours * 3600.0) * std::f64::consts::TAU).sin());
    let load = varying(day, hours * 3600.0, 4.0, model().objective, 1);
    let fixed = play(&curve(), model(), &load, 8, &mut FixedWorkers(8));
    let ray = RayRule::new(RaySettings::default(), model().bounds);
    let ray = play(&curve(), model(), &load, 1, &mut { ray });
    let ours = ours(&load);
    assert!(ours.on_time >= 0.99 * fixed.on_time, "{ours:?}");
    assert!(ours.worker_seconds <= 0.6 * fixed.worker_seconds, "{ours:?}");
    assert!(ours.on_time > ray.on_time && ours.worker_seconds < ray.worker_seconds, "{ray:?}");
}

#[test]
fn bursts_are_met_with_a_third_of_the_workers() {
    let full = curve().capacity(8);
    let rate = |t: f64| if t % 300.0 < 30.0 { full * 0.7 } else { full * 0.07 };
    let load = varying(rate, 1800.0, 4.0, model().objective, 2);
    let fixed = play(&curve(), model(), &load, 8, &mut FixedWorkers(8));
    let ours = ours(&load);
    // Ten times the rate within a moment: until more workers have loaded, some come too late under any rule.
    assert!(ours.on_time >= 0.92 * fixed.on_time, "{ours:?}");
    assert!(ours.worker_seconds <= 0.36 * fixed.worker_seconds, "{ours:?}");
}

#[test]
fn on_steady_load_the_number_settles() {
    const MINUTE: Nanos = 60_000_000_000;
    for tenth in 1..=10 {
        let rate = curve().capacity(8) * f64::from(tenth) / 10.0;
        let load = varying(|_| rate, 600.0, 1.0, model().objective, 100 + tenth as u64);
        let ran = ours(&load);
        let late = ran.changes.iter().filter(|(at, _)| *at > MINUTE).count();
        assert!(late <= 1, "{tenth}/10 of the capacity: {:?}", ran.changes);
    }
}

/// Two of eight workers take all processors: the others would only make all of them slower.
fn sharing() -> ScaledModel {
    ScaledModel { processors: Some(2), ..model() }
}

#[test]
fn workers_that_bring_nothing_are_not_kept_and_seldom_tried() {
    for (tenth, mean) in [(3, 1.1), (8, 2.1), (10, 3.3)] {
        let rate = curve().capacity(2) * f64::from(tenth) / 10.0;
        let load = varying(|_| rate, 1500.0, 1.0, model().objective, 200 + tenth as u64);
        let ran = play(&curve(), sharing(), &load, 1, &mut OurRule::new(sharing()));
        let late = ran.changes.iter().filter(|(at, _)| *at > 60_000_000_000).count();
        assert!(ran.worker_seconds < 1500.0 * mean, "{tenth}/10 of two workers: {ran:?}");
        assert!(late <= 4, "{tenth}/10 of two workers, tried twice: {:?}", ran.changes);
    }
}
