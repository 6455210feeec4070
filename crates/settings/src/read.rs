//! Sources that are read leniently, from JSON values and texts that were not checked: the archive's
//! `model-config.yaml`, `models={...}` and snapshots, parameters of a registration.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, SETTINGS, WORKERS};
use crate::{LooseKeys, Setting, SettingKind, SettingSource, SettingValue, Values, did_you_mean};

/// Most items in a batch where `batching: {enabled: true}` gives no size: BentoML's default.
const BATCH_SIZE_ENABLED: u64 = 100;

/// What `batching: {enabled: ...}` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// No batching, whatever the size.
    Off,
    /// Batching, even without a size.
    On,
}

impl Batching {
    /// The key in the section `batching`.
    pub const KEY: &str = "enabled";

    /// What the flag means.
    pub fn of(enabled: bool) -> Self {
        if enabled { Self::On } else { Self::Off }
    }

    /// Sets the size that follows from it.
    pub fn settle(self, values: &mut Values, source: SettingSource) {
        match self {
            Self::Off => values.set(&MAX_BATCH_SIZE, SettingValue::Number(1), source),
            Self::On if !values.has(&MAX_BATCH_SIZE) => {
                values.set(&MAX_BATCH_SIZE, SettingValue::Number(BATCH_SIZE_ENABLED), source);
            }
            Self::On => {}
        }
    }
}

/// A mapping inside a document, if there is one.
fn section<'a>(document: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    document.get(key).and_then(Value::as_object)
}

/// The value of `key` or of `section.key`.
fn at<'a>(document: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let value = match path.split_once('.') {
        Some((part, key)) => section(document, part)?.get(key),
        None => document.get(path),
    };
    value.filter(|value| !value.is_null())
}

/// Reads the settings of a `model-config.yaml`. Values of a wrong type are ignored with a warning;
/// keys outside the section `batching` belong to the handler.
pub fn from_archive(
    document: &Map<String, Value>,
    source: &SettingSource,
) -> (Values, Vec<String>) {
    let (mut values, mut warnings) = (Values::default(), Vec::new());
    for setting in SETTINGS {
        let own = setting.section.map(|_| setting.path());
        for path in own.as_deref().into_iter().chain(setting.archive.names.iter().copied()) {
            let Some(value) = at(document, path).filter(|_| !values.has(setting)) else { continue };
            match loose(setting, setting.archive, value) {
                Loose::Value(value) => values.set(setting, value, source.clone()),
                Loose::Unset => {}
                Loose::Wrong => warnings.push(format!(
                    "model config: {path} must be {}, not {value}; it is ignored",
                    wanted(setting)
                )),
            }
        }
    }
    match at(document, "batching") {
        Some(Value::Object(section)) => {
            warnings.extend(section.keys().filter_map(|key| unknown_batching_key(key)));
            if let Some(enabled) = section.get(Batching::KEY).and_then(Value::as_bool) {
                Batching::of(enabled).settle(&mut values, source.clone());
            }
        }
        Some(_) => {
            warnings.push("model config: batching must be a mapping; it is ignored".to_owned())
        }
        None => {}
    }
    (values, warnings)
}

fn wanted(setting: &Setting) -> String {
    let is_time = matches!(setting.kind, SettingKind::Time(_));
    let above = if is_time && setting.archive.min > 0 { " above zero" } else { "" };
    setting.kind.expected() + above
}

fn unknown_batching_key(key: &str) -> Option<String> {
    let known =
        || SETTINGS.iter().filter(|it| it.section == Some("batching")).map(|setting| setting.name);
    if key == Batching::KEY || known().any(|name| name == key) {
        return None;
    }
    let hint = if key == "batch_dim" {
        "a definition sets it in its decorator".to_owned()
    } else {
        did_you_mean(key, known())
            .unwrap_or_else(|| format!("known: {}", known().collect::<Vec<_>>().join(", ")))
    };
    Some(format!("model config: batching.{key} is not a setting and is ignored; {hint}"))
}

enum Loose {
    Value(SettingValue),
    Unset,
    Wrong,
}

