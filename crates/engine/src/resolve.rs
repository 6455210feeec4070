//! One place where a model's settings come together: the caller's, the archive's, the operator's, the
//! defaults. Pure functions; `jitney config` prints what they return.

use std::sync::Arc;
use std::time::Duration;

use jitney_settings::model::{
    self, ASYNC_COMMUNICATION, COST, ISOLATION, LOAD, LoadTime, MAX_BATCH_DELAY, MAX_BATCH_SIZE,
    MAX_CONCURRENT_BATCHES, MAX_LATENCY_MS, MAX_WORKERS, MIN_WORKERS, POLICY, RESPONSE_TIMEOUT,
    STARTUP_TIMEOUT, STARTUP_WAIT, WORKERS,
};
use jitney_settings::{
    Cost, Isolation, PolicyName, Setting, SettingSource, SettingValue, Values, from_record,
};
use serde_json::Value;

use crate::error::RegisterError;
use crate::local::LocalModel;
use crate::model::ModelIdentity;
use crate::settings::{
    ModelDefaults, ModelSettings, Precedence, RegisterOptions, UnknownSequences,
};
use crate::store::{Package, Runtime, Sha256, ShownUrl, stays_inside};

/// Items in a batch of a model whose batch dimension is open, unless a source sets another number.
const LOCAL_BATCH_SIZE: u32 = 32;

/// Batches that a worker with an asynchronous handler may hold: enough that waiting for others
/// costs nothing, and few enough that its exit costs little.
const ASYNC_SLOTS: u64 = 100;

/// The effective settings of an archive.
pub(crate) fn settings(
    names: (&str, &str),
    package: &Package,
    options: &RegisterOptions,
    defaults: &ModelDefaults,
) -> Result<ModelSettings, RegisterError> {
    let mut archive = package.settings.clone();
    if let Some(time) = defaults.silent_yaml_timeout.filter(|_| package.has_yaml()) {
        archive = archive.or(&times(time));
    }
    let values = resolve(names, archive, options, defaults);
    check_workers(&values, defaults.workers_limit)?;
    let mut settings = ModelSettings::new(
        values,
        runtime(package, options)?,
        handler(package, options, defaults)?,
        Arc::clone(&defaults.sequence_headers),
    )?;
    let unknown = &mut settings.declared.unknown_sequences;
    if defaults.precedence == Precedence::Jitney && *unknown == UnknownSequences::Begin {
        *unknown = UnknownSequences::BeginOwn;
    }
    Ok(settings)
}

/// The settings that must be known before the model is: what somebody typed counts, never what somebody packed.
pub(crate) fn typed(options: &RegisterOptions, defaults: &ModelDefaults) -> Values {
    options.settings.clone().or(&defaults.settings).or_defaults(model::SETTINGS)
}

/// The effective settings of a model without Python.
pub(crate) fn local_settings(
    names: (&str, &str),
    model: &dyn LocalModel,
    isolation: Isolation,
    options: &RegisterOptions,
    defaults: &ModelDefaults,
) -> Result<ModelSettings, RegisterError> {
    let limit = if options.whole { Some(1) } else { model.max_batch_size() };
    let mut own = Values::default();
    own.set(&MAX_BATCH_SIZE, limit.unwrap_or(LOCAL_BATCH_SIZE), SettingSource::Default);
    own.set(&ISOLATION, isolation.as_str(), SettingSource::Default);
    if model.pads() && !options.whole {
        own.set(&COST, Cost::Length.as_str(), SettingSource::Default);
    }
    let mut values = resolve(names, own, options, defaults);
    check_workers(&values, defaults.workers_limit)?;
    let size = values.read::<u32>(&MAX_BATCH_SIZE);
    if let Some(limit) = limit.filter(|limit| size > Some(*limit)) {
        values.set(
            &MAX_BATCH_SIZE,
            limit,
            SettingSource::Archive(ShownUrl::of(&options.url).to_string()),
        );
    }
    let headers = Arc::clone(&defaults.sequence_headers);
    ModelSettings::new(values, model.runtime().to_owned(), String::new(), headers)
}

