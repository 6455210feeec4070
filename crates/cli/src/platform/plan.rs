//! What a platform says about a server, as values. Who reads it from the variables is beside this file.

use jitney_engine::store::ShownUrl;
use jitney_server::RouteAliases;
use jitney_settings::server::{HOST, INFERENCE_PORT, MANAGEMENT_HOST};
use jitney_settings::{Setting, SettingSource, Values};

use crate::env::Env;
use crate::failure::Failure;
use crate::flags::serve::Platform;
use crate::plan::Startup;

/// A platform, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// Which one.
    pub platform: Platform,
    /// The variable, the folder or the flag.
    pub by: String,
}

/// What a platform says about a server.
#[derive(Clone, Debug, Default)]
pub struct PlatformPlan {
    /// What its variables set: over the configuration file.
    pub above: Values,
    /// What is right on it unless somebody says otherwise: below the configuration file.
    pub below: Values,
    /// What is served where nobody names a model.
    pub models: Vec<Startup>,
    /// Where the models come from, for the log.
    pub artifacts: Option<String>,
    /// Warnings for the log.
    pub remarks: Vec<String>,
    /// What its listeners and workers are, if it is SageMaker.
    pub sagemaker: Option<SagemakerRole>,
    /// Paths that it chose for predictions and for health.
    pub aliases: RouteAliases,
}

/// What a SageMaker endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SagemakerRole {
    /// The model of the container.
    OneModel,
    /// Models that SageMaker loads and unloads through the port for predictions.
    ManyModels,
}

/// A container is asked from outside; management stays on its own address.
pub(super) fn in_container() -> Values {
    Values::default().with(&HOST, "0.0.0.0".to_owned(), SettingSource::Default).with(
        &MANAGEMENT_HOST,
        "127.0.0.1".to_owned(),
        SettingSource::Default,
    )
}

impl PlatformPlan {
    /// One line for the log. A port that is not the platform's is a warning: it would not be found there.
    pub fn describe(&mut self, detected: &Detected, values: &Values) -> String {
        let port: u16 = values.value(&INFERENCE_PORT);
        let mut told = [&self.above, &self.below].into_iter();
        let told = told.find(|values| values.has(&INFERENCE_PORT));
        let given = told.and_then(|told| told.read::<u16>(&INFERENCE_PORT));
        if let (Some(told), Some(given)) = (told, given.filter(|given| *given != port)) {
            let source = told.source(&INFERENCE_PORT);
            let place = if let SettingSource::Variable(name) = source {
                format!("{name}={given}")
            } else {
                given.to_string()
            };
            let source = values.source(&INFERENCE_PORT);
            self.remarks.push(format!("port {port} ({source}) is not the platform's: {place}"));
        }
        let Detected { platform, by } = detected;
        let folder = self.artifacts.as_ref().map(|at| format!(", folder {}", ShownUrl::of(at)));
        format!("platform {} by {by}: port {port}{}", platform.name(), folder.unwrap_or_default())
    }
}

/// Takes the value of a variable for a setting, if it is set.
pub fn take(
    env: &Env,
    name: &str,
    setting: &Setting,
    values: &mut Values,
) -> Result<bool, Failure> {
    let Some(text) = env.text(name).filter(|text| !text.is_empty()) else { return Ok(false) };
    let wrong = |expected| Failure::usage(format!("{name} must be {expected}, not {text:?}"));
    let value = setting.kind.parse(text).map_err(wrong)?;
    values.set(setting, value, SettingSource::Variable(name.to_owned()));
    Ok(true)
}
