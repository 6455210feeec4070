//! An application: a definition with the parts that it calls, each of which is a model of its own.
//!
//! Parts are registered before whoever calls them, and removed after it. Either all of them are
//! registered or none. What the command line says is about the application itself; its parts have their
//! own settings, and those that the configuration file gives them.

use std::sync::Arc;

use jitney_engine::error::RegisterError;
use jitney_engine::settings::RegisterOptions;
use jitney_engine::{Engine, Model, Registered};
use tokio::task::JoinSet;

use crate::definition::{Packed, PackedPart, Packer};
use crate::failure::Failure;
use crate::plan::Startup;

/// What is about to be registered: a model, or a definition with its parts.
pub struct Prepared {
    /// The registrations of its parts, the first to start first.
    pub parts: Vec<(String, RegisterOptions)>,
    /// Its own.
    pub root: RegisterOptions,
    /// What was packed, for a definition.
    pub packed: Option<Packed>,
}

/// Models that were registered together.
pub struct RegisteredParts {
    /// Those that the last one calls, directly or not.
    pub parts: Vec<Registered>,
    /// The model that was asked for.
    pub root: Registered,
}

/// Makes the registration of a model; a folder of a bucket is fetched first, and a Python definition packed.
pub async fn prepare(startup: &Startup, packer: &Packer) -> Result<Prepared, Failure> {
    let fetched = packer.fetched(startup).await?;
    let startup = fetched.as_ref();
    if startup.definition.is_none() {
        check_parts(startup, &[])?;
        return Ok(Prepared { parts: Vec::new(), root: startup.options(), packed: None });
    }
    let packed = packer.pack(startup, startup.version.as_deref()).await?;
    prepared(startup, packed)
}

/// The registrations of a packed definition.
pub fn prepared(startup: &Startup, packed: Packed) -> Result<Prepared, Failure> {
    check_parts(startup, &packed.parts)?;
    let url = packed.model.to_string_lossy().into_owned();
    let root = RegisterOptions { url, version: None, ..startup.options() };
    let part = |part: &PackedPart| {
        let settings = startup.parts.get(&part.name).cloned().unwrap_or_default();
        let url = part.directory.to_string_lossy().into_owned();
        let options =
            RegisterOptions { url, settings, at_startup: true, part: true, ..Default::default() };
        (part.name.clone(), options)
    };
    let parts = packed.parts.iter().map(part).collect();
    Ok(Prepared { parts, root, packed: Some(packed) })
}

/// Whether every part that the configuration names is there.
fn check_parts(startup: &Startup, parts: &[PackedPart]) -> Result<(), Failure> {
    let is_there = |name: &&String| parts.iter().any(|part| part.name == **name);
    let Some(unknown) = startup.parts.keys().find(|name| !is_there(name)) else { return Ok(()) };
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let hint = match names.is_empty() {
        true => "it is not made of parts".to_owned(),
        false => format!("its parts: {}", names.join(", ")),
    };
    Err(Failure::usage(format!("{} has no part `{unknown}`", startup.shown())).hint(hint))
}

/// Registers a model with its parts, without workers. A failure leaves none of them behind.
pub async fn register(
    engine: &Engine,
    startup: &Startup,
    prepared: Prepared,
) -> Result<(RegisteredParts, Option<Packed>), Failure> {
    let Prepared { parts: wanted, root, packed } = prepared;
    let mut parts = Vec::new();
    for (name, options) in wanted {
        match engine.register(options).await {
            Ok(registered) => parts.push(registered),
            Err(error) => {
                remove(engine, parts.iter().map(|part| &part.model)).await;
                let shown = startup.shown();
                let failed = format!("cannot load {shown}: its part {name}: {error}");
                let hint = "a part of another application has this name; jitney.bind(…, name=\"…\") \
                            gives it another";
                let taken = matches!(error, RegisterError::Conflict { .. });
                return Err(Failure::failed(failed).maybe_hint(taken.then(|| hint.to_owned())));
            }
        }
    }
    match engine.register(root).await {
        Ok(root) => Ok((RegisteredParts { parts, root }, packed)),
        Err(error) => {
            remove(engine, parts.iter().map(|part| &part.model)).await;
            Err(Failure::failed(format!("cannot load {}: {error}", startup.shown())))
        }
    }
}

