//! The tokens' whole life on a clock that the test moves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::UNIX_EPOCH;

use super::*;

/// Remembers what was saved; fails on request.
#[derive(Clone, Default)]
struct Memory {
    text: Arc<Mutex<String>>,
    full: Arc<AtomicBool>,
}

impl KeyStore for Memory {
    fn save(&self, text: &str) -> io::Result<()> {
        if self.full.load(Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        text.clone_into(&mut self.text.lock().unwrap());
        Ok(())
    }
}

struct Bench {
    memory: Memory,
    seconds: Arc<AtomicU64>,
    wall: Arc<AtomicU64>,
    tokens: Tokens,
}

impl Bench {
    /// AuthKeys that live a minute, issued at second 1000.
    fn new() -> Self {
        let (memory, seconds) = (Memory::default(), Arc::new(AtomicU64::new(1000)));
        let (time, wall) = (Arc::clone(&seconds), Arc::new(AtomicU64::new(1000)));
        let day = Arc::clone(&wall);
        let clock = TokenClock {
            wall: Box::new(move || UNIX_EPOCH + Duration::from_secs(day.load(Relaxed))),
            steady: Box::new(move || Duration::from_secs(time.load(Relaxed))),
        };
        let minute = Duration::from_secs(60);
        let tokens =
            Tokens::new(KeyStrength::TorchServe, minute, Box::new(memory.clone()), clock).unwrap();
        tokens.issue().unwrap();
        Self { memory, seconds, wall, tokens }
    }

    fn saved(&self) -> serde_json::Value {
        serde_json::from_str(&self.memory.text.lock().unwrap()).unwrap()
    }

    fn key(&self, name: &str) -> String {
        self.saved()[name]["key"].as_str().unwrap().to_owned()
    }

    fn admits(&self, gate: Gate, key: &str) -> bool {
        self.tokens.admit(gate, Some(format!("Bearer {key}").as_bytes())).is_ok()
    }
}

#[test]
fn each_key_opens_its_own_gate_and_no_other() {
    let bench = Bench::new();
    for (name, gates) in [
        ("inference", [true, false, true, false]),
        ("management", [false, true, true, false]),
        ("API", [false, false, false, true]),
    ] {
        let key = bench.key(name);
        let found = [Gate::Inference, Gate::Management, Gate::Either, Gate::Renewal]
            .map(|gate| bench.admits(gate, &key));
        assert_eq!(found, gates, "{name}");
    }
    assert!(bench.tokens.admit(Gate::Open, None).is_ok());
}

#[test]
fn the_rejection_has_torchserves_message() {
    let bench = Bench::new();
    let rejection = |gate| bench.tokens.admit(gate, None).unwrap_err();
    let rejected = rejection(Gate::Inference);
    assert_eq!((rejected.status, rejected.code.row().kind), (400, "InvalidKeyException"));
    let why = "Token either incorrect, expired, or not provided correctly";
    assert_eq!(rejected.message, format!("Token Authorization failed. {why}"));
    assert_eq!(rejection(Gate::Renewal).message, format!("Token Authentication failed. {why}"));
}

#[test]
fn keys_end_at_the_written_time_and_the_api_key_never() {
    let bench = Bench::new();
    assert_eq!(bench.saved()["inference"]["expiration time"], "1970-01-01T00:17:40.000000Z");
    assert!(bench.saved()["API"].get("expiration time").is_none());
    let (key, api) = (bench.key("inference"), bench.key("API"));
    bench.seconds.store(1059, Relaxed);
    assert!(bench.admits(Gate::Inference, &key));
    bench.seconds.store(1060, Relaxed);
    assert!(!bench.admits(Gate::Inference, &key));
    assert!(bench.admits(Gate::Renewal, &api));
}

#[test]
fn setting_the_time_of_day_back_revives_no_key() {
    let bench = Bench::new();
    let key = bench.key("management");
    bench.seconds.store(1061, Relaxed);
    for wall in [0, 1000, 1061] {
        bench.wall.store(wall, Relaxed);
        assert!(!bench.admits(Gate::Management, &key), "at {wall}");
    }
    bench.wall.store(50, Relaxed);
    bench.tokens.renew(Role::Management).unwrap();
    assert!(bench.admits(Gate::Management, &bench.key("management")));
    assert_eq!(bench.saved()["management"]["expiration time"], "1970-01-01T00:01:50.000000Z");
}

#[test]
fn a_renewed_key_replaces_the_old_one_and_leaves_its_neighbours() {
    let bench = Bench::new();
    let (old, neighbour) = (bench.key("inference"), bench.key("management"));
    bench.seconds.store(5000, Relaxed);
    bench.tokens.renew(Role::Inference).unwrap();
    assert!(!bench.admits(Gate::Inference, &old));
    assert!(bench.admits(Gate::Inference, &bench.key("inference")));
    assert_eq!(bench.key("management"), neighbour);
}

#[test]
fn a_key_that_cannot_be_written_down_never_comes_into_force() {
    let bench = Bench::new();
    let old = bench.key("management");
    bench.memory.full.store(true, Relaxed);
    assert!(bench.tokens.renew(Role::Management).is_err());
    assert!(bench.admits(Gate::Management, &old));
}

#[test]
fn no_key_can_be_seen_by_looking_at_the_tokens() {
    let bench = Bench::new();
    let shown = format!("{:?}", bench.tokens);
    assert!(!shown.contains(&bench.key("API")), "{shown}");
}

#[test]
fn keys_that_are_given_never_end_and_are_replaced_only_by_others() {
    let clock = TokenClock {
        wall: Box::new(|| UNIX_EPOCH),
        steady: Box::new(|| Duration::from_secs(1 << 40)),
    };
    let text = |one: &str| {
        let key =
            |role: &str| serde_json::json!({ "key": format!("{one}-{role}-{}", "x".repeat(16)) });
        serde_json::json!({ "management": key("m"), "inference": key("i"), "API": key("a") })
            .to_string()
    };
    let tokens = Tokens::given(&text("one"), clock).unwrap();
    let admits = |key: &str| {
        let value = format!("Bearer {key}-{}", "x".repeat(16));
        tokens.admit(Gate::Inference, Some(value.as_bytes())).is_ok()
    };
    assert!(admits("one-i") && !admits("one-m") && !admits("two-i"));
    assert!(tokens.issue().is_ok() && tokens.renew(Role::Inference).is_err());
    assert!(tokens.give("{}").is_err() && tokens.give(&text("two").replace('x', "")).is_err());
    assert!(admits("one-i"), "what cannot be read changes nothing");
    tokens.give(&text("two")).unwrap();
    assert!(admits("two-i") && !admits("one-i"));
}
