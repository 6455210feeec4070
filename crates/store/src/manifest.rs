//! The manifest of an archive.
//!
//! It is read as leniently as TorchServe reads it: every field may be missing, unknown ones are ignored, numbers pass
//! for text. The names of files are checked once, here.

use serde_json::{Map, Value};

use super::error::StoreError;
use super::jail::stays_inside;

/// What the frontend takes from a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// What runs the handler.
    pub runtime: Runtime,
    /// The model's name; without one the caller has to give it.
    pub model_name: Option<String>,
    /// The model's version, if it has one; see [`Manifest::version`].
    pub model_version: Option<String>,
    /// `file.py`, `module`, either with `:function`, or the name of a stock handler.
    pub handler: Option<String>,
    /// The weights.
    pub serialized_file: Option<String>,
    /// The model's architecture, in Python.
    pub model_file: Option<String>,
    /// What pip should install.
    pub requirements_file: Option<String>,
    /// The model's YAML.
    pub config_file: Option<String>,
    /// What the handler's input and output are wrapped in.
    pub envelope: Option<String>,
}

impl Manifest {
    /// The version that the model is registered under.
    pub fn version(&self) -> &str {
        self.model_version.as_deref().unwrap_or("1.0")
    }

    /// Reads the fields of a manifest document.
    pub(super) fn from_json(document: &Value) -> Result<Self, StoreError> {
        let top = object(document, "it")?;
        let none = Map::new();
        let model = match top.get("model") {
            None | Some(Value::Null) => &none,
            Some(model) => object(model, "model")?,
        };
        let runtime = text(top, "runtime")?;
        Ok(Self {
            runtime: runtime.map_or(Ok(Runtime::default()), |word| Runtime::parse(&word))?,
            model_name: text(model, "modelName")?,
            model_version: text(model, "modelVersion")?,
            // A handler names a file too, in front of its function.
            handler: inside(model, "handler", |name| name.split(':').next().unwrap_or(name))?,
            serialized_file: file(model, "serializedFile")?,
            model_file: file(model, "modelFile")?,
            requirements_file: file(model, "requirementsFile")?,
            config_file: file(model, "configFile")?,
            envelope: text(model, "envelope")?,
        })
    }
}

/// What runs a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// `python`: whatever Python is configured.
    #[default]
    Python,
    /// `python3`.
    Python3,
    /// `LSP`: TorchServe's C++ backend.
    Lsp,
}

impl Runtime {
    /// Reads the name in a manifest or in a registration.
    pub fn parse(word: &str) -> Result<Self, StoreError> {
        [Self::Python, Self::Python3, Self::Lsp]
            .into_iter()
            .find(|runtime| runtime.as_str() == word)
            .ok_or_else(|| StoreError::InvalidRuntime(word.to_owned()))
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Python3 => "python3",
            Self::Lsp => "LSP",
        }
    }
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, StoreError> {
    value.as_object().ok_or_else(|| StoreError::InvalidManifest(format!("{what} is not an object")))
}

/// Text, or a number or flag that passes for text; empty text is as good as none.
fn text(map: &Map<String, Value>, key: &str) -> Result<Option<String>, StoreError> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
        Some(Value::Array(_) | Value::Object(_)) => {
            Err(StoreError::InvalidManifest(format!("{key} is not text")))
        }
    }
}

fn file(map: &Map<String, Value>, key: &str) -> Result<Option<String>, StoreError> {
    inside(map, key, |name| name)
}

/// Text of which this part is the name of a file.
fn inside(
    map: &Map<String, Value>,
    key: &str,
    part: fn(&str) -> &str,
) -> Result<Option<String>, StoreError> {
    let name = text(map, key)?;
    if name.as_deref().map(part).is_none_or(stays_inside) {
        Ok(name)
    } else {
        Err(StoreError::InvalidManifest(format!("{key} points outside the archive")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_is_read_and_unknown_ones_are_ignored() {
        let document = json!({
            "createdOn": "01/01/2024 00:00:00", "runtime": "python3", "archiverVersion": "0.12.0",
            "extensions": {"a": 1},
            "model": {
                "modelName": "m", "modelVersion": "2.5", "handler": "talk.py:greet",
                "serializedFile": "w.pt", "modelFile": "net.py", "requirementsFile": "req.txt",
                "configFile": "model-config.yaml", "envelope": "json", "colour": "red",
            },
        });
        let manifest = Manifest::from_json(&document).unwrap();
        let expected = Manifest {
            runtime: Runtime::Python3,
            model_name: Some("m".into()),
            model_version: Some("2.5".into()),
            handler: Some("talk.py:greet".into()),
            serialized_file: Some("w.pt".into()),
            model_file: Some("net.py".into()),
            requirements_file: Some("req.txt".into()),
            config_file: Some("model-config.yaml".into()),
            envelope: Some("json".into()),
        };
        assert_eq!(manifest, expected);
    }

    #[test]
    fn a_sparse_manifest_is_python_version_one() {
        for document in [json!({}), json!({"model": {}}), json!({"model": null, "runtime": null})] {
            let manifest = Manifest::from_json(&document).unwrap();
            assert_eq!(manifest, Manifest::default());
            assert_eq!((manifest.version(), manifest.runtime.as_str()), ("1.0", "python"));
        }
    }

    #[test]
    fn numbers_pass_for_text_and_empty_text_for_nothing() {
        let document = json!({"model": {"modelVersion": 1.0, "modelName": ""}});
        let manifest = Manifest::from_json(&document).unwrap();
        assert_eq!((manifest.version(), &manifest.model_name), ("1.0", &None));
    }

    #[test]
    fn things_that_are_no_manifest_are_rejected() {
        for document in [
            json!([]),
            json!("m"),
            json!({"model": 3}),
            json!({"model": {"modelName": ["m"]}}),
            json!({"model": {"configFile": "../../etc/passwd"}}),
            json!({"model": {"serializedFile": "/etc/passwd"}}),
            json!({"model": {"modelFile": "a\0b"}}),
            json!({"model": {"handler": "../handler.py:handle"}}),
        ] {
            let error = Manifest::from_json(&document).unwrap_err();
            assert!(matches!(error, StoreError::InvalidManifest { .. }), "{document}: {error}");
        }
    }

    #[test]
    fn an_unknown_runtime_is_named() {
        let error = Manifest::from_json(&json!({"runtime": "ruby"})).unwrap_err();
        let expected = "Runtime is not defined or invalid. The manifest says \"ruby\", not python.";
        assert_eq!(error.to_string(), expected);
        assert_eq!(Runtime::parse("LSP").unwrap(), Runtime::Lsp);
    }
}
