//! Which models are in memory: requests wait less than under the rules of the textbooks.
//!
//! `--example memory` plays more of them.

use jitney_lab::memory::{
    ClairvoyantRule, GreedyDualRule, LruRule, ManyModels, ManySettings, WorthRule,
};

#[test]
fn requests_wait_less_for_loads_than_under_lru_and_greedy_dual() {
    let settings = ManySettings {
        models: 1000,
        memory: 20,
        zipf: 1.1,
        rate: 0.2,
        seconds: 86_400.0,
        loads: 4,
        changes: 0.0,
    };
    for changes in [0.0, 21_600.0] {
        let many = ManyModels::new(ManySettings { changes, ..settings }, 7);
        let ours = many.play(&mut WorthRule::default());
        let lru = many.play(&mut LruRule::default());
        let greedy = many.play(&mut GreedyDualRule::default());
        let knowing = many.play(&mut ClairvoyantRule::new(&many));
        assert!(ours <= 0.8 * lru && ours <= greedy, "{ours} of LRU {lru}, GreedyDual {greedy}");
        assert!(many.bound() <= knowing && knowing <= ours, "{} {knowing} {ours}", many.bound());
    }
}
