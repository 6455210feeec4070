//! Many requests, workers with every fault at rates drawn per seed, then a calm phase in which
//! everything must finish. The same seed twice gives the same story.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{millis, settle};
use crate::settings::{ModelSettings, PolicyName};
use crate::testkit::{Act, Kind, Kit, ScriptedBatch, call, settings, text};

/// What one seed makes of the world.
struct Weather {
    dice: fastrand::Rng,
    policy: PolicyName,
    kind: Kind,
    batch_size: u32,
    workers: u32,
    exit_percent: u32,
    raise_percent: u32,
    silence_percent: u32,
    leaving_percent: u32,
}

impl Weather {
    fn of(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let policy = dice.choice([
            PolicyName::Window,
            PolicyName::Opportunistic,
            PolicyName::Adaptive,
            PolicyName::Adaptive,
        ]);
        let kind = dice.choice([Kind::Plain, Kind::Queueing, Kind::Overlapping(2)]);
        Self {
            policy: policy.unwrap_or(PolicyName::Window),
            kind: kind.unwrap_or(Kind::Plain),
            batch_size: dice.u32(1..9),
            workers: dice.u32(1..5),
            exit_percent: dice.u32(0..20),
            raise_percent: dice.u32(0..20),
            silence_percent: dice.u32(0..3),
            leaving_percent: dice.u32(0..20),
            dice,
        }
    }
}

/// The fate of a batch depends on the seed, its members and how often they were tried, so that it
/// is the same in every replay.
fn fate(batch: &ScriptedBatch, weather: &Weather, calm: &AtomicBool) -> Act {
    let pause = |act| Act::After(millis(3), Box::new(act));
    if calm.load(Ordering::Relaxed) {
        return pause(Act::Echo);
    }
    let words = batch.bodies.concat().bytes().fold(u64::from(batch.life), |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let roll = fastrand::Rng::with_seed(words).u32(0..100);
    let (exit, raise) = (weather.exit_percent, weather.raise_percent);
    match roll {
        roll if roll < exit => pause(Act::Die),
        roll if roll < exit + raise => pause(Act::Raise),
        roll if roll < exit + raise + weather.silence_percent => Act::Silence,
        _ => pause(Act::Echo),
    }
}

/// Plays a seed; returns the story, one line per request.
async fn play(seed: u64) -> String {
    let mut weather = Weather::of(seed);
    let settings = ModelSettings {
        policy: weather.policy,
        batch_size: weather.batch_size,
        queue_max: 1_000,
        response_timeout: millis(200),
        ..settings()
    };
    let calm = Arc::new(AtomicBool::new(false));
    let (seen, at_sea) = (Arc::clone(&calm), Weather::of(seed));
    let script = move |batch: &ScriptedBatch| fate(batch, &at_sea, &seen);
    let kit = Kit::of(weather.kind, weather.workers, settings, script).await;
    let mut calls = Vec::new();
    for number in 0..200 {
        tokio::time::sleep(millis(weather.dice.u64(0..4))).await;
        let call = kit.start(call(&format!("request {number}")));
        let leaves = weather.dice.u32(0..100) < weather.leaving_percent;
        if leaves {
            settle().await;
            call.abort();
        }
        calls.push(call);
    }
    calm.store(true, Ordering::Relaxed);
    let mut story = String::new();
    for (number, call) in calls.into_iter().enumerate() {
        let end = match call.await {
            Ok(Ok(answer)) => {
                assert_eq!(
                    text(&answer),
                    format!("request {number}"),
                    "seed {seed}: another's row"
                );
                format!("answered after {} tries", answer.timing.attempt)
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "left".to_owned(),
        };
        writeln!(story, "{number}: {end}").ok();
    }
    assert_settled(&kit, seed).await;
    story
}

async fn assert_settled(kit: &Kit, seed: u64) {
    kit.model.close(millis(60_000)).await;
    let counters = kit.model.status().counters;
    let ended = counters.answered + counters.rejected + counters.failed + counters.abandoned;
    assert_eq!(ended, counters.requests, "seed {seed}: every request ends exactly once");
    assert_eq!(kit.admission.requests(), 0, "seed {seed}: every permit is returned");
    assert_eq!(kit.model.status().waiting, 0, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn in_any_weather_every_request_ends_exactly_once_with_its_own_answer() {
    for seed in 0..60 {
        play(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_tells_the_same_story() {
    for seed in [1, 7, 42] {
        assert_eq!(play(seed).await, play(seed).await, "seed {seed}");
    }
}
