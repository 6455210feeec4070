//! An ONNX model: its signature and its card, which decoding and answering need, and the engine with its
//! weights, which only whoever runs it loads.
//!
//! The file is looked through before an engine sees it, and the card is checked against what the model
//! takes and gives: all that can go wrong without a request goes wrong at load. Afterwards the model never
//! changes and is shared by all threads.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::card::{self, Card, InputKind, OutputKind};
use super::engine::{ComputeThreads, EngineOptions, GraphEngine};
use super::file::{self, DeclaredValue, FileGraph, ValueKind};
use super::labels::Ranking;
use super::prepare::Preparation;
use super::probe;
use super::request::DecodedRequest;
use super::shape_groups::ShapeGroups;
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::Datatype;

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No engine loads the model.
    #[error("model {name:?} does not load: {reason}")]
    Load {
        /// The model.
        name: String,
        /// What the engine reported.
        reason: String,
    },
    /// The card is wrong, or wrong for this model.
    #[error("the card of model {name:?}: {reason}")]
    Card {
        /// The model.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// What is known of a model without its graph: enough to decode and to answer requests.
#[derive(Debug)]
pub struct OnnxModel {
    /// The name that the card gives, or the file's.
    pub(super) name: String,
    /// What the model takes and gives.
    pub(super) signature: Signature,
    pub(super) card: Card,
    pub(super) shape_groups: ShapeGroups,
    /// How bodies become tensors, where the card declares it.
    pub(super) preparation: Option<Preparation>,
}

/// A model that is ready to be run.
pub struct OnnxSession {
    pub(super) model: Arc<OnnxModel>,
    pub(super) engine: GraphEngine,
    /// Those that each of its workers computes with.
    pub(super) threads: ComputeThreads,
}

impl fmt::Debug for OnnxSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OnnxSession").field("model", &self.model).finish_non_exhaustive()
    }
}

impl OnnxModel {
    /// The model of a file as the file declares it. No engine sees the file, so this does not tell whether one can
    /// run it, nor whether it keeps to what it declares.
    ///
    /// # Errors
    /// When the file cannot be read or served, or the card beside it is wrong.
    pub fn declared(path: &Path) -> Result<Arc<Self>, OnnxError> {
        let (name, _) = card_of(path)?;
        let signature = file_signature(&name, &read(path)?)?;
        Self::described(path, signature)
    }

    /// The model of a file that another process has loaded, which told its signature.
    ///
    /// # Errors
    /// When the card beside the file is wrong.
    pub fn described(path: &Path, signature: Signature) -> Result<Arc<Self>, OnnxError> {
        let (name, card) = card_of(path)?;
        Self::new(name, signature, card)
    }

    fn new(name: String, signature: Signature, card: Card) -> Result<Arc<Self>, OnnxError> {
        let wrong = |reason| OnnxError::Card { name: name.clone(), reason };
        suits(&card, &signature).map_err(wrong)?;
        let preparation = card.input.fit(&signature).map_err(wrong)?;
        let name = card.name.clone().unwrap_or(name);
        let shape_groups = ShapeGroups::default();
        Ok(Arc::new(Self { name, signature, card, shape_groups, preparation }))
    }

    /// Whether the tensors of two requests can be joined. Those that came as tensors always can.
    pub(super) fn joins(&self, left: &DecodedRequest, right: &DecodedRequest) -> bool {
        let axis = |spec| self.card.padding.as_ref().and_then(|pads| pads.axis(spec));
        let tensors = left.tensors.iter().zip(&right.tensors);
        self.signature.inputs.iter().zip(tensors).all(|(spec, (left, right))| {
            let shapes = left.shape().iter().zip(right.shape()).enumerate().skip(1);
            let padded = axis(spec);
            left.shape().len() == right.shape().len()
                && shapes.into_iter().all(|(place, (l, r))| l == r || padded == Some(place))
        })
    }

    /// Whether the items of a request may run in different batches: they may, unless the card forbids
    /// it.
    pub(super) fn splits(&self) -> bool {
        self.signature.batches() && !self.card.atomic
    }
}

impl OnnxSession {
    /// Loads a `.onnx` file with the card beside it (`<stem>.yaml`), if there is one, into the engine that
    /// the options allow. This takes as long as reading the weights does, so keep it off threads that
    /// serve.
    ///
    /// # Errors
    /// When the file cannot be read or served, or its card is wrong.
    pub fn open(path: &Path, options: &Value) -> Result<Self, OnnxError> {
        let (name, card) = card_of(path)?;
        let options = EngineOptions::read(options);
        let session = Self::load(name, read(path)?.into(), Some(path), card, &options)?;
        if let Some(preparation) = &session.model.preparation {
            let loaded = preparation.load(|file| {
                let path = card::beside(path, file)?;
                std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
            });
            let wrong = |reason| OnnxError::Card { name: session.model.name.clone(), reason };
            loaded.map_err(wrong)?;
        }
        Ok(session)
    }

    /// Loads a model from memory; bytes of the program itself are used where they are.
    ///
    /// # Errors
    /// As [`OnnxSession::open`].
    pub fn from_bytes(name: &str, file: Cow<'static, [u8]>, card: Card) -> Result<Self, OnnxError> {
        Self::load(name.to_owned(), file, None, card, &EngineOptions::builtin())
    }

