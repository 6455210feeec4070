//! After a worker's exit: what one deadly request costs among many, and what those pay that come later.

use std::time::Duration;

use tokio::time::Instant;

use super::{millis, settle};
use crate::settings::{ModelSettings, PolicyName};
use crate::testkit::{Act, Kit, ScriptedBatch, call, settings};

/// Everything takes as long as this, and the deadly one ends its worker half way.
const RUN: Duration = Duration::from_secs(2);

fn deadly(batch: &ScriptedBatch) -> Act {
    match batch.bodies.iter().any(|body| body == "deadly") {
        true => Act::After(RUN / 2, Box::new(Act::Die)),
        false => Act::After(RUN, Box::new(Act::Echo)),
    }
}

/// One worker that runs so many at a time, in batches or side by side.
async fn kit(in_batches: bool, most: u8, policy: PolicyName) -> Kit {
    let (batch_size, slots) = if in_batches { (most.into(), 1) } else { (1, most) };
    let startup_timeout = Duration::from_secs(600);
    let settings = ModelSettings { batch_size, slots, policy, startup_timeout, ..settings() };
    Kit::serving(1, settings, deadly).await
}

#[tokio::test(start_paused = true)]
async fn a_fresh_call_behind_thirty_suspects_waits_for_one_group_of_them_at_most() {
    for (in_batches, late) in (0..24).map(|it| (it % 2 == 0, millis(it * 500))) {
        let kit = kit(in_batches, 31, PolicyName::Window).await;
        let suspects: Vec<_> = (0..30).map(|it| kit.start(call(&format!("{it}")))).collect();
        let deadly = kit.start(call("deadly"));
        settle().await;
        tokio::time::sleep(RUN / 2 + late).await;
        let start = Instant::now();
        assert!(kit.call("fresh").await.is_ok());
        let (took, most) = (start.elapsed(), RUN * 5 / 2);
        assert!(took < most, "{took:?} after {late:?}, in batches: {in_batches}");
        for suspect in suspects {
            assert!(suspect.await.unwrap().is_ok());
        }
        assert!(deadly.await.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn one_deadly_request_costs_its_neighbours_nothing_and_few_workers() {
    let mut dice = fastrand::Rng::with_seed(27);
    for round in 0..60 {
        let policy = dice.choice([PolicyName::Window, PolicyName::Adaptive]);
        let policy = policy.unwrap_or(PolicyName::Window);
        let (in_batches, len) = (dice.bool(), dice.usize(2..65));
        let kit = kit(in_batches, 64, policy).await;
        let at = dice.usize(0..len);
        let body = |it: usize| if it == at { "deadly".to_owned() } else { it.to_string() };
        let bodies: Vec<String> = (0..len).map(body).collect();
        let answers = kit.call_all(&bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let lost = (0..len).filter(|it| answers[*it].is_err());
        assert_eq!(lost.collect::<Vec<_>>(), [at], "round {round}, {policy:?} {in_batches}");
        let exits: u64 = kit.model.status().incidents.exits.iter().map(|(_, count)| count).sum();
        let most = u64::from(1 + len.next_power_of_two().ilog2());
        assert!(exits <= most.max(2), "round {round}: {exits} exits for one of {len}");
    }
}
