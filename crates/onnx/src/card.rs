//! The card beside a model: an optional YAML file that describes how a request becomes tensors and how
//! outputs become an answer, without a line of Python. Unknown keys are rejected with
//! the nearest known one, since a silently ignored key is a wrong answer later. A card can only
//! name files that lie beside it.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::file_bytes::FileBytes;
use super::hint;
use super::labels::Ranking;
use super::padding::PaddingRule;
use super::prepare::{IMAGE_KEYS, ImageRule, Preparation, TEXT_KEYS, TextRule};
use jitney_engine::local::Signature;

const CARD_KEYS: &[&str] = &[
    "name",
    "version",
    "input",
    "image",
    "text",
    "output",
    "labels",
    "top",
    "softmax",
    "max_batch_size",
    "split",
    "padding",
];
const PADDING_KEYS: &[&str] = &["dimension", "values"];
const INPUT_KINDS: &[(&str, &[&str])] = &[
    ("tensors", &["kind"]),
    ("file-bytes", &["kind", "begin", "end", "block", "strip", "padding"]),
];
const OUTPUT_KINDS: &[(&str, &[&str])] =
    &[("tensors", &["kind"]), ("labels", &["kind", "labels", "top", "softmax"])];

/// What a card describes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// The model's name; the file's own where absent.
    pub name: Option<String>,
    /// The model's version.
    pub version: Option<String>,
    /// How a request becomes tensors.
    pub input: InputKind,
    /// How outputs become an answer.
    pub output: OutputKind,
    /// Most items in a batch.
    pub max_batch_size: Option<u32>,
    /// Whether all items of a request must stay in one batch (`split: false`), as for a model that
    /// relates them to each other.
    pub atomic: bool,
    /// Whether and how items of different length may share a batch.
    pub padding: Option<PaddingRule>,
}

/// How a request becomes tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum InputKind {
    /// The client sends tensors as JSON.
    #[default]
    Tensors,
    /// The body is a file of any kind.
    FileBytes(FileBytes),
    /// The body is an image.
    Image(ImageRule),
    /// The body is a text.
    Text(TextRule),
}

impl InputKind {
    /// How bodies become tensors of this model, where the card asks for it; a sentence where the two do
    /// not fit.
    pub(super) fn fit(&self, signature: &Signature) -> Result<Option<Preparation>, String> {
        Ok(match self {
            Self::Tensors | Self::FileBytes(_) => None,
            Self::Image(rule) => Some(Preparation::Image(rule.fit(signature)?)),
            Self::Text(rule) => Some(Preparation::Text(rule.fit(signature)?)),
        })
    }
}

/// How outputs become an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OutputKind {
    /// The tensors themselves.
    #[default]
    Tensors,
    /// Labels.
    Labels(Ranking),
}

#[derive(Deserialize)]
struct Root {
    name: Option<String>,
    version: Option<CardVersion>,
    input: Option<Map<String, Value>>,
    image: Option<Map<String, Value>>,
    text: Option<Map<String, Value>>,
    output: Option<Map<String, Value>>,
    labels: Option<String>,
    top: Option<usize>,
    softmax: Option<bool>,
    max_batch_size: Option<u32>,
    split: Option<bool>,
    padding: Option<Map<String, Value>>,
}

/// YAML reads `version: 1.0` as a number; both spellings mean the same text.
#[derive(Deserialize)]
#[serde(untagged)]
enum CardVersion {
    Text(String),
    Number(serde_json::Number),
}

#[derive(Deserialize)]
struct Labels {
    labels: String,
    #[serde(default = "five")]
    top: usize,
    #[serde(default)]
    softmax: bool,
}

fn five() -> usize {
    5
}

impl Card {
    /// Reads a card from its file; files that it names are looked for beside it.
    ///
    /// # Errors
    /// A sentence saying what is wrong with the card.
    pub fn read(path: &Path) -> Result<Self, String> {
        let yaml = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&yaml, |file| {
            let path = beside(path, Path::new(file))?;
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        })
    }

    /// Reads a card from its text; `beside` gives the text of the files that it names.
    ///
    /// # Errors
    /// A sentence saying what is wrong with the card.
    pub fn parse(
        yaml: &str,
        beside: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let root: Map<String, Value> =
            serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        only_known(&root, CARD_KEYS, "")?;
        let root: Root = typed(root, "the card")?;
        Ok(Self {
            name: root.name,
            version: root.version.map(|version| match version {
                CardVersion::Text(text) => text,
                CardVersion::Number(number) => number.to_string(),
            }),
            input: match (root.input, root.image, root.text) {
                (input, None, None) => input_kind(input)?,
                (None, Some(image), None) => InputKind::Image(section(image, IMAGE_KEYS, "image")?),
                (None, None, Some(text)) => {
                    let text: TextRule = section(text, TEXT_KEYS, "text")?;
                    lies_beside(&text.tokenizer, "text.tokenizer")?;
                    InputKind::Text(text)
                }
                _ => return Err("input, image and text: a card has only one of them".to_owned()),
            },
            output: match (root.output, root.labels) {
                (None, Some(labels)) => {
                    let (top, softmax) = (root.top.unwrap_or(5), root.softmax == Some(true));
                    ranking(Labels { labels, top, softmax }, "labels", beside)?
                }
                (Some(_), Some(_)) => {
                    return Err("output and labels: a card has only one of them".to_owned());
                }
                _ if root.top.is_some() || root.softmax.is_some() => {
                    return Err("top and softmax need labels".to_owned());
                }
                (output, None) => output_kind(output, beside)?,
            },
            max_batch_size: root.max_batch_size,
            atomic: root.split == Some(false),
            padding: root.padding.map(padding_rule).transpose()?,
        })
    }
}

