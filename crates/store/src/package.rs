//! A model, ready to be registered: its directory, and what its manifest, its YAML and its API
//! description say.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jitney_settings::{SettingSource, Values, from_archive};
use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use super::endpoint_api::{HttpPaths, MetricName, RequestSizes};
use super::error::StoreError;
use super::fetch::FetchedFile;
use super::manifest::Manifest;
use super::shown_url::ShownUrl;
use super::stock_definition;
use super::tensor_specs::PackedTensors;
use super::unpack::{MANIFEST_DIRECTORY, ModelDir};

/// A manifest or a model's YAML is read into memory, so its size is limited.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// What the code of a model without a manifest needs. It is added to what the server's Python has.
pub const CODE_REQUIREMENTS: &str = "code/requirements.txt";

/// Where such a model has its settings.
const CODE_CONFIG: &str = "code/model-config.yaml";

/// What [`Store::open`](super::Store::open) gives. Dropping it removes an unpacked copy.
#[derive(Debug)]
pub struct Package {
    /// The url that it was opened by, as the caller gave it.
    pub url: ShownUrl,
    /// Where its files are.
    pub dir: ModelDir,
    /// The manifest, or the default one where the model has none.
    pub manifest: Manifest,
    /// The manifest as it stands in the archive, for the handler; `{}` if there is none.
    pub manifest_json: Value,
    /// The settings in the model's YAML; its other keys are the handler's.
    pub settings: Values,
    /// The YAML with every key in its order, for the handler; `{}` if there is none.
    pub yaml_json: Value,
    /// The description of its API, if it is a definition.
    pub api: Option<Api>,
    /// What an archive declares of its tensors.
    pub tensors: Option<PackedTensors>,
    /// The archive that it was unpacked from; none for a directory.
    pub archive: Option<PathBuf>,
    /// The archive that was fetched into the store for this model and leaves with it.
    pub downloaded: Option<FetchedFile>,
}

impl Package {
    /// Reads manifest, YAML and API description.
    pub(super) fn read(url: &str, dir: ModelDir) -> Result<Self, StoreError> {
        let manifest_json = read_manifest(dir.path())?;
        let mut manifest = Manifest::from_json(&manifest_json)?;
        // A model without a manifest may have its code apart, as SageMaker's have it.
        if manifest == Manifest::default() {
            let there = |file: &&str| dir.path().join(file).is_file();
            manifest.requirements_file = Some(CODE_REQUIREMENTS).filter(there).map(str::to_owned);
            manifest.config_file = Some(CODE_CONFIG).filter(there).map(str::to_owned);
        }
        let mut yaml_map = match &manifest.config_file {
            Some(file) => read_yaml(&dir.path().join(file))?,
            None => Map::new(),
        };
        let described = Api::read(dir.path());
        let stock = || {
            let handler = manifest.handler.as_deref()?;
            let http = stock_definition::recognise(handler, dir.path(), &mut yaml_map)?;
            Some(Api { endpoints: http.raw.clone(), http, ..Api::default() })
        };
        let api = described.or_else(stock);
        let url = ShownUrl::of(url);
        let source = SettingSource::Archive(url.to_string());
        let (settings, warnings) = from_archive(&yaml_map, &source);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let tensors = api.is_none().then(|| PackedTensors::of_archive(&yaml_map)).flatten();
        Ok(Self {
            url,
            dir,
            manifest,
            manifest_json,
            settings,
            yaml_json: Value::Object(yaml_map),
            archive: None,
            downloaded: None,
            api,
            tensors,
        })
    }

    /// Whether it may be compiled before it is run: its YAML has TorchServe's section about that.
    pub fn may_compile(&self) -> bool {
        self.yaml_json.get("pt2").is_some_and(|section| !section.is_null())
    }

    /// Whether the model brings settings of its own.
    pub fn has_yaml(&self) -> bool {
        self.yaml_json.as_object().is_some_and(|yaml| !yaml.is_empty())
    }
}

fn read_manifest(dir: &Path) -> Result<Value, StoreError> {
    match read_text(&dir.join(MANIFEST_DIRECTORY).join("MANIFEST.json")) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| StoreError::InvalidManifest(error.to_string())),
        Err(error) if is_absent(&error) => Ok(Value::Object(Map::new())),
        Err(error) => Err(StoreError::InvalidManifest(error.to_string())),
    }
}

/// A model that names a YAML has one; serving it without its settings would not be the same model.
fn read_yaml(path: &Path) -> Result<Map<String, Value>, StoreError> {
    let text = read_text(path).map_err(|error| {
        let file = path.file_name().unwrap_or_default().display();
        StoreError::InvalidConfig(format!("cannot read {file}: {error}"))
    })?;
    parse_yaml(&text)
}