/// TorchServe's rules for numbers: of 32 bits; one that is too small is raised or counts as wrong.
fn loose(setting: &Setting, keys: LooseKeys, value: &Value) -> Loose {
    if let SettingKind::Whole { min, max } = setting.kind {
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        let least = min.max(keys.min);
        return match number.map(|number| u64::try_from(number).ok()) {
            Some(number) if keys.clamp => {
                Loose::Value(number.unwrap_or(0).clamp(least, max).into())
            }
            Some(Some(number)) if number >= least => Loose::Value(number.into()),
            Some(_) | None => Loose::Wrong,
        };
    }
    let is_time = matches!(setting.kind, SettingKind::Time(_));
    if is_time && keys.min > 0 && value.as_f64().is_some_and(|time| time <= 0.0) {
        // Zero and less is TorchServe's mark for a delay that is not set.
        let is_delay = setting.record == MAX_BATCH_DELAY.record;
        return if is_delay { Loose::Unset } else { Loose::Wrong };
    }
    setting.kind.from_json(value).map_or(Loose::Wrong, Loose::Value)
}

/// Reads one version of `models={...}`, or of a snapshot, where zero counts (`zero`). What is
/// missing, of another type or too small counts as not set.
pub fn from_record(record: &Map<String, Value>, source: &SettingSource, zero: bool) -> Values {
    let mut values = Values::default();
    for setting in SETTINGS {
        let own = setting.section.and_then(|_| at(record, &setting.path()));
        let own = own.and_then(|value| setting.kind.from_json(value).ok());
        let value = own.or_else(|| recorded(setting, record.get(setting.record?)?));
        let value = value.filter(|value| zero || !is_zero(value));
        if let Some(value) = value {
            values.set(setting, value, source.clone());
        }
    }
    let enabled =
        section(record, "batching").and_then(|section| section.get(Batching::KEY)?.as_bool());
    if enabled == Some(false) {
        Batching::Off.settle(&mut values, source.clone());
    }
    values
}

/// A number in quotes counts too, as it does for TorchServe.
fn recorded(setting: &Setting, value: &Value) -> Option<SettingValue> {
    let text = value.as_str();
    text.map_or_else(|| setting.kind.from_json(value), |text| setting.kind.parse(text)).ok()
}

fn is_zero(value: &SettingValue) -> bool {
    matches!(value, SettingValue::Number(0) | SettingValue::Time(Duration::ZERO))
}

/// The record of these values, for a snapshot. Some settings are only kept where a caller set them.
pub fn to_record(values: &Values) -> Map<String, Value> {
    let is_kept = |setting: &Setting| {
        let source = values.source(setting);
        let changed = matches!(
            source,
            SettingSource::Registration | SettingSource::Live | SettingSource::Snapshot(_)
        );
        changed || !setting.record_if_changed
    };
    let entry = |setting: &&Setting| {
        let value = values.get(setting).filter(|_| is_kept(setting))?;
        Some((setting.record?.to_owned(), setting.kind.to_json(value)))
    };
    SETTINGS.iter().filter_map(entry).collect()
}

/// Reads the parameters of a registration, or (`live`) of a change of a live model. A number that
/// cannot be read or is too small counts as not set, as for TorchServe; a word that does not exist
/// is an error.
///
/// # Errors
/// A sentence for the client.
pub fn from_parameters<'a>(
    parameter: impl Fn(&str) -> Option<&'a str>,
    live: bool,
) -> Result<Values, String> {
    let source = if live { SettingSource::Live } else { SettingSource::Registration };
    let mut values = Values::default();
    for setting in SETTINGS.iter().filter(|setting| setting.live || !live) {
        for key in setting.parameter.names {
            let Some(text) = parameter(key).filter(|_| !values.has(setting)) else { continue };
            let wrong = |expected| format!("{key} must be {expected}, not {text:?}");
            let value = if matches!(setting.kind, SettingKind::Whole { .. } | SettingKind::Time(_))
            {
                number(setting, text)
            } else {
                Some(setting.kind.parse(text).map_err(wrong)?)
            };
            if let Some(value) = value {
                values.set(setting, value, source.clone());
            }
        }
    }
    Ok(values)
}

