//! What is logged: the meaning of a filter such as `info,jitney_engine=debug`, what is wrong with one, and
//! how it is changed while the server runs.

use std::str::FromStr as _;
use std::sync::{Mutex, PoisonError};

use jitney_settings::did_you_mean;
use jitney_telemetry::LogFilter;
use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::layer::{Style, WORKER_OUTPUT};

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// The parts of this program whose lines can be chosen.
const PARTS: [&str; 9] = [
    "jitney",
    "jitney_engine",
    "jitney_server",
    "jitney_net",
    "jitney_telemetry",
    "jitney_store",
    "jitney_onnx",
    "jitney_load",
    WORKER_OUTPUT,
];

/// A layer that lets through what the filter says, and the filter to change it by.
pub fn reloadable(
    text: &str,
    style: &Style,
) -> Result<(reload::Layer<EnvFilter, Registry>, LiveFilter), String> {
    let (layer, handle) = reload::Layer::new(parse(text, style)?);
    Ok((layer, LiveFilter { handle, style: style.clone(), text: Mutex::new(text.to_owned()) }))
}

/// The filter of a running server.
pub struct LiveFilter {
    handle: reload::Handle<EnvFilter, Registry>,
    style: Style,
    /// As it was set last.
    text: Mutex<String>,
}

impl LogFilter for LiveFilter {
    fn level(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        let filter = parse(level, &self.style)?;
        let before = self.level();
        // Under the filter that lets it through, whichever that is.
        let told = tracing::enabled!(Level::INFO);
        if told {
            tracing::info!(before, now = level, "the log level is changed");
        }
        self.handle.reload(filter).map_err(|error| error.to_string())?;
        level.clone_into(&mut self.text.lock().unwrap_or_else(PoisonError::into_inner));
        if !told {
            tracing::info!(before, now = level, "the log level is changed");
        }
        Ok(())
    }
}

/// Reads a filter. What workers print is always logged, unless it says otherwise; lines in TorchServe's
/// words are for its own log only.
pub fn parse(text: &str, style: &Style) -> Result<EnvFilter, String> {
    check(text)?;
    // Spaces after a comma are what people write.
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut all = parts.join(",");
    if !text.contains(WORKER_OUTPUT) {
        all += &format!(",{WORKER_OUTPUT}=info");
    }
    if let Style::Human { .. } = style {
        all += ",jitney::torchserve=off";
    }
    EnvFilter::builder()
        .parse(all)
        .map_err(|error| format!("the log level {text:?} cannot be read: {error}"))
}

/// Finds mistakes that would otherwise make the log silent.
fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!("the log level is empty; {}", known_levels()));
    }
    // Filters by span have a syntax of their own.
    if text.contains(['[', '{']) {
        return Ok(());
    }
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).try_for_each(check_part)
}

/// `info`, `jitney_engine=debug` or `jitney_engine`.
fn check_part(part: &str) -> Result<(), String> {
    let is_level = |word: &str| LevelFilter::from_str(word).is_ok();
    let no_level = |word: &str| {
        let hint = did_you_mean(word, LEVELS).map(|hint| format!("; {hint}"));
        format!("{word:?} is no log level; {}{}", known_levels(), hint.unwrap_or_default())
    };
    match part.split_once('=') {
        Some((target, level)) => {
            if !is_level(level.trim()) {
                return Err(no_level(level.trim()));
            }
            check_target(target.trim())
        }
        None if is_level(part) || part.starts_with("jitney") => Ok(()),
        None => Err(no_level(part)),
    }
}

/// Any library may be named; a name that is nearly one of ours is a mistake.
fn check_target(target: &str) -> Result<(), String> {
    let root = target.split("::").next().unwrap_or_default();
    if PARTS.contains(&root) {
        return Ok(());
    }
    match did_you_mean(root, PARTS).filter(|_| root.starts_with("jit")) {
        Some(hint) => Err(format!("{root:?} is no part of the server; {hint}")),
        None if root.is_empty() => Err(format!("a part is missing before {target:?}")),
        None => Ok(()),
    }
}

fn known_levels() -> &'static str {
    "levels are error, warn, info, debug, trace and off, for all or for a part as in \
     info,jitney_engine=debug"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_and_mistakes_are_named() {
        let human = Style::Human { color: false };
        for text in [
            "info",
            "WARN",
            "info,jitney_engine=debug",
            "off, jitney_server::rest=trace",
            "error,hyper=debug",
            "jitney_engine",
            "info,jitney::worker_output=off",
            "info,[span{field=1}]=debug",
        ] {
            assert!(parse(text, &human).is_ok(), "{text}");
        }
        for (text, mistake) in [
            ("inof", "\"inof\" is no log level; levels are error, warn, info"),
            ("inof", "did you mean `info`?"),
            ("info,x=loud", "\"loud\" is no log level"),
            ("info,jitney_engin=debug", "\"jitney_engin\" is no part of the server; did you mean"),
            (" ", "the log level is empty"),
            ("info,[", "cannot be read"),
        ] {
            let error = parse(text, &human).err().unwrap_or_default();
            assert!(error.contains(mistake), "{text}: {error}");
        }
    }
}
