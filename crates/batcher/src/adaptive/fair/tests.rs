//! Whose turn it is.

use super::super::line::Entry;
use super::*;

const MS: Nanos = 1_000_000;

/// A line of requests of these tenants, in this order.
fn line(fair: &mut Fair, config: &Config, tenants: &[u32]) -> Line {
    let mut line = Line::default();
    for (seq, &tenant) in (1..).zip(tenants) {
        fair.arrived(tenant, 1, seq * MS, 25e6, config);
        let at = seq as u32;
        let (deadline, arrived) = (seq + 100, 0);
        line.insert(Entry {
            deadline,
            seq,
            arrived,
            cost: 1,
            size: 1,
            items: 1,
            at,
            tenant,
            counts: 1,
        });
    }
    line
}

fn picked(tenants: &[u32], size: u64, weights: Vec<(u32, u32)>) -> Vec<u32> {
    let config = Config { max_items: 64, tenant_weights: weights, ..Config::default() };
    let (mut fair, mut picked) = (Fair::default(), Vec::new());
    let line = line(&mut fair, &config, tenants);
    fair.pick(&line, 0, size, &config, &mut picked);
    picked
}

#[test]
fn tenants_take_turns_however_many_one_of_them_sends() {
    assert_eq!(picked(&[0, 0, 0, 0, 0, 1, 1, 2], 5, vec![]), [0, 1, 5, 6, 7]);
}

#[test]
fn a_tenant_of_twice_the_weight_gets_twice_as_much() {
    let picked = picked(&[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1], 6, vec![(1, 2)]);
    assert_eq!(picked.iter().filter(|&&position| position >= 6).count(), 4);
}

#[test]
fn one_that_was_away_does_not_get_what_it_did_not_ask_for() {
    let config = Config::default();
    let mut fair = Fair::default();
    fair.arrived(0, 1, 0, 25e6, &config);
    fair.arrived(1, 1, 0, 25e6, &config);
    fair.left(1);
    (0..100).for_each(|_| fair.served(0, 1));
    fair.arrived(1, 1, 0, 25e6, &config);
    assert_eq!(fair.tenants[slot(1)].clock, fair.tenants[slot(0)].clock);
}

#[test]
fn a_light_tenant_is_protected_and_a_lone_one_is_not() {
    let (config, mut fair) = (Config::default(), Fair::default());
    (0..50).for_each(|n| fair.arrived(0, 1, n * MS, 25e6, &config));
    assert!(!fair.protects(50 * MS, 25e6));
    fair.arrived(1, 1, 50 * MS, 25e6, &config);
    (0..50).for_each(|n| fair.arrived(0, 1, (50 + n) * MS, 25e6, &config));
    assert!(fair.protects(60 * MS, 25e6));
    assert!(!fair.protects(9_000 * MS, 25e6), "it is long gone");
}

#[test]
fn of_a_full_queue_the_heaviest_tenant_gives_way() {
    let (config, mut fair) = (Config::default(), Fair::default());
    line(&mut fair, &config, &[0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(fair.over_share(0, 8) && !fair.over_share(1, 8));
    assert!(fair.heaviest(0, 8) && !fair.heaviest(1, 8));
}