/// Both timeouts, as TorchServe sets them where the archive is silent.
fn times(time: Duration) -> Values {
    let values = Values::default().with(&RESPONSE_TIMEOUT, time, SettingSource::Default);
    values.with(&STARTUP_TIMEOUT, time, SettingSource::Default)
}

/// Every setting of a model with its effective value and its source.
fn resolve(
    (name, version): (&str, &str),
    mut archive: Values,
    options: &RegisterOptions,
    defaults: &ModelDefaults,
) -> Values {
    let record = defaults.models.get(name).and_then(|versions| versions.get(version));
    let record = record.and_then(Value::as_object);
    let mut record = record
        .map_or_else(Values::default, |record| from_record(record, &defaults.models_source, false));
    if !options.at_startup {
        record.remove(&WORKERS);
        record.remove(&MAX_WORKERS);
    }
    let of_part = options.part.then(|| defaults.settings.clone().without_flags());
    let operator = of_part.as_ref().unwrap_or(&defaults.settings);
    let caller = options.settings.clone();
    let typed = caller.clone().or(operator);
    let packed_workers = match defaults.precedence {
        Precedence::Jitney => !typed.has(&WORKERS),
        Precedence::TorchServe => !(options.restored && caller.has(&WORKERS)),
    };
    if !packed_workers || !are_workers(&archive) {
        archive.remove(&WORKERS);
        archive.remove(&MAX_WORKERS);
    } else if let Some(fewest) = archive.read::<u64>(&MIN_WORKERS) {
        // TorchServe's key cannot say 0.
        archive.set(&WORKERS, fewest, archive.source(&MIN_WORKERS));
    }
    archive.remove(&MIN_WORKERS);
    let mut values = match defaults.precedence {
        Precedence::Jitney => typed.or(&archive).or(&record),
        Precedence::TorchServe => {
            let mut values = caller.or(&archive).or(&record).or(operator);
            let restored = [&WORKERS, &MAX_WORKERS].map(|setting| setting.name);
            let is_first = |setting: &&&Setting| {
                setting.archive_first && !(options.restored && restored.contains(&setting.name))
            };
            for setting in model::SETTINGS.iter().filter(is_first) {
                values.prefer(setting, &record);
                values.prefer(setting, &archive);
            }
            values
        }
    };
    let startup_workers = defaults.startup_workers.min(defaults.workers_limit.unwrap_or(u32::MAX));
    fill_in(&mut values, if options.at_startup { startup_workers } else { 0 });
    // TorchServe knows no such limit: a request waits as long as a worker may load.
    if defaults.precedence == Precedence::TorchServe
        && values.source(&STARTUP_WAIT) == SettingSource::Default
    {
        let wait: Duration = values.value(&STARTUP_TIMEOUT);
        values.set(&STARTUP_WAIT, wait, SettingSource::Default);
    }
    values
}

/// Rejects more workers than a model may have. An archive comes from others, and each worker is a process.
fn check_workers(values: &Values, limit: Option<u32>) -> Result<(), RegisterError> {
    let asked = |setting: &Setting| values.read::<u64>(setting).unwrap_or(0);
    let above = |setting: &&Setting| limit.is_some_and(|limit| asked(setting) > limit.into());
    match [&WORKERS, &MAX_WORKERS].into_iter().find(above) {
        None => Ok(()),
        Some(setting) => Err(RegisterError::BadSettings(too_many_workers(
            asked(setting),
            limit.unwrap_or(u32::MAX),
            &format!(" ({})", values.source(setting)),
        ))),
    }
}

/// The sentence for who asked for too many workers.
pub(crate) fn too_many_workers(asked: u64, limit: u32, source: &str) -> String {
    format!("{asked} workers{source} are more than max_workers_per_model={limit} allows")
}