impl RegisteredParts {
    /// Starts the workers of all, and waits until they are ready.
    ///
    /// # Errors
    /// What could not be loaded, and why.
    pub async fn start(&self) -> Result<(), String> {
        let mut starting = JoinSet::new();
        for Registered { model, workers_min, workers_max } in &self.parts {
            let (model, min, max) = (Arc::clone(model), *workers_min, *workers_max);
            starting.spawn(async move {
                let ready = model.scale(min, max).await;
                ready.map_err(|error| format!("its part {}: {error}", model.name()))
            });
        }
        while let Some(started) = starting.join_next().await {
            started.map_err(|panic| panic.to_string())??;
        }
        let Registered { model, workers_min, workers_max } = &self.root;
        model.scale(*workers_min, *workers_max).await.map_err(|error| error.to_string())
    }

    /// Lets all of them answer where no version is named.
    ///
    /// # Errors
    /// One of them is gone.
    pub fn set_default(&self, engine: &Engine) -> Result<(), String> {
        let all = self.parts.iter().chain([&self.root]).map(|registered| &registered.model);
        for model in all {
            let set = engine.set_default(model.name(), model.version());
            set.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Removes all of them, who calls others first.
    pub async fn remove(&self, engine: &Engine) {
        let parts = self.parts.iter().rev().map(|part| &part.model);
        remove(engine, [&self.root.model].into_iter().chain(parts)).await;
    }
}

async fn remove(engine: &Engine, models: impl Iterator<Item = &Arc<Model>>) {
    for model in models {
        remove_version(engine, model.name(), model.version()).await;
    }
}

/// Removes a version; its requests are answered first.
pub async fn remove_version(engine: &Engine, name: &str, version: &str) {
    if let Err(error) = engine.unregister(name, Some(version)).await {
        tracing::warn!(model = name, version, %error, "the version was not removed");
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jitney_settings::model::WORKERS;
    use jitney_settings::{SettingSource, Values};

    use super::*;

    fn packed(parts: &[&str]) -> Packed {
        let part = |name: &&str| PackedPart {
            name: (*name).to_owned(),
            version: "1.0".to_owned(),
            directory: PathBuf::from(format!("/d.{name}")),
        };
        let parts = parts.iter().map(part).collect();
        Packed { version: "1.0".to_owned(), sources: Vec::new(), parts, model: "/d".into() }
    }

    fn startup(part: &str) -> Startup {
        let mut values = Values::default();
        values.set(&WORKERS, 3_u32, SettingSource::Live);
        let parts = [(part.to_owned(), values)].into();
        Startup { parts, ..Startup::named("whole", "app.py:App") }
    }

    #[test]
    fn parts_have_their_own_names_and_settings() {
        let made = prepared(&startup("b"), packed(&["a", "b"])).unwrap();
        assert_eq!(
            (made.root.url.as_str(), made.root.model_name.as_deref()),
            ("/d", Some("whole"))
        );
        let [(first, a), (second, b)] = &made.parts[..] else { panic!("two parts") };
        assert_eq!((first.as_str(), second.as_str()), ("a", "b"));
        assert_eq!(
            (a.settings.has(&WORKERS), b.settings.show(&WORKERS).as_deref()),
            (false, Some("3"))
        );
        assert_eq!((b.url.as_str(), b.model_name.as_deref(), b.at_startup), ("/d.b", None, true));
    }

    #[test]
    fn a_part_that_is_not_there_is_an_error() {
        let failure = prepared(&startup("c"), packed(&["a", "b"])).err().unwrap();
        let shown = failure.to_string();
        assert!(shown.contains("has no part `c`") && shown.contains("its parts: a, b"), "{shown}");
    }
}
