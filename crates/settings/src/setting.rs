//! The declaration of one setting.

use crate::SettingKind;

/// One configurable value.
#[derive(Debug)]
pub struct Setting {
    /// The name, which is also its key in `jitney.yaml`.
    pub name: &'static str,
    /// The mapping of a YAML document that holds it; none for the top.
    pub section: Option<&'static str>,
    /// Type, unit and bounds.
    pub kind: SettingKind,
    /// The default, as it would be typed.
    pub default: Option<&'static str>,
    /// The default under `jitney torchserve`, where it is another one.
    pub torchserve_default: Option<&'static str>,
    /// What is shown for a default that depends on other things.
    pub default_note: Option<&'static str>,
    /// What it does, in one sentence without a full stop.
    pub about: &'static str,
    /// What stands for its value in help.
    pub placeholder: Option<&'static str>,
    /// The flag of `jitney serve`, without dashes. Its variable has the same name.
    pub flag: Option<&'static str>,
    /// The value of the flag when it is given without one.
    pub bare: Option<&'static str>,
    /// Other names of the flag.
    pub aliases: &'static [&'static str],
    /// Whether `jitney.yaml` may set it.
    pub yaml: bool,
    /// The key of `config.properties`.
    pub property: Option<&'static str>,
    /// What the key of `config.properties` does here.
    pub effect: PropertyEffect,
    /// Whether `TS_<KEY>` sets the property where `enable_envvars_config` is true.
    pub variable: bool,
    /// TorchServe's key of `model-config.yaml`; in a section it may also stand under its own name.
    pub archive: LooseKeys,
    /// The keys of a registration's parameters.
    pub parameter: LooseKeys,
    /// The key in `models={...}` of `config.properties` and in snapshots.
    pub record: Option<&'static str>,
    /// Whether a snapshot holds it only where a caller set it.
    pub record_if_changed: bool,
    /// Whether the parameters also change a live model.
    pub live: bool,
    /// Whether the archive's value wins over the caller's under `jitney torchserve`.
    pub archive_first: bool,
}

/// Keys of a source that is read leniently: what cannot be read counts as not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LooseKeys {
    /// The keys, the first that is set wins; none if the source cannot set it.
    pub names: &'static [&'static str],
    /// A smaller number counts as not set...
    pub min: u64,
    /// ...unless it is raised to the smallest one, and a larger one lowered to the largest.
    pub clamp: bool,
}

impl LooseKeys {
    const NONE: Self = Self { names: &[], min: 0, clamp: false };
}

/// What becomes of a key of `config.properties`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyEffect {
    /// It does what TorchServe documents.
    Acts,
    /// It tunes the Java server; there is nothing here to tune.
    Java,
    /// It does nothing here; this does what it is for.
    Instead(&'static str),
    /// TorchServe writes or ignores it itself.
    Silent,
}

impl Setting {
    /// A setting that no source can set yet.
    pub const fn new(name: &'static str, kind: SettingKind, about: &'static str) -> Self {
        Self {
            name,
            section: None,
            kind,
            default: None,
            torchserve_default: None,
            default_note: None,
            about,
            placeholder: None,
            flag: None,
            bare: None,
            aliases: &[],
            yaml: false,
            property: None,
            effect: PropertyEffect::Acts,
            variable: true,
            archive: LooseKeys::NONE,
            parameter: LooseKeys::NONE,
            record: None,
            record_if_changed: false,
            live: false,
            archive_first: false,
        }
    }

    /// With a default.
    pub(crate) const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// With another default under `jitney torchserve`.
    pub(crate) const fn or_torchserve(mut self, default: &'static str) -> Self {
        self.torchserve_default = Some(default);
        self
    }

    /// With a sentence about its default.
    pub(crate) const fn or_else(mut self, note: &'static str) -> Self {
        self.default_note = Some(note);
        self
    }

    /// The flag may be given without a value, which means this one.
    pub(crate) const fn bare(mut self, value: &'static str) -> Self {
        self.bare = Some(value);
        self
    }

    /// A flag and a variable of `jitney serve`, and a key of `jitney.yaml`.
    pub(crate) const fn flag(mut self, flag: &'static str, placeholder: &'static str) -> Self {
        self.flag = Some(flag);
        self.placeholder = Some(placeholder);
        self.yaml = true;
        self
    }

