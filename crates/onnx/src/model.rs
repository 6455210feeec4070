//! An ONNX model: its signature and its card, which decoding and answering need, and its weights, which
//! only whoever runs it loads.
//!
//! The file is looked through before rten sees it, panics of rten are caught, and the card is checked
//! against what the model takes and gives: all that can go wrong without a request goes wrong at load.
//! Afterwards the model never changes and is shared by all threads. Tensors are converted to rten's and
//! back here; a request that is alone in its batch is not copied.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rten::{DataType, Dimension, Model, NodeId, RunOptions, Value, ValueType, ValueView};
use rten_tensor::Layout;

use super::card::{Card, InputKind, OutputKind};
use super::file;
use super::labels::Ranking;
use super::shape_groups::ShapeGroups;
use super::tensor::{Tensor, TensorData};
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
    /// rten does not load the model.
    #[error("model {name:?} does not load: {reason}")]
    Load {
        /// The model.
        name: String,
        /// What rten reported.
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
}

/// A model that is ready to be run.
pub struct OnnxSession {
    pub(super) model: Arc<OnnxModel>,
    graph: Model,
}

impl fmt::Debug for OnnxSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OnnxSession").field("model", &self.model).finish_non_exhaustive()
    }
}

impl OnnxModel {
    /// The model of a file that another process has loaded, which told its signature.
    ///
    /// # Errors
    /// When the card beside the file is wrong.
    pub fn described(path: &Path, signature: Signature) -> Result<Arc<Self>, OnnxError> {
        let (name, card) = card_of(path)?;
        Self::new(name, signature, card)
    }

    fn new(name: String, signature: Signature, card: Card) -> Result<Arc<Self>, OnnxError> {
        suits(&card, &signature)
            .map_err(|reason| OnnxError::Card { name: name.clone(), reason })?;
        let name = card.name.clone().unwrap_or(name);
        Ok(Arc::new(Self { name, signature, card, shape_groups: ShapeGroups::default() }))
    }

    /// Whether the items of a request may run in different batches: they may, unless the card forbids
    /// it.
    pub(super) fn splits(&self) -> bool {
        self.signature.batches() && !self.card.atomic
    }
}

impl OnnxSession {
    /// Loads a `.onnx` file with the card beside it (`<stem>.yaml`), if there is one. This takes
    /// as long as reading the weights does, so keep it off threads that serve.
    ///
    /// # Errors
    /// When the file cannot be read or served, or its card is wrong.
    pub fn open(path: &Path) -> Result<Self, OnnxError> {
        let (name, card) = card_of(path)?;
        let file = std::fs::read(path)
            .map_err(|source| OnnxError::Read { path: path.to_owned(), source })?;
        Self::load(name, file.into(), card, |file| {
            drop(file);
            // By path rather than from the bytes, so that weights in files of their own are found.
            Model::load_file(path)
        })
    }

    /// Loads a model from memory; bytes of the program itself are used where they are.
    ///
    /// # Errors
    /// As [`OnnxSession::open`].
    pub fn from_bytes(name: &str, file: Cow<'static, [u8]>, card: Card) -> Result<Self, OnnxError> {
        Self::load(name.to_owned(), file, card, |file| match file {
            Cow::Borrowed(file) => Model::load_static_slice(file),
            Cow::Owned(file) => Model::load(file),
        })
    }