    fn load(
        name: String,
        file: Cow<'static, [u8]>,
        path: Option<&Path>,
        card: Card,
        options: &EngineOptions,
    ) -> Result<Self, OnnxError> {
        let failed = |reason: String| OnnxError::Load { name: name.clone(), reason };
        let signature = file_signature(&name, &file)?;
        let engine = GraphEngine::load(file, path, &signature, options).map_err(failed)?;
        let padded = card.padding.as_ref().map(|pads| pads.dimension.as_str());
        let signature = match path {
            Some(_) => probe::probed(&engine, signature, padded).map_err(failed)?,
            None => signature,
        };
        let model = OnnxModel::new(name, signature, card)?;
        Ok(Self { model, engine, threads: options.threads() })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, OnnxError> {
    std::fs::read(path).map_err(|source| OnnxError::Read { path: path.to_owned(), source })
}

/// What a file declares of its model, if it is well-formed.
fn file_signature(name: &str, file: &[u8]) -> Result<Signature, OnnxError> {
    let failed = |reason: String| OnnxError::Load { name: name.to_owned(), reason };
    let damaged = |_| failed("it is not an ONNX file, or it is damaged".to_owned());
    file::check(file).map_err(damaged)?;
    signature(file::graph(file)).map_err(failed)
}

/// The name that a file gives its model, and the card beside it, if there is one.
fn card_of(path: &Path) -> Result<(String, Card), OnnxError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_extension("yaml");
    let card = if beside.is_file() { Card::read(&beside) } else { Ok(Card::default()) };
    match card {
        Ok(card) => Ok((name, card)),
        Err(reason) => Err(OnnxError::Card { name, reason }),
    }
}

/// What the model takes and gives, as the file declares it.
fn signature(graph: FileGraph) -> Result<Signature, String> {
    let inputs = graph.inputs.into_iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let outputs: Vec<_> = graph.outputs.into_iter().flat_map(output).collect();
    // An empty file is an empty model, which cannot answer anything.
    if inputs.is_empty() || outputs.is_empty() {
        return Err("it has no inputs or no outputs".to_owned());
    }
    Ok(Signature { inputs, outputs })
}

fn input(DeclaredValue { name, kind }: DeclaredValue) -> Result<TensorSpec, String> {
    match kind {
        ValueKind::Tensor { datatype: Some(datatype), shape } => {
            Ok(TensorSpec { name, datatype, shape })
        }
        ValueKind::Tensor { datatype: None, .. } | ValueKind::Unknown => {
            Err(format!("input {name:?} has a type that is not served"))
        }
        ValueKind::Optional(kind) => input(DeclaredValue { name, kind: *kind }),
        ValueKind::Sequence(_) | ValueKind::Map { .. } => {
            Err(format!("input {name:?} is a sequence or a map, which no protocol can send"))
        }
    }
}

/// An output as tensors. A map is its values and its keys, a row for each map; a sequence of tensors is
/// all their elements and their shapes.
fn output(DeclaredValue { name, kind }: DeclaredValue) -> Vec<TensorSpec> {
    let spec = |suffix: &str, datatype: Option<Datatype>, shape: Option<Vec<Dim>>| TensorSpec {
        name: format!("{name}{suffix}"),
        // A file may leave the type of an output unsaid; single precision is the likeliest.
        datatype: datatype.unwrap_or(Datatype::Fp32),
        shape,
    };
    let open = |names: &[&str]| {
        Some(names.iter().map(|name| Dim::Open((*name).to_owned())).collect::<Vec<_>>())
    };
    let map = |key: Option<Datatype>, value, rows: &str| {
        let shape = open(&[rows, "unnamed_keys"]);
        vec![spec("", value, shape.clone()), spec(".keys", key, shape)]
    };
    match kind {
        ValueKind::Tensor { datatype, shape } => vec![spec("", datatype, shape)],
        ValueKind::Unknown => vec![spec("", None, None)],
        ValueKind::Optional(kind) => output(DeclaredValue { name, kind: *kind }),
        ValueKind::Map { key, value } => map(key, value, ""),
        ValueKind::Sequence(kind) => match *kind {
            ValueKind::Map { key, value } => map(key, value, "unnamed_maps"),
            ValueKind::Tensor { datatype, .. } => vec![
                spec("", datatype, open(&[""])),
                spec(".shapes", Some(Datatype::Int64), open(&["", "unnamed_rank"])),
            ],
            ValueKind::Sequence(_) | ValueKind::Optional(_) | ValueKind::Unknown => {
                vec![spec("", None, open(&[""]))]
            }
        },
    }
}

/// Whether the card's processing fits what the model takes and gives.
fn suits(card: &Card, signature: &Signature) -> Result<(), String> {
    if let InputKind::FileBytes(features) = &card.input {
        let width = features.width();
        let row = [Dim::Fixed(width)];
        let fits = |spec: &TensorSpec| {
            Datatype::Int32.admits(spec.datatype)
                && spec.shape.as_ref().is_some_and(|shape| shape.len() == 2 && shape[1..] == row)
        };
        if !(signature.inputs.len() == 1 && signature.inputs.iter().all(fits)) {
            let got = signature
                .inputs
                .iter()
                .map(TensorSpec::to_string)
                .collect::<Vec<_>>()
                .join(" and ");
            return Err(format!(
                "file-bytes makes INT32 of shape [n, {width}], the model takes {got}"
            ));
        }
    }
    if let Some(pads) = &card.padding {
        pads.suit(signature)?;
    }
    if let OutputKind::Labels(Ranking { labels, .. }) = &card.output {
        let classes = signature.outputs.first().and_then(|spec| spec.shape.as_ref()?.last());
        if let Some(Dim::Fixed(classes)) = classes
            && *classes != labels.len()
        {
            return Err(format!("{} labels for a model of {classes} classes", labels.len()));
        }
    }
    Ok(())
}
