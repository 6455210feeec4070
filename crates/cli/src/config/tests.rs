//! What `jitney config` prints is what models are registered with, for random sources.

use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use jitney_engine::settings::ModelSettings;
use serde_json::{Map, json};

use super::*;
use crate::flags::Cli;
use crate::flags::Command;

/// A few random numbers; equal seeds give equal ones.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Every second time, a value from 1 on.
    fn perhaps(&mut self) -> Option<u64> {
        (self.roll(2) == 0).then(|| 1 + self.roll(40))
    }
}

/// Settings that every source may give, with their flags and their keys in archives and records.
const NUMBERS: [(&str, &str, &str); 6] = [
    ("workers", "workers", "minWorkers"),
    ("batch-size", "batching.max_batch_size", "batchSize"),
    ("max-batch-delay-ms", "batching.max_batch_delay", "maxBatchDelay"),
    ("queue", "queue", "jobQueueSize"),
    ("response-timeout", "response_timeout", "responseTimeout"),
    ("startup-timeout", "startup_timeout", "startupTimeout"),
];

const POLICIES: [&str; 3] = ["adaptive", "window", "opportunistic"];

/// Random keys of TorchServe, and some of the section `batching`.
fn document(dice: &mut Dice, archive: bool) -> Value {
    let mut document = Map::new();
    for (_, _, key) in NUMBERS {
        document.extend(dice.perhaps().map(|number| (key.to_owned(), json!(number))));
    }
    document.extend(dice.perhaps().map(|most| ("maxWorkers".to_owned(), json!(most))));
    if dice.roll(2) == 0 {
        let mut section = Map::new();
        section.extend(dice.perhaps().map(|ms| ("max_latency_ms".to_owned(), json!(ms))));
        section.extend(
            dice.perhaps().map(|at| ("policy".to_owned(), json!(POLICIES[at as usize % 3]))),
        );
        if archive {
            section.extend(dice.perhaps().map(|size| ("sizes".to_owned(), json!([1, size]))));
            section.extend(dice.perhaps().map(|cost| ("max_cost".to_owned(), json!(cost))));
        }
        document.insert("batching".to_owned(), section.into());
    }
    document.into()
}

/// The lines of a `jitney.yaml` or of one of its models.
fn yaml(dice: &mut Dice, indent: &str) -> String {
    let (mut text, mut batching) = (String::new(), Vec::new());
    for (_, key, _) in NUMBERS {
        let Some(number) = dice.perhaps() else { continue };
        match key.split_once('.') {
            Some((_, key)) => batching.push(format!("{key}: {number}")),
            None => text += &format!("{indent}{key}: {number}\n"),
        }
    }
    batching.extend(dice.perhaps().map(|size| format!("sizes: [1, {size}]")));
    text + &format!("{indent}batching: {{{}}}\n", batching.join(", "))
}

fn model_directory(dice: &mut Dice, dir: &Path) {
    std::fs::create_dir_all(dir.join("m/MAR-INF")).unwrap();
    let manifest = json!({"model": {"modelName": "m", "handler": "h.py", "configFile": "c.yaml"}});
    std::fs::write(dir.join("m/MAR-INF/MANIFEST.json"), manifest.to_string()).unwrap();
    std::fs::write(dir.join("m/c.yaml"), document(dice, true).to_string()).unwrap();
    std::fs::write(dir.join("m/h.py"), "").unwrap();
}

fn command(words: &[String]) -> Command {
    Cli::try_parse_from(words).unwrap().command
}

/// Every row of the model says what is in force.
fn compare(rows: &[ConfigRow], settings: &ModelSettings, seed: u64) {
    let ms = |time: Duration| (time.as_nanos() as f64 / 1e6).to_string();
    let list = |sizes: &[u32]| sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let row = |setting: &Setting| {
        let row =
            rows.iter().find(|row| row.model.as_deref() == Some("m") && row.key == setting.name);
        row.and_then(|row| row.value.clone())
    };
    for (setting, expected) in [
        (&model::WORKERS, Some(settings.workers_min.to_string())),
        (&model::MAX_WORKERS, Some(settings.workers_max.to_string())),
        (&model::MAX_BATCH_SIZE, Some(settings.batch_size.to_string())),
        (&model::MAX_BATCH_DELAY, Some(ms(settings.batch_delay))),
        (&model::MAX_LATENCY_MS, settings.latency_max.map(ms)),
        (&model::POLICY, Some(settings.policy.as_str().to_owned())),
        (&model::QUEUE, Some(settings.queue_max.to_string())),
        (&model::RESPONSE_TIMEOUT, Some(settings.response_timeout.as_secs().to_string())),
        (&model::STARTUP_TIMEOUT, Some(settings.startup_timeout.as_secs().to_string())),
        (&model::SIZES, Some(list(&settings.sizes)).filter(|sizes| !sizes.is_empty())),
        (&model::MAX_COST, settings.shares.cost_max.map(|cost| cost.to_string())),
    ] {
        assert_eq!(row(setting), expected, "{} with seed {seed}", setting.name);
    }
}

#[test]
fn what_is_printed_for_serve_is_what_a_model_is_registered_with() {
    for seed in 0..25 {
        let dice = &mut Dice(seed);
        let dir = tempfile::tempdir().unwrap();
        model_directory(dice, dir.path());
        let text = format!("{}models:\n  - path: m\n{}", yaml(dice, ""), yaml(dice, "    "));
        std::fs::write(dir.path().join("jitney.yaml"), text).unwrap();
        let mut words: Vec<String> = ["jitney", "serve", "--config"].map(str::to_owned).into();
        words.push(dir.path().join("jitney.yaml").display().to_string());
        let mut env = Env::default();
        for (flag, ..) in NUMBERS {
            words.extend(dice.perhaps().map(|number| format!("--{flag}={number}")));
            let variable = format!("JITNEY_{}", flag.to_uppercase().replace('-', "_"));
            if let Some(number) = dice.perhaps() {
                env = env.with(&variable, &number.to_string());
            }
        }
        let Command::Serve(flags) = command(&words) else { panic!("{words:?}") };
        let rows = of_serve(*flags, &env).unwrap();
        let Command::Serve(flags) = command(&words) else { panic!("{words:?}") };
        let plan = serve::plan(*flags, &env).unwrap();
        let [(_, settings)] = &run::registered(&plan, &env)[..] else { panic!("one model") };
        compare(&rows, settings, seed);
    }
}

#[test]
fn what_is_printed_for_torchserve_is_what_a_model_is_registered_with() {
    for seed in 100..125 {
        let dice = &mut Dice(seed);
        let dir = tempfile::tempdir().unwrap();
        model_directory(dice, dir.path());
        let record = json!({"m": {"1.0": document(dice, false)}});
        let mut text =
            format!("model_store={}\nload_models=m\nmodels={record}\n", dir.path().display());
        for key in ["default_workers_per_model", "job_queue_size", "default_response_timeout"] {
            text += &dice.perhaps().map(|number| format!("{key}={number}\n")).unwrap_or_default();
        }
        let file = dir.path().join("config.properties");
        std::fs::write(&file, text).unwrap();
        let flags = TorchserveFlags {
            ts_config: Some(file),
            no_config_snapshots: true,
            ..Default::default()
        };
        let env = Env::default();
        let rows = of_torchserve(&flags, &env).unwrap();
        let config = torchserve::configure(&flags, &env).unwrap();
        let plan = torchserve::assemble(config, &flags, &env).unwrap();
        let [(_, settings)] = &run::registered(&plan, &env)[..] else { panic!("one model") };
        compare(&rows, settings, seed);
    }
}