    /// With other names.
    pub(crate) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// A key of `jitney.yaml` and nothing of the command line.
    pub(crate) const fn in_file(mut self) -> Self {
        self.yaml = true;
        self
    }

    /// In the section `batching` of `jitney.yaml` and of `model-config.yaml`.
    pub(crate) const fn batching(mut self) -> Self {
        self.section = Some("batching");
        self.yaml = true;
        self
    }

    /// In the section `ray` of a model's entry in `jitney.yaml` and of `model-config.yaml`.
    pub(crate) const fn ray(mut self) -> Self {
        self.section = Some("ray");
        self.yaml = true;
        self
    }

    /// A key of `config.properties`.
    pub(crate) const fn property(mut self, key: &'static str) -> Self {
        self.property = Some(key);
        self
    }

    /// A key of `config.properties` that the environment cannot set.
    pub(crate) const fn file_only(mut self) -> Self {
        self.variable = false;
        self
    }

    /// A key that does nothing here.
    pub(crate) const fn effect(mut self, effect: PropertyEffect) -> Self {
        self.effect = effect;
        self
    }

    /// Keys of `model-config.yaml`; smaller numbers than `min` count as not set.
    pub(crate) const fn archive(mut self, names: &'static [&'static str], min: u64) -> Self {
        self.archive = LooseKeys { names, min, clamp: false };
        self
    }

    /// Keys of `model-config.yaml`; smaller numbers than `min` are raised to it.
    pub(crate) const fn archive_clamped(
        mut self,
        names: &'static [&'static str],
        min: u64,
    ) -> Self {
        self.archive = LooseKeys { names, min, clamp: true };
        self
    }

    /// Parameters of a registration; smaller numbers than `min` count as not set.
    pub(crate) const fn parameter(mut self, names: &'static [&'static str], min: u64) -> Self {
        self.parameter = LooseKeys { names, min, clamp: false };
        self
    }

    /// Parameters of a registration, which also change a live model.
    pub(crate) const fn live(mut self, names: &'static [&'static str], min: u64) -> Self {
        self.live = true;
        self.parameter(names, min)
    }

    /// The key in `models={...}` and in snapshots.
    pub(crate) const fn record(mut self, key: &'static str) -> Self {
        self.record = Some(key);
        self
    }

    /// The key in `models={...}`, and in snapshots where a caller set it.
    pub(crate) const fn record_if_changed(mut self, key: &'static str) -> Self {
        self.record_if_changed = true;
        self.record(key)
    }

    /// The archive's value wins under `jitney torchserve`.
    pub(crate) const fn archive_first(mut self) -> Self {
        self.archive_first = true;
        self
    }

    /// The key in a YAML document: its own name, in its section.
    pub fn path(&self) -> String {
        self.section.map_or(self.name.to_owned(), |section| format!("{section}.{}", self.name))
    }

    /// Whether a flag, a variable or a key of `jitney.yaml` of this name means it. Dashes and
    /// underscores are the same.
    pub fn is_called(&self, word: &str) -> bool {
        let word = word.replace('-', "_");
        let mut flags = self.flag.iter().chain(self.aliases);
        self.name == word || flags.any(|flag| flag.replace('-', "_") == word)
    }

    /// The variable of `jitney serve`.
    pub fn jitney_variable(&self) -> Option<String> {
        self.flag.map(|flag| format!("JITNEY_{}", flag.to_uppercase().replace('-', "_")))
    }

    /// The variable of `jitney torchserve`, for keys that have one.
    pub fn torchserve_variable(&self) -> Option<String> {
        let key = self.property.filter(|_| self.variable)?;
        Some(match key {
            "token_expiration_min" => "TS_TOKEN_EXPIRATION_TIME_MIN".to_owned(),
            key => format!("TS_{}", key.trim_start_matches("ts_").to_uppercase()),
        })
    }
}

/// Declares settings: a name for each, and a table of all of them.
macro_rules! settings {
    ($(#[$doc:meta])* $table:ident: $($name:ident = $setting:expr;)*) => {
        $(
            #[doc = concat!("The setting `", stringify!($name), "`; see its declaration.")]
            pub static $name: Setting = $setting;
        )*
        $(#[$doc])*
        pub static $table: &[&Setting] = &[$(&$name),*];
    };
}
pub(crate) use settings;
