//! Flags of settings, made from their declarations.

use std::path::Path;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use jitney_settings::{Setting, SettingKind, SettingSource, SettingValue, Values, model, server};

/// Settings that were given as flags: of a server and its models (`MODELS`), or only where to listen and
/// how to log.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags<const MODELS: bool>(pub Values);

/// How to log.
const LOGS: &[&Setting] = &[&server::LOG_LEVEL, &server::LOG_FORMAT];

fn settings(models: bool) -> impl Iterator<Item = &'static Setting> {
    let addresses = &server::SETTINGS[..server::ADDRESSES];
    let (server, more) =
        if models { (server::SETTINGS, model::SETTINGS) } else { (addresses, LOGS) };
    server.iter().chain(more).copied().filter(|setting| setting.flag.is_some())
}

fn arg(setting: &'static Setting) -> Arg {
    let flag = setting.flag.unwrap_or(setting.name);
    let default =
        setting.default_note.or(setting.default).filter(|it| !["none", "false"].contains(it));
    let default = default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let is_flag = setting.kind == SettingKind::Flag;
    let bare = setting.bare.or(is_flag.then_some("true"));
    let heading = model::SETTINGS.iter().any(|model| model.name == setting.name);
    Arg::new(setting.name)
        .long(flag)
        .visible_aliases(setting.aliases)
        .value_name(setting.placeholder.unwrap_or(setting.kind.placeholder()))
        .help(format!("{}{default}", setting.about))
        .help_heading(heading.then_some("Models"))
        .num_args(if bare.is_some() { 0..=1 } else { 1..=1 })
        .require_equals(is_flag)
        .default_missing_values(bare)
        .value_parser(|text: &str| {
            setting.kind.parse(text).map_err(|expected| format!("it must be {expected}"))
        })
}

impl<const MODELS: bool> FromArgMatches for SettingFlags<MODELS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in settings(MODELS) {
            if let Some(value) = matches.get_one::<SettingValue>(setting.name) {
                let flag = format!("--{}", setting.flag.unwrap_or(setting.name));
                self.0.set(setting, value.clone(), SettingSource::Flag(flag));
            }
        }
        Ok(())
    }
}

/// What `jitney serve -h` shows of the settings; `--help` shows all.
const COMMON: [&Setting; 12] = [
    &server::HOST,
    &server::INFERENCE_PORT,
    &server::MANAGEMENT_PORT,
    &server::TOKEN_AUTH,
    &server::TLS_CERT,
    &server::TLS_KEY,
    &server::MODEL_STORE,
    &server::LOG_LEVEL,
    &server::HANDOVER,
    &model::WORKERS,
    &model::MAX_BATCH_SIZE,
    &model::MAX_LATENCY_MS,
];

impl<const MODELS: bool> Args for SettingFlags<MODELS> {
    fn augment_args(command: Command) -> Command {
        let common = |setting: &Setting| COMMON.iter().any(|common| common.name == setting.name);
        settings(MODELS).fold(command, |command, setting| {
            command.arg(arg(setting).hide_short_help(MODELS && !common(setting)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Settings that a registration may bring, given as flags.
#[derive(Clone, Debug, Default)]
pub struct ParameterFlags(pub Values);

fn parameters() -> impl Iterator<Item = &'static Setting> {
    model::SETTINGS.iter().copied().filter(|setting| !setting.parameter.names.is_empty())
}

impl FromArgMatches for ParameterFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in parameters() {
            if let Some(value) = matches.get_one::<SettingValue>(setting.name) {
                self.0.set(setting, value.clone(), SettingSource::Registration);
            }
        }
        Ok(())
    }
}

impl Args for ParameterFlags {
    fn augment_args(command: Command) -> Command {
        parameters().fold(command, |command, setting| command.arg(arg(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The values of flags that commands declare by themselves: the setting, the flag, its value.
pub fn flag_values<const N: usize>(
    given: [(&'static Setting, &str, Option<SettingValue>); N],
) -> Values {
    let mut values = Values::default();
    for (setting, flag, value) in given {
        if let Some(value) = value {
            values.set(setting, value, SettingSource::Flag(format!("--{flag}")));
        }
    }
    values
}

/// The value of a flag that names a path.
pub fn path_value(path: Option<&Path>) -> Option<SettingValue> {
    path.map(|path| path.to_string_lossy().into_owned().into())
}