/// The archive's numbers of workers count only together, and only if they make sense together.
fn are_workers(archive: &Values) -> bool {
    let pair = archive.read::<u32>(&WORKERS).zip(archive.read::<u32>(&MAX_WORKERS));
    pair.is_some_and(|(min, max)| min > 0 && max >= min)
}

/// Sets what no source sets: what follows from other settings, then the declared defaults.
fn fill_in(values: &mut Values, workers: u32) {
    let mut default = Values::default();
    let mut set = |setting, value| default.set(setting, value, SettingSource::Default);
    set(&WORKERS, SettingValue::from(workers));
    // An explicit delay asks for TorchServe's window, a latency target or nothing for adaptive.
    let latency: Option<Duration> = values.read(&MAX_LATENCY_MS);
    let windowed = values.has(&MAX_BATCH_DELAY) && latency.is_none_or(|latency| latency.is_zero());
    let policy = if windowed { PolicyName::Window } else { PolicyName::Adaptive };
    set(&POLICY, SettingValue::from(policy.as_str()));
    let is_async = values.flag(&ASYNC_COMMUNICATION);
    set(&MAX_CONCURRENT_BATCHES, SettingValue::Number(if is_async { ASYNC_SLOTS } else { 1 }));
    *values = std::mem::take(values).or(&default).or_defaults(model::SETTINGS);
    let workers: u64 = values.read(&WORKERS).unwrap_or(0);
    if let Some(fewest) = values.read::<u64>(&MIN_WORKERS) {
        values.set(&WORKERS, fewest, values.source(&MIN_WORKERS));
    }
    let on_demand = values.value::<LoadTime>(&LOAD) == LoadTime::OnDemand;
    if on_demand {
        values.set(&WORKERS, 0_u64, values.source(&LOAD));
    }
    let fewest: u64 = values.read(&WORKERS).unwrap_or(0);
    let workers = workers.max(fewest).max(on_demand.into());
    let least = fewest.max(on_demand.into());
    if values.read::<u64>(&MAX_WORKERS).is_none_or(|max| max < least) {
        let source = values.source(&WORKERS);
        values.set(&MAX_WORKERS, workers, source);
    }
}

/// The sum that the operator's `models={...}` gives for this version.
pub(crate) fn operators_sha256(
    ModelIdentity { name, version, .. }: &ModelIdentity,
    defaults: &ModelDefaults,
) -> Result<Option<Sha256>, RegisterError> {
    let record = defaults.models.get(name).and_then(|versions| versions.get(version));
    let sum = record.and_then(|record| record.get("sha256")?.as_str());
    sum.map(str::parse).transpose().map_err(RegisterError::BadSettings)
}

/// The sums that the operator's `models={...}` has for a model whose code runs before its own version is known. One of
/// them has to be the file's. Where there are sums, such a model has to be named: by its own name it could pass as
/// another.
pub(crate) fn sums_before_code(
    options: &RegisterOptions,
    defaults: &ModelDefaults,
) -> Result<Vec<Sha256>, RegisterError> {
    let given = options.model_name.as_deref().filter(|name| !name.is_empty());
    let of_name = |name: &str| given.is_none_or(|given| given == name);
    let of_version = |version: &str| options.version.as_deref().is_none_or(|it| it == version);
    let records = defaults.models.iter().filter(|(name, _)| of_name(name));
    let records = records.flat_map(|(_, versions)| versions.as_object().into_iter().flatten());
    let sums = records.filter(|(version, _)| of_version(version));
    let sums = sums.filter_map(|(_, record)| record.get("sha256")?.as_str());
    let sums = sums.map(str::parse).collect::<Result<Vec<_>, _>>();
    let sums = sums.map_err(RegisterError::BadSettings)?;
    if given.is_none() && !sums.is_empty() {
        let why = "models={...} has checksums, and code of this file runs when it is loaded; give its model_name";
        return Err(RegisterError::BadSettings(why.to_owned()));
    }
    Ok(sums)
}

