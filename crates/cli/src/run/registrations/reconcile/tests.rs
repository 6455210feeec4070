//! Lists that change, and what is done about it.

use jitney_settings::SettingSource;
use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS, RESPONSE_TIMEOUT};

use super::*;

fn entry(name: &str, url: &str) -> Startup {
    Startup::named(name, url)
}

fn version(name: &str, version: &str) -> Startup {
    let url = format!("{name}-{version}.mar");
    Startup { version: Some(version.to_owned()), ..entry(name, &url) }
}

fn with(mut entry: Startup, setting: &Setting, value: u64) -> Startup {
    // The line is another one each time.
    let line = SettingSource::File { path: std::path::Path::new("l").into(), line: Some(1) };
    entry.settings.set(setting, setting.kind.parse(&value.to_string()).expect("reads"), line);
    entry
}

fn running(entries: &[Startup]) -> Vec<Listing> {
    let listing = |entry: &Startup| Listing { applied: Some(entry.clone()), ..Listing::default() };
    entries.iter().map(listing).collect()
}

fn steps(wanted: &[Startup], before: &[Startup]) -> Vec<ReconcileStep> {
    reconcile(Instant::now(), wanted, &running(before))
}

#[test]
fn new_models_are_loaded_and_old_ones_go() {
    let (a, b) = (entry("a", "a.mar"), entry("b", "b.mar"));
    let (ab, only) = ([a.clone(), b.clone()], [b.clone()]);
    let load = |wanted| ReconcileStep::Load { wanted, held: None };
    assert_eq!(steps(&ab, &[]), [load(0), load(1)]);
    assert_eq!(steps(&ab, &ab), [], "nothing changed");
    assert_eq!(steps(&only, &ab), [ReconcileStep::Remove { held: 0 }]);
    assert_eq!(steps(&[b.clone(), a.clone()], &ab), [], "another order");
    assert_eq!(
        steps(&[], &ab),
        [ReconcileStep::Remove { held: 0 }, ReconcileStep::Remove { held: 1 }]
    );
}

#[test]
fn another_url_or_version_takes_the_place_of_the_old_one() {
    let replaced = [ReconcileStep::Load { wanted: 0, held: Some(0) }];
    assert_eq!(steps(&[entry("a", "new.mar")], &[entry("a", "old.mar")]), replaced);
    assert_eq!(steps(&[version("a", "2")], &[version("a", "1")]), replaced);
    // Two versions side by side: the one that stays is left alone.
    let beside = steps(&[version("a", "2"), version("a", "1")], &[version("a", "1")]);
    assert_eq!(beside, [ReconcileStep::Load { wanted: 0, held: None }]);
    let dropped = steps(&[version("a", "2")], &[version("a", "1"), version("a", "2")]);
    assert_eq!(dropped, [ReconcileStep::Remove { held: 0 }]);
}

#[test]
fn settings_that_a_running_model_takes_are_changed_live() {
    let before = with(entry("a", "a.mar"), &MAX_BATCH_SIZE, 4);
    let after = with(with(entry("a", "a.mar"), &MAX_BATCH_SIZE, 8), &WORKERS, 2);
    let [ReconcileStep::Change { wanted: 0, held: 0, settings }] =
        &steps(std::slice::from_ref(&after), std::slice::from_ref(&before))[..]
    else {
        panic!("one change");
    };
    assert_eq!(settings.show(&MAX_BATCH_SIZE).as_deref(), Some("8"));
    assert_eq!(settings.show(&WORKERS).as_deref(), Some("2"));
    let again = [ReconcileStep::Load { wanted: 0, held: Some(0) }];
    let not_live = with(before.clone(), &RESPONSE_TIMEOUT, 5);
    assert_eq!(steps(&[not_live], std::slice::from_ref(&before)), again);
    assert_eq!(steps(&[entry("a", "a.mar")], &[before]), again, "what was set is set no more");
    let latency = with(with(entry("a", "a.mar"), &MAX_BATCH_SIZE, 8), &MAX_LATENCY_MS, 9);
    assert_eq!(
        steps(std::slice::from_ref(&latency), &[with(latency.clone(), &MAX_LATENCY_MS, 9)]),
        []
    );
}

#[test]
fn shares_change_on_the_running_model() {
    let sharing = |text: &str| {
        let mut entry = version("a", "1");
        let value = TRAFFIC.kind.parse(text).expect("reads");
        entry.settings.set(&TRAFFIC, value, SettingSource::Registration);
        entry
    };
    let (before, after) = (r#"{"shares":{"1":90,"2":10}}"#, r#"{"shares":{"1":50,"2":50}}"#);
    let steps = steps(&[sharing(after)], &[sharing(before)]);
    let [ReconcileStep::Change { settings, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert!(settings.show(&TRAFFIC).expect("shares").contains("50"));
}

#[test]
fn what_failed_is_tried_again_after_a_pause_that_grows() {
    let (mut now, wanted) = (Instant::now(), [entry("a", "broken.mar")]);
    let again = [ReconcileStep::Load { wanted: 0, held: Some(0) }];
    let mut held = running(&[entry("a", "good.mar")]);
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        held[0].loading = Some(wanted[0].clone());
        assert_eq!(reconcile(now, &wanted, &held), [], "on its way");
        held[0].fail(now, wanted[0].clone(), "broken".to_owned());
        assert_eq!(reconcile(now, &wanted, &held), []);
        assert_eq!(next_attempt(&held), Some(now + Duration::from_secs(seconds)));
        now += Duration::from_secs(seconds);
        assert_eq!(reconcile(now, &wanted, &held), again);
    }
    let other = [entry("a", "mended.mar")];
    assert_eq!(reconcile(now, &other, &held), again, "another one is tried at once");
    let before = [entry("a", "good.mar")];
    assert_eq!(
        reconcile(now, &before, &held),
        [ReconcileStep::Keep { held: 0 }],
        "the list went back"
    );
}

#[test]
fn a_list_that_changes_while_a_model_loads_is_followed() {
    let loading = Listing { loading: Some(version("a", "2")), ..Listing::default() };
    let held = [Listing { applied: Some(version("a", "1")), ..loading }];
    let now = Instant::now();
    assert_eq!(reconcile(now, &[version("a", "2")], &held), []);
    assert_eq!(reconcile(now, &[version("a", "1")], &held), [ReconcileStep::Keep { held: 0 }]);
    let other = reconcile(now, &[version("a", "3")], &held);
    assert_eq!(other, [ReconcileStep::Load { wanted: 0, held: Some(0) }]);
    assert_eq!(reconcile(now, &[], &held), [ReconcileStep::Remove { held: 0 }]);
}

#[test]
fn the_first_version_that_is_listed_leads() {
    let names = |wanted: &[Startup], before: &[Startup]| -> Vec<String> {
        let leaders = new_leaders(wanted, before);
        leaders.iter().filter_map(|leader| leader.version.clone()).collect()
    };
    let (one, two) = (version("a", "1"), version("a", "2"));
    let both = [one.clone(), two.clone()];
    assert_eq!(names(&both, &[]), ["1"]);
    assert_eq!(names(&both, &both), Vec::<String>::new(), "who changed it by hand keeps it");
    assert_eq!(names(&[two, one], &both), ["2"]);
}
