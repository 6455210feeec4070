//! What must hold in every world, checked after every step of seeded random stories.
//!
//! A story is drawn from a seed: requests of all sorts come and go, workers crash, knobs are turned,
//! timers fire late or for nothing, and in the end the batcher drains. The oracle (`world::oracle`)
//! keeps its own books, shares no code with the batcher, and says what was wrong at which step.

mod world;

use jitney_batcher::{Actions, Batcher};
use world::{Story, World};

const SEEDS: u64 = 3000;
const STEPS: usize = 500;

/// Plays one story to its drained end and returns it for the second reading.
fn play(seed: u64) -> Story {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.live();
    }
    world.drain();
    world.story
}

/// Every action of the story, told by a fresh batcher.
fn retell(story: &Story) -> String {
    let mut batcher = Batcher::new(story.config.clone());
    let mut out = Actions::new();
    for (now, event) in &story.events {
        batcher.step(*now, event.clone(), &mut out);
    }
    format!("{out:?}")
}

#[test]
fn every_world_keeps_the_rules_and_drains() {
    let mut dispatches = 0;
    for seed in 0..SEEDS {
        dispatches += play(seed).dispatches;
    }
    // The worlds must not have become so hostile that nothing happens in them.
    assert!(dispatches > SEEDS * STEPS as u64 / 20, "only {dispatches} dispatches");
}

#[test]
fn the_same_events_twice_give_the_same_actions() {
    for seed in 0..SEEDS / 10 {
        let story = play(seed);
        assert!(retell(&story) == retell(&story), "seed {seed}: the second reading differs");
        assert!(play(seed).events == story.events, "seed {seed}: the world itself differs");
    }
}