fn input_kind(section: Option<Map<String, Value>>) -> Result<InputKind, String> {
    let Some(section) = section else { return Ok(InputKind::Tensors) };
    if kind_of(&section, INPUT_KINDS, "input")? == "tensors" {
        return Ok(InputKind::Tensors);
    }
    let features: FileBytes = typed(section, "input")?;
    if features.begin.max(features.end) > features.block {
        return Err("input: begin and end must not pass block".to_owned());
    }
    Ok(InputKind::FileBytes(features))
}

fn padding_rule(padding: Map<String, Value>) -> Result<PaddingRule, String> {
    section(padding, PADDING_KEYS, "padding")
}

/// A section that has no kinds.
fn section<T: for<'de> Deserialize<'de>>(
    section: Map<String, Value>,
    known: &[&str],
    place: &str,
) -> Result<T, String> {
    only_known(&section, known, &format!("{place}."))?;
    typed(section, place)
}

/// Whether a file's name leads nowhere else.
fn lies_beside(file: &Path, place: &str) -> Result<(), String> {
    let normal = |part| matches!(part, Component::Normal(_));
    if file.components().all(normal) && file.components().next().is_some() {
        return Ok(());
    }
    Err(format!("{place}: {file:?} does not lie beside the card"))
}

/// Where a file lies that a card names: in the card's directory or below, links followed.
pub(super) fn beside(card: &Path, file: &Path) -> Result<PathBuf, String> {
    let directory = match card.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let path = directory.join(file);
    let resolved =
        |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let found = resolved(&path)?;
    if found.starts_with(resolved(directory)?) {
        Ok(found)
    } else {
        Err(format!("{file:?} does not lie beside the card"))
    }
}

fn output_kind(
    section: Option<Map<String, Value>>,
    beside: impl FnOnce(&str) -> Result<String, String>,
) -> Result<OutputKind, String> {
    let Some(section) = section else { return Ok(OutputKind::Tensors) };
    if kind_of(&section, OUTPUT_KINDS, "output")? == "tensors" {
        return Ok(OutputKind::Tensors);
    }
    ranking(typed(section, "output")?, "output.labels", beside)
}

fn ranking(
    Labels { labels: file, top, softmax }: Labels,
    place: &str,
    beside: impl FnOnce(&str) -> Result<String, String>,
) -> Result<OutputKind, String> {
    lies_beside(Path::new(&file), place)?;
    let text = beside(&file).map_err(|error| format!("{place}: {error}"))?;
    let labels = if file.ends_with(".json") {
        labels_of_json(&text).ok_or_else(|| {
            format!("{place}: {file:?} is neither a list of names nor names by their numbers")
        })?
    } else {
        text.lines().map(|line| line.trim().to_owned()).collect()
    };
    Ok(OutputKind::Labels(Ranking { labels, top, softmax }))
}

/// A list of names, or TorchServe's index_to_name.json: names by their numbers, the last one of several.
fn labels_of_json(text: &str) -> Option<Vec<String>> {
    let name = |value: &Value| match value {
        Value::String(name) => Some(name.clone()),
        Value::Array(names) => names.last()?.as_str().map(str::to_owned),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    match serde_json::from_str(text).ok()? {
        Value::Array(names) => names.iter().map(name).collect(),
        Value::Object(names) => {
            (0..names.len()).map(|number| name(names.get(&number.to_string())?)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The section's kind, once the section holds only what that kind knows.
fn kind_of<'a>(
    section: &Map<String, Value>,
    kinds: &[(&'a str, &[&str])],
    place: &str,
) -> Result<&'a str, String> {
    let kind = section.get("kind").and_then(Value::as_str).unwrap_or("tensors");
    let names = || kinds.iter().map(|(name, _)| *name);
    let Some((name, known)) = kinds.iter().find(|(name, _)| *name == kind) else {
        let (hint, names) = (hint::did_you_mean(kind, names()), Vec::from_iter(names()));
        return Err(format!("{place}.kind: unknown {kind:?}{hint}; known: {}", names.join(", ")));
    };
    only_known(section, known, &format!("{place}."))?;
    Ok(name)
}

fn only_known(section: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), String> {
    match section.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let hint = hint::did_you_mean(key, known.iter().copied());
            Err(format!("unknown key \"{place}{key}\"{hint}; known: {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

fn typed<T: for<'de> Deserialize<'de>>(
    section: Map<String, Value>,
    place: &str,
) -> Result<T, String> {
    serde_json::from_value(Value::Object(section)).map_err(|error| format!("{place}: {error}"))
}
