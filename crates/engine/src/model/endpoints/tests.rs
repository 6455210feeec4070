//! Endpoints that are changed one by one and all together.

use super::*;
use crate::testkit;
use jitney_settings::model::POLICY;

const NONE: BTreeMap<String, EndpointOptions> = BTreeMap::new();

fn api() -> Api {
    let names = ["one", "two", "single"];
    let batch_sizes = BTreeMap::from([("one".to_owned(), 4), ("two".to_owned(), 8)]);
    Api { endpoints: names.map(str::to_owned).to_vec(), batch_sizes, ..Api::default() }
}

fn settings(batch_size: u32) -> ModelSettings {
    ModelSettings { batch_size, ..testkit::settings() }
}

fn endpoints(batch_size: u32) -> Endpoints {
    Endpoints::new(api(), &settings(batch_size), &NONE)
}

fn change(endpoint: Option<&str>, batch_size: Option<u32>) -> Reconfigure {
    let sized = batch_size.map(|size| Reconfigure::of(&MAX_BATCH_SIZE, size));
    Reconfigure { endpoint: endpoint.map(str::to_owned), ..sized.unwrap_or_default() }
}

fn with(mut change: Reconfigure, setting: &Setting, value: impl Into<SettingValue>) -> Reconfigure {
    change.settings.set(setting, value, SettingSource::Live);
    change
}

fn told(endpoints: &Endpoints, name: &str) -> u32 {
    let mut route = CallRoute::to_endpoint(name);
    endpoints.complete(endpoints.index(&route).expect("an endpoint"), &mut route);
    route.batch_size
}

fn sizes(endpoints: &Endpoints) -> Vec<Option<u32>> {
    ["one", "two", "single"].map(|name| endpoints.views()[name].batch_size).to_vec()
}

fn objectives(endpoints: &Endpoints) -> [Objective; 3] {
    ["one", "two", "single"].map(|name| {
        let mut route = CallRoute::to_endpoint(name);
        endpoints.complete(endpoints.index(&route).expect("an endpoint"), &mut route)
    })
}

#[test]
fn a_change_of_one_endpoint_leaves_the_others_and_the_model_follows_the_largest() {
    let endpoints = endpoints(8);
    let now = settings(8);
    assert_eq!([told(&endpoints, "one"), told(&endpoints, "two")], [0, 0]);
    for (name, size, model) in [("two", 2, 4), ("one", 3, 3), ("two", 16, 16)] {
        let tuning = endpoints.tune(&change(Some(name), Some(size)), &now).expect("fits");
        assert_eq!(tuning.batch_size, Some(model), "{name}");
        endpoints.apply(&tuning);
    }
    assert_eq!([told(&endpoints, "one"), told(&endpoints, "two")], [3, 16]);
    assert_eq!(told(&endpoints, "single"), 0);
    endpoints.apply(&endpoints.tune(&change(None, Some(5)), &now).expect("fits"));
    assert_eq!(sizes(&endpoints), [Some(5), Some(5), None]);
}

#[test]
fn a_latency_of_one_endpoint_is_its_own_and_one_of_the_model_is_for_all() {
    let endpoints = endpoints(8);
    let second = Duration::from_secs(1);
    let now = ModelSettings { latency_max: Some(second), ..settings(8) };
    let latency = |name: Option<&str>, ms| {
        let change = with(change(name, None), &MAX_LATENCY_MS, Duration::from_millis(ms));
        let tuning = endpoints.tune(&change, &now).expect("fits");
        endpoints.apply(&tuning);
        tuning.latency_max
    };
    let (own, others) = (Objective::Own(second / 2), Objective::Own(second));
    assert_eq!(latency(Some("single"), 500), Some(Some(second / 2)));
    assert_eq!(objectives(&endpoints), [others, others, own]);
    assert_eq!(latency(Some("single"), 0), Some(Some(second)));
    assert_eq!(objectives(&endpoints), [others, others, Objective::Free]);
    assert_eq!(latency(None, 70), None, "the model's own settings say it");
    assert_eq!(objectives(&endpoints), [Objective::Models; 3]);
}

#[test]
fn what_an_endpoint_cannot_change_is_said() {
    let endpoints = endpoints(8);
    let policy = with(change(Some("one"), Some(2)), &POLICY, "window");
    let latency = with(change(Some("three"), None), &MAX_LATENCY_MS, Duration::from_millis(5));
    for (change, words) in [
        (change(Some("single"), Some(2)), "those that do: one, two"),
        (change(Some("one"), None), "goes with max_batch_size="),
        (latency, "there are: one, two, single"),
        (policy, "share one queue"),
    ] {
        let rejected = endpoints.tune(&change, &settings(8)).err().unwrap_or_default();
        assert!(rejected.contains(words), "{rejected}");
    }
    assert!(endpoints.tune(&change(None, None), &settings(8)).is_ok());
}

#[test]
fn the_operators_size_is_every_endpoints_unless_one_is_named() {
    assert_eq!(sizes(&endpoints(64)), [Some(64), Some(64), None]);
    let wish = EndpointOptions { batch_size: Some(6), max_latency_ms: Some(30) };
    let options = BTreeMap::from([("one".to_owned(), wish), ("gone".to_owned(), wish)]);
    let endpoints = Endpoints::new(api(), &settings(64), &options);
    assert_eq!(sizes(&endpoints), [Some(6), Some(64), None]);
    let own = Objective::Own(Duration::from_millis(30));
    assert_eq!(objectives(&endpoints), [own, Objective::Free, Objective::Free]);
    assert!(!endpoints.views()["one"].as_defined);
}

mod objectives {
    use super::*;

    const FAST: Duration = Duration::from_millis(40);

    fn objectives(model: Option<Duration>) -> Objectives {
        let latencies_ms = BTreeMap::from([("fast".to_owned(), 40.0), ("slow".to_owned(), 900.5)]);
        let endpoints = ["fast", "slow", "patient"].map(str::to_owned).to_vec();
        Objectives::new(&Api { endpoints, latencies_ms, ..Api::default() }, model)
    }

    fn all(objectives: &Objectives) -> [Objective; 3] {
        [0, 1, 2].map(|place| objectives.get(Some(place)))
    }

    #[test]
    fn each_endpoint_keeps_what_the_definition_says() {
        let slow = Objective::Own(Duration::from_micros(900_500));
        let objectives = objectives(Some(FAST));
        assert_eq!(all(&objectives), [Objective::Own(FAST), slow, Objective::Free]);
        assert_eq!(objectives.get(None), Objective::Models, "a request that names none of them");
    }

    #[test]
    fn what_an_operator_asks_of_the_model_holds_for_all() {
        for model in [None, Some(FAST * 2)] {
            assert_eq!(all(&objectives(model)), [Objective::Models; 3]);
        }
    }

    #[test]
    fn a_change_of_one_leaves_the_others_with_what_they_had() {
        let objectives = objectives(None);
        let changed = objectives.with(1, Some(FAST), Some(FAST * 3));
        let others = Objective::Own(FAST * 3);
        assert_eq!(changed, [others, Objective::Own(FAST), others]);
        assert_eq!(strictest(&changed), Some(FAST));
        objectives.set(&changed);
        let freed = objectives.with(1, None, Some(FAST));
        assert_eq!(freed, [others, Objective::Free, others]);
        assert_eq!((strictest(&freed), strictest(&[Objective::Free])), (Some(FAST * 3), None));
        objectives.clear();
        assert_eq!(all(&objectives), [Objective::Models; 3]);
    }
}
