//! Which tenant goes first.

use super::super::sorted::waiting;
use super::*;
use crate::policy::Order;

const MS: Nanos = 1_000_000;

fn of(tenant: u32) -> WaitingRequest {
    WaitingRequest { tenant, ..waiting(0, 25_000_000) }
}

/// A queue of requests of these tenants, in this order.
fn queue(shares: &mut TenantShares, config: &Config, tenants: &[u32]) -> SortedQueue {
    let mut queue = SortedQueue::new(Order::Deadline);
    for (seq, &tenant) in (1..).zip(tenants) {
        shares.arrived(&of(tenant), seq * MS, config);
        queue.insert(WaitingRequest { tenant, ..waiting(seq, seq + 100) });
    }
    queue
}

fn picked(tenants: &[u32], size: u64, weights: Vec<(u32, u32)>) -> Vec<u32> {
    let config = Config { max_items: 64, tenant_weights: weights, ..Config::default() };
    let (mut shares, mut picked) = (TenantShares::default(), Vec::new());
    let queue = queue(&mut shares, &config, tenants);
    shares.pick(&queue, 0, size, &config, &mut picked);
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
fn a_tenant_that_was_inactive_gets_no_credit_for_that_time() {
    let config = Config::default();
    let mut shares = TenantShares::default();
    shares.arrived(&of(0), 0, &config);
    shares.arrived(&of(1), 0, &config);
    shares.left(1);
    (0..100).for_each(|_| shares.served(0, 1));
    shares.arrived(&of(1), 0, &config);
    assert_eq!(shares.tenants[slot(1)].clock, shares.tenants[slot(0)].clock);
}

#[test]
fn a_light_tenant_is_protected_and_a_lone_one_is_not() {
    let (config, mut shares) = (Config::default(), TenantShares::default());
    (0..50).for_each(|n| shares.arrived(&of(0), n * MS, &config));
    assert!(!shares.protects(50 * MS, 25e6));
    shares.arrived(&of(1), 50 * MS, &config);
    (0..50).for_each(|n| shares.arrived(&of(0), (50 + n) * MS, &config));
    assert!(shares.protects(60 * MS, 25e6));
    assert!(!shares.protects(9_000 * MS, 25e6), "it has been inactive for long");
}

#[test]
fn in_a_full_queue_the_tenant_furthest_above_its_share_gives_way() {
    let (config, mut shares) = (Config::default(), TenantShares::default());
    queue(&mut shares, &config, &[0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(shares.over_share(0, 8) && !shares.over_share(1, 8));
    assert!(shares.heaviest(0, 8) && !shares.heaviest(1, 8));
}