/// Reads a document as PyYAML would: `yes` is a flag, `010` is eight, of two equal keys the later
/// one counts. An empty document is an empty mapping. A document that is
/// no YAML is an error: guessing its meaning would serve a model with settings that were never chosen.
pub fn parse_yaml(text: &str) -> Result<Map<String, Value>, StoreError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        legacy_octal_numbers: true,
        emit_comments: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(StoreError::InvalidConfig("it is not a mapping".to_owned())),
        Err(error) => Err(StoreError::InvalidConfig(error.to_string())),
    }
}

/// `MAR-INF` may be missing, or be a file of that name.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Only regular files are opened: a pipe in a directory served in place would block for ever.
pub fn read_text(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    let read = File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > TEXT_BYTES_MAX {
        Err(io::Error::other(format!("it has more than {TEXT_BYTES_MAX} bytes")))
    } else {
        Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
    }
}

/// The file in the model's directory.
const API_FILE: &str = "jitney-api.json";

/// What a model says about its own API: `jitney-api.json`, which definitions in Python bring. The
/// server repeats it to clients. One that cannot be read costs the description, not the model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Api {
    /// The endpoints, by the name that follows the model's in a path.
    pub endpoints: Vec<String>,
    /// Most items in a call of those that take batches.
    pub batch_sizes: BTreeMap<String, u32>,
    /// The latencies to keep, where not all endpoints have the same.
    pub latencies_ms: BTreeMap<String, f64>,
    /// How the sizes of requests are read, by endpoint, where there is anything to read.
    pub sizes: BTreeMap<String, RequestSizes>,
    /// What they take and give in tensors, by endpoint.
    pub tensors: BTreeMap<String, PackedTensors>,
    /// The endpoints that answer as OpenAI's do, by the name of the latter: `embeddings`.
    pub openai: BTreeMap<String, String>,
    /// Models that a worker keeps of those that it loads when a request asks for them; 0 if it loads none.
    pub multiplexed: u32,
    /// Whether it is a model of Triton's Python backend: it is told the parameters of requests, and streams tensors.
    #[serde(skip)]
    pub triton: bool,
    /// The paths that it answers beside those of its name.
    pub http: HttpPaths,
    /// Other names under which the items per batch of an endpoint are shown, by endpoint.
    pub metrics: BTreeMap<String, Vec<MetricName>>,
    /// OpenAPI path items by path.
    pub paths: Map<String, Value>,
    /// The classes that they name, by name.
    pub schemas: Map<String, Value>,
    /// The models that it calls.
    pub depends: Vec<Dependency>,
    /// How it answers by calling them, where it does nothing else.
    pub wiring: Option<Wiring>,
}

/// How a model without code of its own makes an answer of those that it calls.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wiring {
    /// The answer of one of them, by its place in [`Api::depends`].
    Part(usize),
    /// One after another; each gets what the one before it gave.
    Chain(Vec<Wiring>),
    /// Side by side, with the same arguments; the answer is the list of theirs.
    FanOut(Vec<Wiring>),
    /// The same with a name for each answer.
    Named(Vec<(String, Wiring)>),
}

impl Wiring {
    /// The places of all models in it.
    pub fn parts(&self) -> Vec<usize> {
        match self {
            Self::Part(at) => vec![*at],
            Self::Chain(inner) | Self::FanOut(inner) => {
                inner.iter().flat_map(Self::parts).collect()
            }
            Self::Named(inner) => inner.iter().flat_map(|(_, one)| one.parts()).collect(),
        }
    }
}

/// A model that another one calls.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Dependency {
    /// What the caller calls it.
    #[serde(default)]
    pub slot: String,
    /// Its name.
    pub model: String,
    /// Its version; none for whichever answers by default.
    #[serde(default)]
    pub version: Option<String>,
}

impl Dependency {
    /// Whether this is the model, in one of the versions that may answer.
    pub fn is(&self, model: &str, version: &str) -> bool {
        self.model == model && self.version.as_deref().is_none_or(|called| called == version)
    }
}

impl Api {
    /// Reads the description, if the model has one.
    fn read(dir: &Path) -> Option<Self> {
        let text = read_text(&dir.join(API_FILE)).ok()?;
        let read = serde_json::from_str(&text);
        read.inspect_err(
            |error| tracing::warn!(%error, "{API_FILE} is no API description, ignored"),
        )
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_and_a_broken_one_ignored() {
        let dir = tempfile::tempdir().expect("directory");
        assert_eq!(Api::read(dir.path()), None);
        let file = dir.path().join(API_FILE);
        std::fs::write(&file, r#"{"endpoints": ["a"], "paths": {"/m": {}}, "depends": [{"slot": "s", "model": "n"}]}"#).expect("file");
        let api = Api::read(dir.path()).expect("reads");
        assert_eq!((api.endpoints, api.paths.len()), (vec!["a".to_owned()], 1));
        let [called] = &api.depends[..] else { panic!("{:?}", api.depends) };
        assert!(called.is("n", "1") && !called.is("m", "1"));
        std::fs::write(&file, "{").expect("file");
        assert_eq!(Api::read(dir.path()), None);
    }
}