    /// Runs rten's loader, which may panic on files that no exporter made, once the file is known to be
    /// safe for it.
    fn load<E: fmt::Display>(
        name: String,
        file: Cow<'static, [u8]>,
        card: Card,
        loader: impl FnOnce(Cow<'static, [u8]>) -> Result<Model, E>,
    ) -> Result<Self, OnnxError> {
        let failed = |reason: String| OnnxError::Load { name: name.clone(), reason };
        let damaged = |_| failed("it is not an ONNX file, or it is damaged".to_owned());
        file::check(&file).map_err(damaged)?;
        let declared = file::datatypes(&file);
        let loaded = catch_unwind(AssertUnwindSafe(|| loader(file)));
        let loaded = loaded.map_err(|_| failed("the loader panicked on it".to_owned()))?;
        let graph = loaded.map_err(|error| failed(error.to_string()))?;
        let signature = signature(&graph, &declared).map_err(failed)?;
        Ok(Self { model: OnnxModel::new(name, signature, card)?, graph })
    }

    /// Runs the model once on tensors in the order of its inputs.
    pub(super) fn run(
        &self,
        tensors: &[Cow<'_, Tensor>],
        options: RunOptions,
    ) -> Result<Vec<Tensor>, String> {
        let views = tensors.iter().map(|tensor| view(tensor).map(Into::into));
        let views: Option<Vec<_>> = views.collect();
        let views = views.ok_or("a tensor's data does not fill its shape")?;
        let inputs = self.graph.input_ids().iter().copied().zip(views).collect();
        let values = self.graph.run(inputs, self.graph.output_ids(), Some(options));
        let values = values.map_err(|error| error.to_string())?;
        let tensors = values.into_iter().zip(&self.model.signature.outputs);
        let tensors = tensors.map(|(value, spec)| {
            tensor(value, spec).ok_or_else(|| format!("output {:?} is no tensor", spec.name))
        });
        tensors.collect()
    }
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

/// What the model takes and gives, as rten and the types that the file declares have it.
fn signature(graph: &Model, declared: &HashMap<String, Datatype>) -> Result<Signature, String> {
    let specs = |ids: &[NodeId], guess| -> Result<Vec<TensorSpec>, String> {
        ids.iter().map(|id| spec(graph, *id, declared, guess)).collect()
    };
    let inputs = specs(graph.input_ids(), None)?;
    // A file may leave the type of an output unsaid; single precision is the likeliest.
    let outputs = specs(graph.output_ids(), Some(Datatype::Fp32))?;
    // To rten an empty file is an empty model, which cannot answer anything.
    if inputs.is_empty() || outputs.is_empty() {
        return Err("it has no inputs or no outputs".to_owned());
    }
    Ok(Signature { inputs, outputs })
}

fn spec(
    graph: &Model,
    id: NodeId,
    declared: &HashMap<String, Datatype>,
    guess: Option<Datatype>,
) -> Result<TensorSpec, String> {
    let node = graph.node_info(id).ok_or("an input or output is not in the graph")?;
    let name = node.name().unwrap_or_default().to_owned();
    let held = match node.dtype() {
        Some(ValueType::Tensor(held)) => datatype(held),
        Some(_) => return Err(format!("{name:?} is no tensor")),
        None => None,
    };
    let datatype = declared.get(&name).copied().or(held).or(guess);
    let datatype = datatype.ok_or_else(|| format!("{name:?} has a type that is not served"))?;
    let dim = |dimension| match dimension {
        Dimension::Fixed(size) => Dim::Fixed(size),
        Dimension::Symbolic(name) => Dim::Open(name),
    };
    let shape = node.shape().map(|shape| shape.into_iter().map(dim).collect());
    Ok(TensorSpec { name, datatype, shape })
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

/// rten's element types by the protocol's names, for files that do not declare their own.
fn datatype(of: DataType) -> Option<Datatype> {
    match of {
        DataType::Float => Some(Datatype::Fp32),
        DataType::Int32 => Some(Datatype::Int32),
        DataType::Int8 => Some(Datatype::Int8),
        DataType::UInt8 => Some(Datatype::Uint8),
        // The enum may grow; a type that we cannot name is a model that we cannot serve.
        _ => None,
    }
}

/// A tensor as rten reads it, without a copy.
fn view(tensor: &Tensor) -> Option<ValueView<'_>> {
    match tensor.data() {
        TensorData::F32(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        TensorData::I32(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        TensorData::I8(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        TensorData::U8(data) => ValueView::from_shape(tensor.shape(), data).ok(),
    }
}

/// What rten gave for an output: in the type that the model declares for it where rten kept to that, in
/// rten's own where it did not.
fn tensor(value: Value, spec: &TensorSpec) -> Option<Tensor> {
    let (shape, declared) = (value.shape().to_vec(), spec.datatype);
    let (held, data) = match value {
        Value::FloatTensor(values) => (Datatype::Fp32, TensorData::F32(values.into_data())),
        Value::Int32Tensor(values) => (Datatype::Int32, TensorData::I32(values.into_data())),
        Value::Int8Tensor(values) => (Datatype::Int8, TensorData::I8(values.into_data())),
        Value::UInt8Tensor(values) => (Datatype::Uint8, TensorData::U8(values.into_data())),
        // Sequences have no place in the protocol, nor has what rten may add later.
        Value::Sequence(_) | _ => return None,
    };
    // rten holds truth values as integers.
    let is_bool = held == Datatype::Int32 && declared == Datatype::Bool;
    let datatype = if is_bool || held.admits(declared) { declared } else { held };
    Tensor::new(datatype, shape, data)
}