/// Whether the numbers among the parameters can be read. TorchServe takes what it cannot read as not set; who
/// need not do as it does says so instead.
///
/// # Errors
/// A sentence for the client.
pub fn check_parameters<'a>(
    parameter: impl Fn(&str) -> Option<&'a str>,
    live: bool,
) -> Result<(), String> {
    let numbers = SETTINGS.iter().filter(|setting| {
        let number = matches!(setting.kind, SettingKind::Whole { .. } | SettingKind::Time(_));
        number && (setting.live || !live)
    });
    let keys = numbers.flat_map(|setting| setting.parameter.names.iter().copied());
    let unread = |text: &&str| text.parse::<i32>().is_err();
    for key in keys.chain(["min_worker", "max_worker"].into_iter().filter(|_| live)) {
        if let Some(text) = parameter(key).filter(unread) {
            return Err(format!("{key} must be a whole number, not {text:?}"));
        }
    }
    Ok(())
}

/// A number of 32 bits in the setting's unit. Fewer workers than none are none.
fn number(setting: &Setting, text: &str) -> Option<SettingValue> {
    let number = text.parse::<i32>().ok()?;
    let number = if setting.record == WORKERS.record { number.max(0) } else { number };
    let number = u64::try_from(number).ok().filter(|number| *number >= setting.parameter.min)?;
    if matches!(setting.kind, SettingKind::Time(_)) {
        return setting.kind.parse(&number.to_string()).ok();
    }
    Some(number.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::*;

    fn archive(document: Value) -> (Values, Vec<String>) {
        let source = SettingSource::Archive("m.mar".to_owned());
        from_archive(document.as_object().unwrap(), &source)
    }

    #[test]
    fn the_section_wins_over_torchserves_key() {
        let (values, warnings) = archive(json!({
            "batchSize": 4, "batching": {"max_batch_size": 8, "sizes": [1, 2, 4, 8]},
            "torchrun": {"nproc-per-node": 2}, "parallelLevel": 9, "handler": {"colour": "red"},
        }));
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(values.read(&MAX_BATCH_SIZE), Some(8_u32));
        assert_eq!(values.read(&SIZES), Some(vec![1_u32, 2, 4, 8]));
        assert_eq!(values.read(&PARALLEL_LEVEL), Some(2_u32));
        assert_eq!(values.source(&SIZES).to_string(), "archive m.mar");
    }

    #[test]
    fn wrong_types_are_ignored_with_a_warning() {
        for document in [
            json!({"batchSize": "5"}),
            json!({"batchSize": 5.0}),
            json!({"batchSize": 99_999_999_999_u64}),
            json!({"useJobTicket": 1}),
            json!({"deviceType": "tpu"}),
            json!({"deviceIds": [0, -1]}),
            json!({"responseTimeout": 0}),
            json!({"clientTimeoutInMills": -1}),
            json!({"jobQueueSize": 0}),
            json!({"batching": "fast"}),
            json!({"batching": {"max_latency_ms": 0}}),
            json!({"batching": {"sizes": [0, 4]}}),
            json!({"batching": {"tenants": ["gold"]}}),
            json!({"batching": {"max_cost": 0}}),
            json!({"batching": {"max_batchsize": 0}}),
        ] {
            let (values, warnings) = archive(document.clone());
            assert_eq!((values, warnings.len()), (Values::default(), 1), "{document}");
        }
        let (_, warnings) = archive(json!({"batching": {"max_batchsize": 3}}));
        assert!(warnings[0].ends_with("did you mean `max_batch_size`?"), "{warnings:?}");
        let (_, warnings) = archive(json!({"jobQueueSize": "ten"}));
        assert_eq!(
            warnings[0],
            "model config: jobQueueSize must be a whole number, not \"ten\"; it is ignored"
        );
    }

    #[test]
    fn some_numbers_are_raised_and_some_zeros_are_silent() {
        let (values, warnings) = archive(json!({
            "minWorkers": 0, "maxWorkers": -2, "batchSize": -1, "maxNumSequence": 0, "maxBatchDelay": -5,
            "batching": {"max_concurrent_batches": 1000},
        }));
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!((values.read(&WORKERS), values.read(&MAX_WORKERS)), (Some(1_u32), Some(0_u32)));
        assert_eq!(
            (values.read(&MAX_BATCH_SIZE), values.read(&MAX_SEQUENCES)),
            (Some(1_u32), Some(1_u32))
        );
        assert_eq!(
            (values.read(&MAX_CONCURRENT_BATCHES), values.has(&MAX_BATCH_DELAY)),
            (Some(255_u8), false)
        );
    }

    #[test]
    fn enabled_decides_about_the_size() {
        for (section, expected) in [
            (json!({"enabled": false, "max_batch_size": 8}), Some(1)),
            (json!({"enabled": true}), Some(100)),
            (json!({"enabled": true, "max_batch_size": 8}), Some(8)),
            (json!({}), None),
        ] {
            let (values, _) = archive(json!({"batching": section}));
            assert_eq!(values.read::<u32>(&MAX_BATCH_SIZE), expected, "{section}");
        }
    }

    #[test]
    fn parameters_follow_torchserves_rules() {
        let read = |pairs: &[(&str, &str)], live| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
            let find =
                |key: &str| pairs.iter().find(|(it, _)| it == key).map(|(_, text)| text.as_str());
            from_parameters(find, live)
        };
        let values = read(
            &[
                ("batch_size", "many"),
                ("max_batch_delay", "0"),
                ("response_timeout", "1.5"),
                ("initial_workers", "-3"),
                ("job_queue_size", "0"),
            ],
            false,
        )
        .unwrap();
        let expected = Values::default()
            .with(&WORKERS, SettingValue::Number(0), SettingSource::Registration)
            .with(
                &MAX_BATCH_DELAY,
                SettingValue::Time(Duration::ZERO),
                SettingSource::Registration,
            );
        assert_eq!(values, expected);
        let live =
            read(&[("initial_workers", "3"), ("max_latency_ms", "0"), ("sizes", "1,2")], true)
                .unwrap();
        assert!(!live.has(&WORKERS) && live.read(&MAX_LATENCY_MS) == Some(Duration::ZERO));
        assert_eq!(live.read(&SIZES), Some(vec![1_u32, 2]));
        let none = |key: &str| (key == "batch_size").then_some("none");
        let sentence = "batch_size must be a whole number, not \"none\"";
        assert_eq!(check_parameters(none, true), Err(sentence.to_owned()));
        assert_eq!(check_parameters(|key| (key == "batch_size").then_some("-1"), true), Ok(()));
        assert_eq!(
            read(&[("policy", "magic")], false),
            Err("policy must be one of adaptive, window, opportunistic, not \"magic\"".to_owned())
        );
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let snapshot = SettingSource::Snapshot("s.cfg".to_owned());
        let values = Values::default()
            .with(&WORKERS, SettingValue::Number(0), SettingSource::Registration)
            .with(&MAX_BATCH_DELAY, SettingValue::Time(Duration::ZERO), SettingSource::Default)
            .with(&POLICY, SettingValue::Text("window".to_owned()), SettingSource::Default)
            .with(
                &TENANTS,
                SettingValue::Weights(vec![("gold".to_owned(), 4)]),
                SettingSource::Live,
            )
            .with(&QUEUE, SettingValue::Number(100), SettingSource::Default);
        let record = to_record(&values);
        assert!(!record.contains_key("jobQueueSize"), "only where a caller set it");
        let read = from_record(&record, &snapshot, true);
        for setting in SETTINGS.iter().filter(|setting| setting.name != QUEUE.name) {
            assert_eq!(read.get(setting), values.get(setting), "{}", setting.name);
            assert!(!read.has(setting) || read.source(setting) == snapshot, "{}", setting.name);
        }
        assert!(!read.has(&QUEUE));
        let file = from_record(&record, &snapshot, false);
        assert!(!file.has(&WORKERS) && !file.has(&MAX_BATCH_DELAY), "zero is not set there");
        let quoted =
            json!({"batchSize": "4", "batching": {"max_latency_ms": 2.5, "policy": "eager"}});
        let quoted = from_record(quoted.as_object().unwrap(), &snapshot, false);
        assert_eq!(quoted.read(&MAX_BATCH_SIZE), Some(4_u32));
        assert_eq!(quoted.read(&MAX_LATENCY_MS), Some(Duration::from_micros(2500)));
        assert!(!quoted.has(&POLICY));
    }
}
