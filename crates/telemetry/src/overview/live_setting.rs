//! The settings that can be changed while a model serves, each with its value and how to change it:
//! `PUT /models/{name}/{version}?parameter=value`.

use jitney_settings::model::SETTINGS;
use jitney_settings::{Setting, SettingKind, Values};
use serde::{Deserialize, Serialize};

/// A setting with its value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LiveSetting {
    /// The setting.
    pub name: String,
    /// The parameter that changes it.
    pub parameter: String,
    /// As it would be typed; empty where there is none.
    pub value: String,
    /// A sentence without a full stop.
    pub about: String,
    /// `whole`, `time`, `size`, `flag`, `choice` or `text`.
    pub kind: String,
    /// The words that it can be, if it is a choice.
    pub choices: Vec<String>,
    /// Where the value comes from.
    pub source: String,
}

impl LiveSetting {
    /// All of them, with the values of one model version.
    pub(super) fn all(values: &Values) -> Vec<Self> {
        let live = SETTINGS.iter().filter(|setting| setting.live);
        live.filter_map(|setting| Self::of(setting, values)).collect()
    }

    fn of(setting: &'static Setting, values: &Values) -> Option<Self> {
        let (kind, choices) = kind(setting.kind);
        Some(Self {
            name: setting.name.to_owned(),
            parameter: (*setting.parameter.names.first()?).to_owned(),
            value: values.show(setting).unwrap_or_default(),
            about: setting.about.to_owned(),
            kind: kind.to_owned(),
            choices: choices.iter().map(|&word| word.to_owned()).collect(),
            source: values.source(setting).kind().to_owned(),
        })
    }
}

/// The word for a kind, and the words that a choice can be.
fn kind(kind: SettingKind) -> (&'static str, &'static [&'static str]) {
    match kind {
        SettingKind::Whole { .. } => ("whole", &[]),
        SettingKind::Time(_) => ("time", &[]),
        SettingKind::Size | SettingKind::AutoSize => ("size", &[]),
        SettingKind::Flag => ("flag", &[]),
        SettingKind::Choice(words) => ("choice", words),
        SettingKind::Text
        | SettingKind::Texts
        | SettingKind::Path
        | SettingKind::DeviceMemory
        | SettingKind::Cpus
        | SettingKind::Fraction
        | SettingKind::Share
        | SettingKind::Numbers { .. }
        | SettingKind::Amount
        | SettingKind::Amounts
        | SettingKind::Mapping
        | SettingKind::Weights => ("text", &[]),
    }
}

#[cfg(test)]
mod tests {
    use jitney_settings::SettingSource;
    use jitney_settings::model::MAX_BATCH_SIZE;

    use super::*;

    #[test]
    fn every_live_setting_says_how_it_is_changed() {
        let values = Values::default().with(&MAX_BATCH_SIZE, 32_u32, SettingSource::Live);
        let all = LiveSetting::all(&values);
        let names: Vec<_> = all.iter().map(|it| (&*it.name, &*it.parameter, &*it.kind)).collect();
        assert_eq!(
            names,
            [
                ("max_batch_size", "batch_size", "whole"),
                ("sizes", "sizes", "text"),
                ("max_latency_ms", "max_latency_ms", "time"),
                ("max_batch_delay", "max_batch_delay", "time"),
                ("policy", "policy", "choice"),
                ("tenants", "tenants", "text"),
                ("queue", "job_queue_size", "whole"),
                ("cache", "cache", "text"),
            ]
        );
        assert_eq!((all[0].value.as_str(), all[0].source.as_str()), ("32", "live update"));
        assert_eq!(all[4].choices, ["adaptive", "window", "opportunistic"]);
    }
}
