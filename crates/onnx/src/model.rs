//! A loaded ONNX model: its weights, its signature and its card. Loading reads and checks everything
//! that can be checked without a request; afterwards the model never changes and is shared by
//! all threads.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use rten::{Model, NodeId, RunOptions};

use super::card::Card;
use super::load::{self, DeclaredTypes, OnnxError};
use super::shape_groups::ShapeGroups;
use super::tensor::Tensor;
use super::value;
use jitney_engine::local::Signature;

/// The version of models whose card names none, as TorchServe's archiver has it.
const VERSION_DEFAULT: &str = "1.0";

/// A model that is ready to be run.
pub struct OnnxModel {
    name: String,
    graph: Model,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    signature: Signature,
    card: Card,
    shape_groups: ShapeGroups,
}

impl std::fmt::Debug for OnnxModel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OnnxModel")
            .field("name", &self.name)
            .field("signature", &self.signature)
            .finish_non_exhaustive()
    }
}

impl OnnxModel {
    /// Loads a `.onnx` file with the card beside it (`<stem>.yaml`), if there is one. This takes
    /// as long as reading the weights does, so keep it off threads that serve.
    ///
    /// # Errors
    /// When the file cannot be read or served, or its card is wrong.
    pub fn open(path: &Path) -> Result<Arc<Self>, OnnxError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let beside = path.with_extension("yaml");
        let card = if beside.is_file() { Card::read(&beside) } else { Ok(Card::default()) };
        let card = card.map_err(|reason| OnnxError::Card { name: name.clone(), reason })?;
        let file = std::fs::read(path)
            .map_err(|source| OnnxError::Read { path: path.to_owned(), source })?;
        let declared = load::examine(&name, &file)?;
        drop(file);
        // By path rather than from the bytes, so that weights in files of their own are found.
        let graph = load::load(&name, || Model::load_file(path))?;
        Self::assemble(name, graph, card, &declared)
    }

    /// Loads a model from memory; bytes of the program itself are used where they are.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn from_bytes(
        name: &str,
        file: Cow<'static, [u8]>,
        card: Card,
    ) -> Result<Arc<Self>, OnnxError> {
        let declared = load::examine(name, &file)?;
        let graph = load::load(name, || match file {
            Cow::Borrowed(file) => Model::load_static_slice(file),
            Cow::Owned(file) => Model::load(file),
        })?;
        Self::assemble(name.to_owned(), graph, card, &declared)
    }

    fn assemble(
        name: String,
        graph: Model,
        card: Card,
        declared: &DeclaredTypes,
    ) -> Result<Arc<Self>, OnnxError> {
        let signature = load::signature(&name, &graph, declared)?;
        load::suits(&card, &signature)
            .map_err(|reason| OnnxError::Card { name: name.clone(), reason })?;
        let name = card.name.clone().unwrap_or(name);
        let (inputs, outputs) = (graph.input_ids().to_vec(), graph.output_ids().to_vec());
        let shape_groups = ShapeGroups::default();
        Ok(Arc::new(Self { name, graph, inputs, outputs, signature, card, shape_groups }))
    }

    /// The name that the card gives, or the file's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that the card gives, or `1.0`.
    pub fn version(&self) -> &str {
        self.card.version.as_deref().unwrap_or(VERSION_DEFAULT)
    }

    /// What the model takes and gives.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Its card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Most items in a batch: 1 when the model's first dimension is not open, the card's limit
    /// otherwise, `None` when nothing limits it.
    pub fn max_batch(&self) -> Option<u32> {
        if self.signature.batches() { self.card.max_batch_size } else { Some(1) }
    }

    /// Whether the items of a request may run in different batches: they may, unless the card forbids
    /// it.
    pub fn splits(&self) -> bool {
        self.signature.batches() && !self.card.atomic
    }

    pub(super) fn shape_groups(&self) -> &ShapeGroups {
        &self.shape_groups
    }

    /// Runs the model once on tensors in the order of its inputs.
    pub(super) fn run(
        &self,
        tensors: &[Cow<'_, Tensor>],
        options: RunOptions,
    ) -> Result<Vec<Tensor>, String> {
        let views = tensors.iter().map(|tensor| value::view(tensor).map(Into::into));
        let views: Option<Vec<_>> = views.collect();
        let views = views.ok_or("a tensor's data does not fill its shape")?;
        let inputs = self.inputs.iter().copied().zip(views).collect();
        let values = self.graph.run(inputs, &self.outputs, Some(options));
        let values = values.map_err(|error| error.to_string())?;
        let tensors = values.into_iter().zip(&self.signature.outputs);
        let tensors = tensors.map(|(value, spec)| {
            value::tensor(value, spec).ok_or_else(|| format!("output {:?} is no tensor", spec.name))
        });
        tensors.collect()
    }
}