/// Rejects a runtime that does not exist, before anything is looked up or fetched.
pub(crate) fn check_runtime(options: &RegisterOptions) -> Result<Option<Runtime>, RegisterError> {
    let read =
        |word: &String| Runtime::parse(word).map_err(|_| RegisterError::BadRuntime(word.clone()));
    options.runtime.as_ref().map(read).transpose()
}

fn runtime(package: &Package, options: &RegisterOptions) -> Result<String, RegisterError> {
    let runtime = check_runtime(options)?.unwrap_or(package.manifest.runtime);
    match runtime {
        Runtime::Python | Runtime::Python3 => Ok(runtime.as_str().to_owned()),
        Runtime::Lsp => Err(RegisterError::BadSettings(
            "runtime LSP (the C++ backend) is not supported; use python".to_owned(),
        )),
    }
}

fn handler(
    package: &Package,
    options: &RegisterOptions,
    defaults: &ModelDefaults,
) -> Result<String, RegisterError> {
    let file = |handler: &String| !stays_inside(handler.split(':').next().unwrap_or_default());
    if !options.at_startup && options.handler.as_ref().is_some_and(file) {
        return Err(RegisterError::BadSettings(
            "handler points outside the model; name one of its files, or a module".to_owned(),
        ));
    }
    let given = options.handler.clone().or_else(|| package.manifest.handler.clone());
    given.or_else(|| defaults.handler.clone()).ok_or_else(|| {
        RegisterError::BadSettings(
            "the archive names no handler; give one with handler=FILE.py".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use jitney_settings::from_archive;
    use jitney_settings::model::QUEUE;
    use serde_json::json;

    use super::*;

    fn archive(yaml: Value) -> Values {
        let source = SettingSource::Archive("m.mar".to_owned());
        from_archive(yaml.as_object().unwrap(), &source).0
    }

    fn values(given: &[(&Setting, &str)], source: &SettingSource) -> Values {
        given.iter().fold(Values::default(), |values, (setting, text)| {
            values.with(setting, setting.kind.parse(text).unwrap(), source.clone())
        })
    }

    /// The value and the kind of its source, of a model that is loaded at start-up.
    fn shown(
        setting: &Setting,
        yaml: Value,
        caller: &[(&Setting, &str)],
        defaults: &ModelDefaults,
    ) -> (String, &'static str) {
        let caller = values(caller, &SettingSource::Flag("--flag".to_owned()));
        let options =
            RegisterOptions { settings: caller, at_startup: true, ..RegisterOptions::default() };
        let values = resolve(("m", "1.0"), archive(yaml), &options, defaults);
        (values.show(setting).unwrap_or_default(), values.source(setting).kind())
    }

    fn torchserve() -> ModelDefaults {
        let file = SettingSource::File { path: std::path::Path::new("c").into(), line: Some(1) };
        let record = json!({"m": {"1.0": {"minWorkers": 5, "maxWorkers": 6, "responseTimeout": 50, "batchSize": 5}}});
        ModelDefaults {
            precedence: Precedence::TorchServe,
            settings: values(&[(&QUEUE, "7"), (&RESPONSE_TIMEOUT, "70")], &file),
            models: record.as_object().unwrap().clone(),
            models_source: file,
            ..ModelDefaults::default()
        }
    }

    #[test]
    fn a_file_whose_code_runs_has_one_of_the_operators_sums() {
        let (old, new) = ("a".repeat(64), "b".repeat(64));
        let models =
            json!({"m": {"1.0": {"sha256": old}, "2.0": {"sha256": new}}, "free": {"1.0": {}}});
        let models = models.as_object().unwrap().clone();
        let defaults = ModelDefaults { models, ..ModelDefaults::default() };
        let sums = |name: Option<&str>, version: Option<&str>| {
            let (model_name, version) = (name.map(str::to_owned), version.map(str::to_owned));
            let options = RegisterOptions { model_name, version, ..RegisterOptions::default() };
            sums_before_code(&options, &defaults)
        };
        let parsed = |text: &str| text.parse::<Sha256>().unwrap();
        assert_eq!(sums(Some("m"), None).unwrap(), [parsed(&old), parsed(&new)]);
        assert_eq!(sums(Some("m"), Some("2.0")).unwrap(), [parsed(&new)]);
        assert_eq!(sums(Some("free"), None).unwrap(), []);
        assert_eq!(sums(Some("other"), None).unwrap(), []);
        let unnamed = sums(None, None).unwrap_err().to_string();
        assert!(unnamed.contains("give its model_name"), "{unnamed}");
    }

    #[test]
    fn what_is_typed_wins_over_what_was_packed() {
        let ours = ModelDefaults::default();
        let yaml =
            || json!({"minWorkers": 1, "maxWorkers": 1, "responseTimeout": 9, "batchSize": 8});
        for (setting, typed) in [(&WORKERS, "3"), (&RESPONSE_TIMEOUT, "4"), (&MAX_BATCH_SIZE, "2")]
        {
            let found = shown(setting, yaml(), &[(setting, typed)], &ours);
            assert_eq!(found, (typed.to_owned(), "flag"));
            assert_eq!(shown(setting, yaml(), &[], &ours).1, "archive");
        }
        let most = shown(
            &MAX_WORKERS,
            json!({"minWorkers": 1, "maxWorkers": 9}),
            &[(&WORKERS, "3")],
            &ours,
        );
        assert_eq!(most, ("3".to_owned(), "flag"), "the archive's numbers count only together");
        let none = || json!({"minWorkers": 1, "maxWorkers": 9, "jitney": {"min_workers": 0}});
        let fewest = |typed: &[(&Setting, &str)]| shown(&WORKERS, none(), typed, &ours);
        assert_eq!(fewest(&[]), ("0".to_owned(), "archive"), "a definition may say 0");
        assert_eq!(fewest(&[(&WORKERS, "3")]), ("3".to_owned(), "flag"));
    }

    #[test]
    fn under_torchserve_the_archive_decides_first_about_workers_and_timeouts() {
        let theirs = torchserve();
        let yaml =
            || json!({"minWorkers": 1, "maxWorkers": 2, "responseTimeout": 9, "batchSize": 8});
        let typed = [(&WORKERS, "3"), (&RESPONSE_TIMEOUT, "4"), (&MAX_BATCH_SIZE, "2")];
        for (setting, packed, recorded) in [
            (&WORKERS, ("1", "archive"), ("5", "file")),
            (&MAX_WORKERS, ("2", "archive"), ("6", "file")),
            (&RESPONSE_TIMEOUT, ("9", "archive"), ("50", "file")),
            (&MAX_BATCH_SIZE, ("2", "flag"), ("2", "flag")),
        ] {
            let expected = |(value, source): (&str, _)| (value.to_owned(), source);
            assert_eq!(shown(setting, yaml(), &typed, &theirs), expected(packed));
            assert_eq!(shown(setting, json!({}), &typed, &theirs), expected(recorded));
        }
        let queue = shown(&QUEUE, json!({}), &[], &theirs);
        assert_eq!(queue, ("7".to_owned(), "file"));
        let archives = shown(&QUEUE, json!({"jobQueueSize": 3}), &[], &theirs);
        assert_eq!(archives, ("3".to_owned(), "archive"));
    }

    #[test]
    fn nobody_gets_more_workers_than_a_model_may_have() {
        let limited = |precedence| ModelDefaults {
            precedence,
            workers_limit: Some(8),
            startup_workers: 100,
            ..ModelDefaults::default()
        };
        for precedence in [Precedence::Jitney, Precedence::TorchServe] {
            let check = |yaml: Value, typed: &[(&Setting, &str)]| {
                let options = RegisterOptions {
                    settings: values(typed, &SettingSource::Registration),
                    at_startup: true,
                    ..RegisterOptions::default()
                };
                let values = resolve(("m", "1.0"), archive(yaml), &options, &limited(precedence));
                check_workers(&values, Some(8)).map_err(|error| error.to_string())
            };
            assert_eq!(check(json!({}), &[]), Ok(()), "the machine's number gives way");
            assert_eq!(check(json!({"minWorkers": 8, "maxWorkers": 8}), &[]), Ok(()));
            let many =
                "100000 workers (archive m.mar) are more than max_workers_per_model=8 allows";
            for min in [1, 100_000] {
                let packed = check(json!({"minWorkers": min, "maxWorkers": 100_000}), &[]);
                assert_eq!(packed, Err(many.to_owned()));
            }
            assert!(check(json!({}), &[(&WORKERS, "9")]).is_err());
        }
    }

    #[test]
    fn a_snapshot_restores_its_workers_whatever_the_archive_says() {
        let snapshot = SettingSource::Snapshot("s.cfg".to_owned());
        let options = RegisterOptions {
            settings: values(&[(&WORKERS, "2"), (&MAX_WORKERS, "4")], &snapshot),
            at_startup: true,
            restored: true,
            ..RegisterOptions::default()
        };
        let yaml = archive(json!({"minWorkers": 1, "maxWorkers": 1}));
        let values = resolve(("m", "1.0"), yaml, &options, &torchserve());
        assert_eq!((values.read(&WORKERS), values.read(&MAX_WORKERS)), (Some(2_u32), Some(4_u32)));
    }

    #[test]
    fn the_policy_follows_from_delay_and_latency_unless_it_is_set() {
        let ours = ModelDefaults::default();
        for (typed, policy) in [
            (&[][..], "adaptive"),
            (&[(&MAX_BATCH_DELAY, "20")], "window"),
            (&[(&MAX_BATCH_DELAY, "20"), (&MAX_LATENCY_MS, "50")], "adaptive"),
            (&[(&MAX_BATCH_DELAY, "20"), (&MAX_LATENCY_MS, "0")], "window"),
            (&[(&MAX_BATCH_DELAY, "20"), (&POLICY, "opportunistic")], "opportunistic"),
        ] {
            assert_eq!(shown(&POLICY, json!({}), typed, &ours).0, policy, "{typed:?}");
        }
    }

    #[test]
    fn flags_are_about_the_application_and_not_its_parts() {
        let flags = values(&[(&WORKERS, "3")], &SettingSource::Flag("--workers".to_owned()));
        let settings = flags.or(&values(&[(&QUEUE, "9")], &SettingSource::Live));
        let defaults = ModelDefaults { settings, startup_workers: 1, ..ModelDefaults::default() };
        let found = |part| {
            let options = RegisterOptions { part, at_startup: true, ..RegisterOptions::default() };
            let values = resolve(("m", "1.0"), Values::default(), &options, &defaults);
            (values.read::<u32>(&WORKERS), values.read::<u32>(&QUEUE))
        };
        assert_eq!((found(false), found(true)), ((Some(3), Some(9)), (Some(1), Some(9))));
    }

    #[test]
    fn only_startup_models_get_workers_without_a_number() {
        let workers = |at_startup| {
            let options = RegisterOptions { at_startup, ..RegisterOptions::default() };
            let defaults = ModelDefaults { startup_workers: 6, ..ModelDefaults::default() };
            resolve(("m", "1.0"), Values::default(), &options, &defaults).read::<u32>(&WORKERS)
        };
        assert_eq!((workers(true), workers(false)), (Some(6), Some(0)));
    }
}
