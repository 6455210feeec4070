//! Tenants and costs as requests bring them: whose turn it is, and what fits.

use super::*;
use crate::call::{Call, Claim};
use crate::shares::{Cost, Shares};

fn from(tenant: &str, body: &str) -> Call {
    let claim = Claim { tenant: Some(tenant.into()), ..Claim::default() };
    Call { claim, ..call(body) }
}

/// The bodies of each batch after the first, which only keeps the worker busy.
fn later(kit: &Kit) -> Vec<Vec<String>> {
    kit.batches().into_iter().skip(1).map(|batch| batch.bodies).collect()
}

/// How many of each batch are gold's where eight of two tenants wait, gold's behind the others.
async fn gold_among_many(kit: &Kit) -> Vec<usize> {
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
    later(kit).iter().map(golden).collect()
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns_by_their_weights() {
    let tenants = vec![("gold".to_owned(), 3)];
    let shares = Shares { tenants, ..Shares::default() };
    let policy = PolicyName::Adaptive;
    let kit = Kit::serving(
        1,
        ModelSettings { batch_size: 4, policy, shares, ..settings() },
        echo_after(5),
    );
    let kit = kit.await;
    let golden = gold_among_many(&kit).await;
    assert_eq!(golden.iter().sum::<usize>(), 8);
    assert!(golden[0] + golden[1] >= 5, "three turns of four are gold's: {golden:?}");
    assert!(golden[0] + golden[1] <= 7, "and one of four is not: {golden:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_takes_no_more_cost_than_it_may() {
    let shares = Shares { cost: Cost::Tokens, cost_max: Some(10), ..Shares::default() };
    let policy = PolicyName::Opportunistic;
    let kit = Kit::serving(1, ModelSettings { policy, shares, ..settings() }, echo_after(5)).await;
    let costing = |cost: u64| {
        let claim = Claim { cost: Some(cost), ..Claim::default() };
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
    assert!(matches!(never, Err(CallError::Rejected { reason: Rejection::TooLarge, .. })));
}

#[tokio::test(start_paused = true)]
async fn weights_of_tenants_change_on_the_live_model() {
    let policy = PolicyName::Adaptive;
    let kit =
        Kit::serving(1, ModelSettings { batch_size: 4, policy, ..settings() }, echo_after(5)).await;
    let weigh = |tenants: &[(&str, u32)]| {
        let tenants = tenants.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        Reconfigure::of(
            &jitney_settings::model::TENANTS,
            jitney_settings::SettingValue::Weights(tenants),
        )
    };
    kit.model.reconfigure(weigh(&[("gold", 3)])).await.unwrap();
    assert_eq!(kit.model.settings().shares.tenants, [("gold".to_owned(), 3)]);
    assert_eq!(kit.model.batcher_report().await.unwrap().config.tenant_weights, [(1, 3)]);
    assert_eq!(kit.model.settings().policy, policy, "the rest stays");
    assert!(kit.model.reconfigure(weigh(&[("gold", 0)])).await.is_err());
    let golden = gold_among_many(&kit).await;
    assert!(golden[0] + golden[1] >= 5, "three turns of four are gold's: {golden:?}");
    kit.model.reconfigure(weigh(&[])).await.unwrap();
    assert_eq!(kit.model.settings().shares.tenants, []);
}

#[tokio::test(start_paused = true)]
async fn lengths_are_kept_apart_and_what_is_padding_is_told() {
    let shares = Shares { cost: Cost::Length, ..Shares::default() };
    let policy = PolicyName::Opportunistic;
    let kit = Kit::serving(1, ModelSettings { policy, shares, ..settings() }, echo_after(5)).await;
    let long = |length: u64| {
        let claim = Claim { cost: Some(length), ..Claim::default() };
        Call { claim, ..call(&length.to_string()) }
    };
    let first = kit.start(long(1));
    settle().await;
    let calls = [100, 40, 80].map(|length| kit.start(long(length)));
    let mut timings = Vec::new();
    for call in calls {
        timings.push(call.await.unwrap().unwrap().timing);
    }
    drop(first);
    assert_eq!(later(&kit), [vec!["100", "80"], vec!["40"]]);
    let told = |at: usize| timings[at].padding.map(|it| (it.real, it.padded));
    assert_eq!([told(0), told(1), told(2)], [Some((180, 200)), Some((40, 40)), Some((180, 200))]);
    let account = kit.model.statistics().total().padding;
    assert_eq!((account.real, account.padded), (1 + 180 + 40, 1 + 200 + 40));
}
