//! `jitney config`: every effective value and where it was set. The values are those that the server
//! would start with: they are read, resolved and planned by the same functions.

use jitney_settings::torchserve::{KEYSTORE_PASS, properties};
use jitney_settings::{PropertyEffect, Setting, SettingSource, Values, model, server};
use serde_json::{Value, json};

use crate::env::Env;
use crate::failure::Failure;
use crate::flags::ServeFlags;
use crate::flags::config::{ConfigFlags, ConfigOf};
use crate::flags::torchserve::TorchserveFlags;
use crate::plan::{ServerKind, ServerPlan};
use crate::{console, run, serve, torchserve};

/// One value.
#[derive(Clone, Debug, PartialEq)]
struct ConfigRow {
    /// The model it is about; none for the server.
    model: Option<String>,
    /// The key, as the file spells it.
    key: String,
    /// The value, where there is one.
    value: Option<String>,
    /// Where it was set.
    source: SettingSource,
}

impl ConfigRow {
    fn of(model: Option<&str>, key: &str, setting: &Setting, values: &Values) -> Self {
        let value = values.show(setting);
        let is_secret = setting.name == KEYSTORE_PASS.name;
        Self {
            model: model.map(str::to_owned),
            key: key.to_owned(),
            value: value.map(|value| if is_secret { "***".to_owned() } else { value }),
            source: values.source(setting),
        }
    }
}

/// Prints the configuration and returns the exit code.
pub fn main(flags: ConfigFlags, env: &Env) -> Result<u8, Failure> {
    let json = flags.json;
    let rows = match flags.of {
        Some(ConfigOf::Torchserve(flags)) => of_torchserve(&flags, env),
        Some(ConfigOf::Serve(flags)) => of_serve(flags, env),
        None => of_serve(ServeFlags::default(), env),
    }?;
    console::out(if json { as_json(&rows) } else { as_text(&rows) });
    Ok(0)
}

fn of_serve(flags: ServeFlags, env: &Env) -> Result<Vec<ConfigRow>, Failure> {
    let config = serve::configure(flags, env)?;
    config.remarks.iter().for_each(|remark| console::err(format!("warning: {remark}")));
    let row = |setting: &&Setting| ConfigRow::of(None, setting.name, setting, &config.values);
    let mut rows: Vec<ConfigRow> = server::SETTINGS.iter().map(row).collect();
    let shared = config.values.clone().or_defaults(model::SETTINGS);
    let for_models = model::SETTINGS.iter().filter(|setting| setting.flag.is_some());
    rows.extend(for_models.map(|setting| ConfigRow::of(None, setting.name, setting, &shared)));
    if !config.models.is_empty() {
        let plan = serve::assemble(ServerKind::Serve, config, env)?;
        for model in run::preview(&plan, env)? {
            let (name, settings) = model?;
            rows.extend(model_rows(&name, &settings.values));
        }
    }
    Ok(rows)
}

fn of_torchserve(flags: &TorchserveFlags, env: &Env) -> Result<Vec<ConfigRow>, Failure> {
    let config = torchserve::configure(flags, env)?;
    config.remarks.iter().for_each(|remark| console::err(format!("warning: {remark}")));
    let shared = config.values.clone().or_defaults(model::SETTINGS);
    let known = properties().filter(|setting| setting.effect != PropertyEffect::Silent);
    let row = |setting: &'static Setting| {
        let key = setting.property.unwrap_or(setting.name);
        ConfigRow::of(None, key, setting, &shared)
    };
    let mut rows: Vec<ConfigRow> = known.map(row).collect();
    if config.values.has(&server::MODEL_STORE) {
        let plan: ServerPlan = torchserve::assemble(config, flags, env)?;
        for model in run::preview(&plan, env)? {
            // TorchServe starts without a model that it cannot load.
            match model {
                Ok((name, settings)) => rows.extend(model_rows(&name, &settings.values)),
                Err(failure) => console::err(format!("warning: {failure}")),
            }
        }
    }
    Ok(rows)
}

/// What is in force for a model; of what only few models have, what is set.
fn model_rows<'a>(name: &'a str, values: &'a Values) -> impl Iterator<Item = ConfigRow> + 'a {
    let is_shown = |setting: &&&Setting| {
        let is_set = values.source(setting) != SettingSource::Default;
        is_set || setting.flag.is_some() || setting.name == model::MAX_WORKERS.name
    };
    let settings = model::SETTINGS.iter().filter(is_shown);
    settings.map(|setting| ConfigRow::of(Some(name), setting.name, setting, values))
}

fn as_text(rows: &[ConfigRow]) -> String {
    let name = |row: &ConfigRow| match &row.model {
        Some(model) => format!("{model}: {}", row.key),
        None => row.key.clone(),
    };
    let width = rows.iter().map(|row| name(row).len()).max().unwrap_or(0);
    let value = |row: &ConfigRow| row.value.clone().unwrap_or_else(|| "-".to_owned());
    let room = rows.iter().map(|row| value(row).len()).filter(|length| *length <= 48).max();
    let room = room.unwrap_or(0);
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{:<width$}  {:<room$}  {}", name(row), value(row), row.source))
        .collect();
    lines.join("\n")
}

fn as_json(rows: &[ConfigRow]) -> String {
    let objects: Vec<Value> = rows
        .iter()
        .map(|row| {
            let place = Some(row.source.detail()).filter(|place| !place.is_empty());
            json!({
                "model": row.model,
                "key": row.key,
                "value": row.value,
                "origin": row.source.kind(),
                "from": place,
            })
        })
        .collect();
    format!("{:#}", Value::from(objects))
}

#[cfg(test)]
mod tests;
