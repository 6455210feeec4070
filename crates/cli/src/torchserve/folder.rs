//! A folder with TorchServe's `config.properties` beside its model store, as KServe mounts it, for `jitney serve`: the
//! file is a layer of settings and names the models. It opens nothing to others but predictions and metrics:
//! `jitney serve` asks for no token, so that management stays on this machine, whatever address the file gives it.

use std::path::Path;

use jitney_settings::model::WORKERS;
use jitney_settings::server::{
    HOST, INFERENCE_PORT, MANAGEMENT_HOST, MANAGEMENT_PORT, METRICS_PORT, MODEL_STORE,
};
use jitney_settings::torchserve::{
    INFERENCE_ADDRESS, LOAD_MODELS, MANAGEMENT_ADDRESS, METRICS_ADDRESS, MODEL_SNAPSHOT, MODELS,
    SERVICE_ENVELOPE,
};
use jitney_settings::{Setting, SettingSource, Values, model, server};
use serde_json::{Map, Value};

use super::addresses::Addresses;
use super::engine::per_model;
use super::{models, properties, restore, sources};
use crate::address::Address;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::plan::{EnginePlan, Startup};

const FILE: &str = "config/config.properties";
const STORE: &str = "model-store";

/// What such a folder says.
pub struct TorchserveFolder {
    /// What its keys set, for the server and for all models.
    pub settings: Values,
    /// The models of its snapshot, else those of `load_models`, else all of the store.
    pub models: Vec<Startup>,
    /// Warnings for the log.
    pub remarks: Vec<String>,
    /// Settings of single models, by name and version.
    records: Map<String, Value>,
    records_source: SettingSource,
    envelope: Option<String>,
}

impl TorchserveFolder {
    /// Reads the folder, if it is one. With a name it must hold one model.
    pub fn read(folder: &Path, name: Option<&str>, env: &Env) -> Result<Option<Self>, Failure> {
        let (file, store) = (folder.join(FILE), folder.join(STORE));
        if !file.is_file() || !store.is_dir() {
            return Ok(None);
        }
        let lines = properties::read(&file, env)?;
        let (values, mut remarks) = sources::read(lines, &TorchserveFlags::default(), env)?;
        let mut settings = values.only(server::SETTINGS).or(&values.only(model::SETTINGS));
        // Zero is TorchServe's word for "as many as the machine has".
        if settings.read(&WORKERS) == Some(0_u32) {
            settings.remove(&WORKERS);
        }
        let source = SettingSource::File { path: file.into(), line: None };
        settings.set(&MODEL_STORE, store.to_string_lossy().into_owned(), source);
        remarks.extend(listen(&values, &mut settings)?);
        Ok(Some(Self {
            settings,
            models: named(name, startups(&values, &store)?, folder)?,
            remarks,
            records: per_model(&values)?,
            records_source: values.source(&MODELS),
            envelope: values.read(&SERVICE_ENVELOPE),
        }))
    }

    /// The engine with what the folder says of single models and of the form of requests.
    pub fn engine(self, mut plan: EnginePlan) -> EnginePlan {
        plan.defaults.models = self.records;
        plan.defaults.models_source = self.records_source;
        plan.python.envelope = self.envelope;
        plan
    }
}

fn startups(values: &Values, store: &Path) -> Result<Vec<Startup>, Failure> {
    let Some(text) = values.read::<String>(&MODEL_SNAPSHOT) else {
        let list = values.read::<String>(&LOAD_MODELS);
        return Ok(models::parse(list.as_deref().unwrap_or("all"), store));
    };
    let source = SettingSource::Snapshot(values.source(&MODEL_SNAPSHOT).detail());
    let hint = format!("put it into {}, or take it out of model_snapshot", store.display());
    restore::startups(&text, store, &source).map_err(|failure| failure.hint(hint))
}

/// The one model under the name that the command line gives it.
fn named(
    name: Option<&str>,
    mut models: Vec<Startup>,
    folder: &Path,
) -> Result<Vec<Startup>, Failure> {
    match (name, &mut models[..]) {
        (None, _) => Ok(models),
        (Some(name), [only]) => {
            only.name = Some(name.to_owned());
            Ok(models)
        }
        (Some(name), several) => Err(Failure::usage(format!(
            "{} must hold one model to be served as {name:?}; its {FILE} names {}",
            folder.display(),
            several.len()
        ))
        .hint("leave the name away: each model then has its own")),
    }
}

/// Where the server listens: predictions as the file says, metrics and management at its ports.
fn listen(values: &Values, settings: &mut Values) -> Result<Option<String>, Failure> {
    let addresses = Addresses::read(values)?;
    let source = SettingSource::Default;
    settings.set(&MANAGEMENT_HOST, "127.0.0.1".to_owned(), source);
    let (host, port) = tcp(&INFERENCE_ADDRESS, &addresses.inference, values)?;
    if values.has(&INFERENCE_ADDRESS) {
        settings.set(&HOST, host.to_owned(), values.source(&INFERENCE_ADDRESS));
        settings.set(&INFERENCE_PORT, u64::from(port), values.source(&INFERENCE_ADDRESS));
    }
    if values.has(&METRICS_ADDRESS) {
        let (_, port) = tcp(&METRICS_ADDRESS, &addresses.metrics, values)?;
        settings.set(&METRICS_PORT, u64::from(port), values.source(&METRICS_ADDRESS));
    }
    if !values.has(&MANAGEMENT_ADDRESS) {
        return Ok(None);
    }
    let source = values.source(&MANAGEMENT_ADDRESS);
    let (_, managed) = tcp(&MANAGEMENT_ADDRESS, &addresses.management, values)?;
    if managed != port || managed == 0 {
        settings.set(&MANAGEMENT_PORT, u64::from(managed), source);
        return Ok(None);
    }
    Ok(Some(format!(
        "{source}: management has an address of its own here, 127.0.0.1; --management-port names its port"
    )))
}

/// Host and port; certificates and Unix sockets of the file are not for `jitney serve`.
fn tcp<'a>(
    setting: &Setting,
    address: &'a Address,
    values: &Values,
) -> Result<(&'a str, u16), Failure> {
    match address {
        Address::Tcp { host, port, tls: false } => Ok((host, *port)),
        Address::Tcp { .. } | Address::Unix(_) => Err(Failure::usage(format!(
            "{}: {} {address} cannot be kept by `jitney serve`",
            values.source(setting),
            setting.name
        ))
        .hint("start `jitney torchserve --start --foreground --ts-config FILE`, or write http://HOST:PORT there and give --tls-cert and --tls-key")),
    }
}
