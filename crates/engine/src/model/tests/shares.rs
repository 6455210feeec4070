//! Tenants and costs as requests bring them: whose turn it is, and what fits.

use super::*;
use crate::call::{Call, Claim};
use crate::shares::{Cost, Shares};

fn from(tenant: &str, body: &str) -> Call {
    let claim = Claim { tenant: Some(tenant.into()), cost: None };
    Call { claim, ..call(body) }
}

/// The bodies of each batch after the first, which only keeps the worker busy.
fn later(kit: &Kit) -> Vec<Vec<String>> {
    kit.rides().into_iter().skip(1).map(|ride| ride.bodies).collect()
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns_by_their_weights() {
    let tenants = vec![("gold".to_owned(), 3)];
    let shares = Shares { tenants, ..Shares::default() };
    let policy = PolicyName::Adaptive;
    let kit =
        Kit::serving(1, Settings { batch_size: 4, policy, shares, ..settings() }, echo_after(5));
    let kit = kit.await;
    let first = kit.start(call("first"));
    settle().await;
    let mut calls: Vec<_> = (0..8).map(|_| kit.start(from("many", "many"))).collect();
    settle().await;
    calls.extend((0..8).map(|_| kit.start(from("gold", "gold"))));
    settle().await;
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    drop(first);
    let golden = |batch: &Vec<String>| batch.iter().filter(|body| *body == "gold").count();
    let golden: Vec<usize> = later(&kit).iter().map(golden).collect();
    assert_eq!(golden.iter().sum::<usize>(), 8);
    assert!(golden[0] + golden[1] >= 5, "three turns of four are gold's: {golden:?}");
    assert!(golden[0] + golden[1] <= 7, "and one of four is not: {golden:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_takes_no_more_cost_than_it_may() {
    let shares = Shares { cost: Cost::Tokens, cost_max: Some(10), ..Shares::default() };
    let policy = PolicyName::Opportunistic;
    let kit = Kit::serving(1, Settings { policy, shares, ..settings() }, echo_after(5)).await;
    let costing = |cost: u64| {
        let claim = Claim { tenant: None, cost: Some(cost) };
        Call { claim, ..call(&cost.to_string()) }
    };
    let first = kit.start(call("first"));
    settle().await;
    let calls: Vec<_> = [6, 4, 5, 5, 1].map(|cost| kit.start(costing(cost))).into();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    drop(first);
    assert_eq!(later(&kit), [vec!["6", "4"], vec!["5", "5"], vec!["1"]]);
    let never = kit.model.call(costing(11)).await;
    assert!(matches!(never, Err(CallError::Refused { reason: Refusal::TooLarge, .. })));
}
